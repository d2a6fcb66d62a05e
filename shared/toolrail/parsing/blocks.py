"""Readers of tool markup: from just after an opener to the end of what it opened.

`ObjectsBlock` reads calls that are JSON objects; `CallBlock` reads calls spelled in parts (markers,
name, arguments). Both are made from a family's `Syntax`; a family that neither fits writes its own
`Block` and gets the rest of the machine all the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal, Protocol, TypeAlias

from toolrail.arguments.delimited import DelimitedArguments
from toolrail.arguments.elements import ElementArguments
from toolrail.arguments.json_calls import CallObjects
from toolrail.arguments.json_value import JsonValue, Read
from toolrail.arguments.output import Output
from toolrail.arguments.types import ToolTypes
from toolrail.arguments.xml import XmlArguments
from toolrail.scan import Buffer, Markers, words
from toolrail.syntax import (
    Args,
    ArgumentStyle,
    Index,
    JsonStyle,
    Lit,
    Name,
    NotationStyle,
    Objects,
    Part,
    Syntax,
    XmlStyle,
)

_Arguments: TypeAlias = XmlArguments | DelimitedArguments | ElementArguments

_MAX_HEADER: Final = 512
"""Longest text between a call's opener and its arguments that is still taken for a header."""
_NAME: Final = re.compile(r"[^\s<>{}\"'`]+\Z")


class Block(Protocol):
    """Reads one piece of tool markup, its opener consumed.

    BAD with `begun` false: this was no call after all, nothing was put out. BAD with `begun` true:
    a call broke off. MORE at the end of the stream: it was cut. DONE: over; the buffer stands after
    it. Calls it leaves open are ended incomplete by the machine.
    """

    @property
    def begun(self) -> bool:
        """Whether a call (or a list of calls) certainly began."""
        ...

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What a block reads with.

    Attributes:
        output: where it puts the calls.
        tools: the offered tools and the types of their parameters.
        careful: only what is certainly a call may begin: a header whose tool is offered or that
            call structure follows (bare calls, calls inside reasoning).
        held: a structural tag holds the output (`ParseSpec.held`).
    """

    output: Output
    tools: ToolTypes
    careful: bool = False
    held: bool = False


class ObjectsBlock:
    """Calls as JSON objects, up to the section's closer."""

    def __init__(self, keys: Objects, syntax: Syntax, output: Output) -> None:
        self._output: Final = output
        self._required: Final = syntax.closer_required
        self._closers: Final = closers(syntax)
        self._calls: Final = CallObjects(
            keys,
            output,
            end_last=not syntax.closer_required,
            in_array=syntax.section is not None and syntax.section.word,
            separators=",;" if self._closers or keys.array else keys.separator.strip(),
        )
        self._closing = False

    @property
    def begun(self) -> bool:
        """Whether an object (or an array) began."""
        return self._calls.begun

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        if not self._closing:
            status = self._calls.read(buffer, final=final)
            if status is not Read.DONE:
                return status
            self._closing = True
        return self._read_close(buffer, final=final)

    def _read_close(self, buffer: Buffer, *, final: bool) -> Read:
        if not self._closers:
            self._output.end()
            return Read.DONE
        closed = _after_brackets(buffer, [words(c) for c in self._closers], final=final)
        if closed is None:
            return Read.MORE
        self._output.end(complete=closed or not self._required)
        return Read.DONE


class _At(Enum):
    SECTION = auto()  # inside a section, between calls
    HEADER = auto()  # from the call's opener to its arguments
    AFTER_NAME = auto()  # the literals between header and arguments
    BELIEVE = auto()  # whether the header is one
    ARGUMENTS = auto()
    CLOSE = auto()


class CallShape:
    """A `Syntax` of parts, taken apart once: what `CallBlock` needs to read a call."""

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


class CallBlock:
    """Calls in parts, with or without the section around them.

    `where` it begins: in a `section`, after a `call`'s own opener, or `resumed` in a section of
    which a call broke off.
    """

    def __init__(
        self,
        shape: CallShape,
        reading: Reading,
        *,
        where: Literal["section", "call", "resumed"],
    ) -> None:
        self._shape: Final = shape
        self._output: Final = reading.output
        self._tools: Final = reading.tools
        self._in_section: Final = where != "call"
        self._careful: Final = reading.careful
        self._held: Final = reading.held
        self._at = _At.HEADER if where == "call" else _At.SECTION
        self._header: list[str] = []
        self._name = ""
        self._id: str | None = None
        self._args: JsonValue | _Arguments | None = None
        self._calls = int(where == "resumed")
        self._begun = where == "resumed"

    @property
    def begun(self) -> bool:
        """Whether a call began."""
        return self._begun

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        steps = {
            _At.SECTION: self._read_section,
            _At.HEADER: self._read_header,
            _At.AFTER_NAME: self._read_after_name,
            _At.BELIEVE: self._read_belief,
            _At.ARGUMENTS: self._read_arguments,
            _At.CLOSE: self._read_close,
        }
        while True:
            status = steps[self._at](buffer, final)
            if status is not None:
                return status

    def _read_section(self, buffer: Buffer, final: bool) -> Read | None:
        shape, window = self._shape, buffer.window
        at = buffer.pos
        while at < len(window) and window[at].isspace():
            at += 1
        rest = window[at : at + shape.between.longest]
        if not rest or (shape.between.grows(rest) and not final):
            return Read.MORE if not final or not self._calls else Read.DONE
        hit = shape.between.search(rest)
        if hit is None or hit[0] != 0:
            return Read.DONE if self._calls else Read.BAD
        buffer.take(at - buffer.pos + len(hit[1]))
        if hit[1] in shape.section_ends:
            return Read.DONE
        if hit[1] == shape.opener:
            self._at = _At.HEADER
            self._header = []
        return None

    def _read_header(self, buffer: Buffer, final: bool) -> Read | None:
        text, terminator = buffer.until(self._shape.terminators, final=final)
        self._header.append(text)
        so_far = "".join(self._header)
        breaks_at = self._shape.breaks_at(so_far)
        if breaks_at is not None:
            buffer.give_back(so_far[breaks_at:])
            return Read.BAD
        if terminator is None:
            return Read.BAD if final else Read.MORE
        header = self._shape.header(so_far)
        if header is None:
            return Read.BAD
        self._name, self._id = header
        self._at = _At.AFTER_NAME
        return None

    def _read_after_name(self, buffer: Buffer, final: bool) -> Read | None:
        matched = buffer.literal(self._shape.after_name, final=final)
        if matched is None:
            return Read.MORE
        self._at = _At.BELIEVE
        return None if matched else Read.BAD

    def _read_belief(self, buffer: Buffer, final: bool) -> Read | None:
        shape = self._shape
        if self._careful and self._name not in self._tools:
            follows = _comes(buffer, shape.structure, final=final)
            if not follows:
                return Read.BAD if follows is False else Read.MORE
        self._begun = True
        self._output.start(self._name, self._id)
        self._args = None
        self._at = _At.ARGUMENTS
        return None

    def _read_arguments(self, buffer: Buffer, final: bool) -> Read | None:
        if self._args is None and not self._begin_arguments(buffer):
            return Read.MORE
        if self._args is None or isinstance(self._args, JsonValue):
            status = self._read_json(buffer, final)
        else:
            status = self._args.read(buffer, final=final)
        if status is not Read.DONE:
            return status
        if isinstance(self._args, (XmlArguments, ElementArguments)):
            self._args.close()
        self._calls += 1
        if not self._shape.syntax.closer_required:
            self._output.end()
        self._at = _At.CLOSE
        return None

    def _begin_arguments(self, buffer: Buffer) -> bool:
        """Choose the reader by the style (none yet: JSON); False when more text decides."""
        shape, style = self._shape, self._shape.style
        if isinstance(style, NotationStyle) and style.reads == "delimited":
            self._args = DelimitedArguments(style, self._output, (shape.opener, *shape.close))
        elif isinstance(style, NotationStyle):
            ends = (*shape.close, *shape.between.texts)
            types, held = self._tools.of(self._name), self._held
            self._args = ElementArguments(style, types, self._output, ends, held=held)
        if not isinstance(style, XmlStyle):
            return True
        if style.json_body:
            buffer.skip_space()
            if not len(buffer):
                return False
        if not style.json_body or buffer.peek() != "{":
            types, held = self._tools.of(self._name), self._held
            self._args = XmlArguments(style, types, self._output, held=held)
        return True

    def _read_json(self, buffer: Buffer, final: bool) -> Read:
        if self._args is None:
            buffer.skip_space()
            empty = _comes(buffer, self._shape.close[:1], final=final)
            if empty is None:
                return Read.MORE
            if empty:
                self._output.arguments("{}")
                return Read.DONE
            if buffer.peek() != "{":
                return Read.BAD
            self._args = JsonValue()
        assert isinstance(self._args, JsonValue)
        self._output.arguments(self._args.read(buffer, final=final))
        return self._args.status

    def _read_close(self, buffer: Buffer, final: bool) -> Read | None:
        closed = _after_brackets(buffer, [self._shape.close], final=final)
        if closed is None:
            return Read.MORE
        if not closed and self._shape.syntax.closer_required:
            return Read.MORE if final and not buffer.text.strip() else Read.BAD
        self._output.end()
        if not self._in_section:
            return Read.DONE
        self._at = _At.SECTION
        return None


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


def _comes(buffer: Buffer, markers: tuple[str, ...], *, final: bool) -> bool | None:
    """Whether one of `markers` comes next, whitespace aside; nothing is consumed."""
    window, at = buffer.window, buffer.pos
    while at < len(window) and window[at].isspace():
        at += 1
    rest = window[at : at + max(map(len, markers), default=0)]
    if rest.startswith(markers):
        return True
    if final or not any(m.startswith(rest) for m in markers):
        return False
    return None


def _after_brackets(buffer: Buffer, ends: Sequence[tuple[str, ...]], *, final: bool) -> bool | None:
    """Consume one of `ends` (its words, whitespace between them) if it comes next.

    Whitespace and surplus closing brackets before it are consumed with it: small models often
    write one brace too many; the call before it is complete all the same.
    """
    window, pos = buffer.window, buffer.pos
    at = pos
    partial = False
    while True:
        while at < len(window) and window[at].isspace():
            at += 1
        for end in ends:
            stop, whole = _matched(window, at, end)
            if whole:
                buffer.take(stop - pos)
                return True
            partial = partial or stop == len(window)
        # A closer may begin with a bracket itself, so it is looked for first.
        if partial or window[at : at + 1] not in ("}", "]"):
            break
        at += 1
    if partial and not final:
        return None
    if partial and at < len(window):
        buffer.take(len(window) - pos)  # the stream ended inside the closer
    return False


def _matched(window: str, at: int, parts: tuple[str, ...]) -> tuple[int, bool]:
    """How far `parts`, with whitespace before each, are there from `at` on, and whether wholly.

    A stop at the end of the window means that more text decides.
    """
    for part in parts:
        while at < len(window) and window[at].isspace():
            at += 1
        rest = window[at : at + len(part)]
        if rest != part:
            return (len(window) if part.startswith(rest) else at), False
        at += len(part)
    return at, True
