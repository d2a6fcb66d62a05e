"""How a call in parts is spelled, taken apart for reading."""

from __future__ import annotations

import re
from typing import Final

from toolrail.scan import Markers, words
from toolrail.syntax import (
    Args,
    ArgumentStyle,
    Index,
    JsonStyle,
    Lit,
    Name,
    NotationStyle,
    Part,
    Syntax,
)

_MAX_HEADER: Final = 512
"""Longest text between a call's opener and its arguments that is still taken for a header."""
_NAME: Final = re.compile(r"[^\s<>{}\"'`]+\Z")


class CallShape:
    """A `Syntax` of parts, taken apart once: what `blocks.CallBlock` needs to read a call."""

    def __init__(self, syntax: Syntax) -> None:
        parts = syntax.call
        opener, name_at = parts[0], next(i for i, p in enumerate(parts) if isinstance(p, Name))
        args_at = next(i for i, p in enumerate(parts) if isinstance(p, Args))
        args = parts[args_at]
        assert isinstance(opener, Lit)
        assert isinstance(args, Args)
        self.syntax: Final = syntax
        self.opener: Final = opener.text.strip()
        self.style: Final = args.style
        name = parts[name_at]
        self.quotes: Final = name.quotes if isinstance(name, Name) else ""
        self.prefix: Final = _text(parts[1:name_at])
        indexed = any(isinstance(p, Index) for p in parts)
        index_at = next((i for i, p in enumerate(parts) if isinstance(p, Index)), name_at)
        self.index_lead: Final = _text(parts[name_at + 1 : index_at]) if indexed else None
        self.after_name: Final = words(_text(parts[index_at + 1 : args_at]))
        self.close: Final = words(_text(parts[args_at + 1 :]))
        self.structure: Final = _structure(args.style, self.close)
        self.terminators: Final = Markers(self.after_name[:1] or self.structure)
        section = syntax.section
        self.section_ends: Final = closers(syntax)
        self.section_begins: Final = (section.begin.strip(), *section.begins) if section else ()
        self.between: Final = Markers([self.opener, *self.section_ends, *self.section_begins])

    def breaks_at(self, text: str) -> int | None:
        """Where `text`, after a call's opener, stops being the start of a header, if it does.

        The place depends on the text alone, not on how much of it came at once.
        """
        header, prefix = text.lstrip(), self.prefix.strip()
        if prefix.startswith(header):
            return None
        start = len(text) - len(header) + (len(prefix) if header.startswith(prefix) else 0)
        angle = text.find("<", start)
        ends = [at for at in (angle, _MAX_HEADER) if 0 <= at < len(text)]
        return min(ends, default=None)

    def header(self, text: str) -> tuple[str, str | None] | None:
        """Name and wire id of a header, or None when it is none."""
        header = text.strip()
        name = header.removeprefix(self.prefix.strip())
        wire_id = None
        if self.index_lead is not None:
            wire_id = header
            stem, lead, index = name.rpartition(self.index_lead)
            if lead and index.strip().isdecimal():
                name = stem
        name = name.strip()
        if self.quotes and name[:1] and name[0] in self.quotes:
            name = name[1:].removesuffix(name[0]).strip()
        return (name, wire_id) if _NAME.match(name) else None


def closers(syntax: Syntax) -> tuple[str, ...]:
    """Every spelling of the section's closer."""
    section = syntax.section
    return tuple(c for c in (section.end.strip(), *section.ends) if c) if section else ()


def _structure(style: ArgumentStyle, close: tuple[str, ...]) -> tuple[str, ...]:
    """What may come next after a header that is one."""
    if isinstance(style, NotationStyle):
        return (style.arguments.member[0] or style.arguments.object[0], *close[:1])
    if isinstance(style, JsonStyle):
        return ("{",)
    return (style.open, *close[:1], *(("{",) if style.json_body else ()))


def _text(parts: tuple[Part, ...]) -> str:
    return "".join(p.text for p in parts if isinstance(p, Lit))
