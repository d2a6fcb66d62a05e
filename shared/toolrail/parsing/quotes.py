"""Markers that prose only talks about: `the "<tool_call>" marker` calls nothing.

A marker is quoted when a quotation that opened before it on its line closes after it. Quotes are
told from apostrophes and inch marks by what stands beside them. What makes a quotation balanced is
decided twice: loosely around markers that begin no complete call, strictly (a quotation set off by
spaces, nothing but words in it) around complete calls and reasoning markers, so that an unmatched
quote, or one inside a call's own arguments, never hides a real one.
"""

from __future__ import annotations

import re
from typing import Final

CONTEXT: Final = 256
"""How far before and after a marker a quotation may reach; bounds what must be held."""
FENCE: Final = "```"
_QUOTES: Final = "\"'`“‘"
_CLOSERS: Final = {"“": "”", "‘": "’"}
_WORDS: Final = re.compile(r"[\w\s.,;:!?()’'-]*\Z")


class ProseContext:
    """The end of the current line of a channel's prose, and whether a code fence is open."""

    __slots__ = ("_line_start", "fenced", "line")

    def __init__(self) -> None:
        self.line = ""
        self.fenced = False
        self._line_start = ""

    def add(self, text: str) -> None:
        """More prose. O(len(text))."""
        if "\n" not in text:
            self._extend(text)
            return
        for part in text.split("\n")[:-1]:
            self._extend(part)
            self.fenced = self.fenced_after("\n")
            self.line = self._line_start = ""
        self._extend(text.rpartition("\n")[2])

    def fenced_after(self, text: str) -> bool:
        """Whether a code fence is open once `text`, line breaks or nothing, is added."""
        toggles = "\n" in text and self._line_start.lstrip().startswith(FENCE)
        return self.fenced != toggles

    def _extend(self, text: str) -> None:
        self.line = (self.line + text)[-CONTEXT:]
        if len(self._line_start) < CONTEXT:
            self._line_start = (self._line_start + text)[:CONTEXT]

    def reset(self) -> None:
        """Other prose begins."""
        self.line = self._line_start = ""
        self.fenced = False

    def open_quote(self, *, strict: bool = False) -> str | None:
        """The closing quote that is still owed at the end of the line, or None.

        `strict`: only words since the quote opened.
        """
        if self.fenced:
            return FENCE
        line, opened = self.line, -1
        for at, character in enumerate(line):
            if opened < 0:
                if character in _QUOTES and _opens(line, at, strict):
                    opened = at
            elif character == _closer(line[opened]) and _closes(line, at, strict=False):
                opened = -1
        if opened < 0 or (strict and not _WORDS.match(line[opened + 1 :])):
            return None
        return _closer(line[opened])


def closing(text: str, start: int, quote: str, *, strict: bool, final: bool) -> int | None:
    """Where the quotation closes, from `start` on: the position after its closing quote.

    What is quoted, just before `start`, is taken to end in no space. -1: the quotation does not
    close; None: more text decides. Looks at no more than `CONTEXT` characters.
    """
    bound = start + CONTEXT
    limit = min(len(text), bound)
    for at in range(start, limit):
        character = text[at]
        if quote == FENCE:
            if text.startswith(FENCE, at, bound):
                return at + len(FENCE)
            if strict and not (character.isspace() or FENCE.startswith(text[at:bound])):
                return -1
        elif character == quote and at + 1 == len(text) and not final:
            return None  # what follows says whether it closes or opens
        elif character == quote and _closes(text, at, strict, quoted=at == start):
            return at + 1
        elif _ends_quotation(text, at, strict) or (character == quote and _opens(text, at, strict)):
            return -1
    return None if limit == len(text) and limit < bound and not final else -1


def _ends_quotation(text: str, at: int, strict: bool) -> bool:
    if strict:
        return text[at] == "\n" or not _WORDS.match(text[at])
    return text.startswith("\n\n", at)


def _closer(quote: str) -> str:
    return _CLOSERS.get(quote, quote)


def _opens(text: str, at: int, strict: bool) -> bool:
    before = text[at - 1] if at else " "
    set_off = before.isspace() or before in "([" if strict else not before.isalnum()
    return set_off and not text[at + 1 : at + 2].isspace()


def _closes(text: str, at: int, strict: bool, *, quoted: bool = False) -> bool:
    """Whether a quote stands where one closes. `quoted`: what is quoted ends just before it."""
    before = text[at - 1] if at else " "
    after = text[at + 1 : at + 2]
    set_off = not after or after.isspace() or after in ".,;:!?)]" if strict else not after.isalnum()
    return set_off and (quoted or not before.isspace())
