"""Searching a stream for markers without looking at any text twice.

`Markers` is a compiled set of literals; `Buffer` holds the unread text of one stream and hands it
out up to the next marker, holding back only what could still become one. Everything a parser
reads goes through a buffer, so its `work` counts the characters that were looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_MAX_GAP: Final = 256
"""Longest whitespace inside a literal; words that are further apart are none."""
_SPACE: Final = re.compile(r"\s*")
_GAP: Final = re.compile(rf"\s{{0,{_MAX_GAP}}}")


class Markers:
    """A fixed set of literal markers, compiled for search and hold-back. Empty ones are ignored.

    When one marker is the start of another the longer one wins, once it can no longer grow.
    """

    __slots__ = ("_heads", "_pattern", "_prefixes", "longest", "texts")

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts: Final = tuple(dict.fromkeys(t for t in texts if t))
        self.longest: Final = max(map(len, self.texts), default=0)
        self._prefixes = frozenset(t[:n] for t in self.texts for n in range(1, len(t)))
        self._heads = frozenset(t[0] for t in self.texts)
        by_length = sorted(self.texts, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, by_length))) if self.texts else None

    def search(self, text: str, start: int = 0) -> tuple[int, str] | None:
        """Position and text of the first marker at or after `start`; the longest there."""
        found = self._pattern.search(text, start) if self._pattern else None
        return (found.start(), found[0]) if found else None

    def held(self, text: str, start: int = 0) -> int:
        """Length of the longest suffix of `text[start:]` that is a proper prefix of a marker.

        That many characters must wait for the next delta; the rest is safe to emit.
        O(longest marker), independent of `len(text)`.
        """
        end = len(text)
        for at in range(max(start, end - self.longest + 1), end):
            if text[at] in self._heads and text[at:] in self._prefixes:
                return end - at
        return 0

    def grows(self, text: str) -> bool:
        """Whether `text` is a proper prefix of a marker."""
        return text in self._prefixes


@lru_cache(maxsize=1024)
def marker_set(*texts: str) -> Markers:
    """The markers `texts`, compiled once: parsers are made per choice, their sets are few."""
    return Markers(texts)


class Buffer:
    """The unread text of one stream.

    `keep()` starts a journal of what is consumed, so that a reader that proves wrong can `rewind`.
    Pushing costs O(unread + new), so readers leave unread only what is held back, a bounded piece;
    what they have only passed waits in an `Ahead`.
    """

    __slots__ = ("_journal", "_text", "consumed", "cut", "pos", "returns", "work")

    def __init__(self) -> None:
        self._text = ""
        self.pos = 0
        self.work = 0
        """Characters looked at so far: the cost, for tests."""
        self.consumed = 0
        """Characters taken so far, less those rewound."""
        self.cut = False
        """Whether the stream has ended because the engine stopped at a length limit."""
        self.returns = 0
        """How often text was given back."""
        self._journal: list[str] | None = None

    def push(self, text: str) -> None:
        """Append new text of the stream."""
        self._text = self._text[self.pos :] + text if self.pos < len(self._text) else text
        self.pos = 0
        self.work += len(self._text)

    def __len__(self) -> int:
        return len(self._text) - self.pos

    @property
    def text(self) -> str:
        """The unread text. Costs O(its length): for readers of what was held back."""
        unread = self._text[self.pos :]
        self.work += len(unread)
        return unread

    @property
    def window(self) -> str:
        """The whole window, of which the part from `pos` on is unread: for scanning in place."""
        return self._text

    def peek(self, count: int = 1) -> str:
        """Up to `count` unread characters, not consumed."""
        return self._text[self.pos : self.pos + count]

    def take(self, count: int) -> str:
        """The next `count` characters, consumed."""
        taken = self._text[self.pos : self.pos + count]
        self.pos += len(taken)
        self.work += len(taken)
        self.consumed += len(taken)
        if self._journal is not None and taken:
            self._journal.append(taken)
        return taken

    def skip_space(self) -> str:
        """Consume and return the whitespace that comes next."""
        found = _SPACE.match(self._text, self.pos)
        return self.take(found.end() - self.pos) if found and found.end() > self.pos else ""

    def until(self, markers: Markers, *, final: bool = False) -> tuple[str, str | None]:
        """The text (consumed) that certainly precedes the next marker, and the marker (unread).

        None: no marker yet; what could still become one stays unread, unless `final`. A marker
        that could still grow into a longer one, or into one that began before it, waits as well.
        """
        text, pos = self._text, self.pos
        hit = markers.search(text, pos)
        end = hit[0] if hit else len(text)
        marker = hit[1] if hit else None
        if not final:
            hold = len(text) - markers.held(text, pos)
            if hold < end or (hit and hold == end):
                end, marker = hold, None
        return self.take(end - pos), marker

    def literal(self, words: tuple[str, ...], *, final: bool = False) -> bool | None:
        """Consume `words` with whitespace before each. True: done. None: needs more text.

        False: something else comes; nothing was consumed. Whitespace that may go on before the
        first word is the caller's to pass: a gap of more than a few hundred characters is none.
        """
        text, at = self._text, self.pos
        for word in words:
            space = _GAP.match(text, at)
            at = space.end() if space else at
            if not text.startswith(word, at):
                rest = text[at:]
                self.work += len(rest) if len(rest) < len(word) else len(word)
                return None if not final and word.startswith(rest) else False
            at += len(word)
        self.take(at - self.pos)
        return True

    def keep(self) -> None:
        """Start a journal: from here on `rewind` can give consumed text back."""
        self._journal = []

    @property
    def kept(self) -> str:
        """What was consumed since `keep`. Costs its length."""
        text = "".join(self._journal or ())
        self._journal = [text] if self._journal is not None else None
        self.work += len(text)
        return text

    def rewind(self, offset: int = 0) -> None:
        """Make unread again what was consumed since `keep`, from `offset` on; ends the journal."""
        back = self.kept[offset:]
        self._journal = None
        self._text = back + self._text[self.pos :]
        self.pos = 0
        self.consumed -= len(back)

    def give_back(self, text: str) -> None:
        """Make `text`, which was consumed last and looked at, unread again."""
        self.returns += 1
        self.untake(text)

    def untake(self, text: str) -> None:
        """Make `text`, which was consumed last but only passed, unread again."""
        self._text = text + self._text[self.pos :]
        self.pos = 0
        self.work += len(text)
        self.consumed -= len(text)
        left = len(text)
        while left and self._journal:
            piece = self._journal.pop()
            if len(piece) > left:
                self._journal.append(piece[:-left])
            left -= min(left, len(piece))

    def forget(self) -> None:
        """End the journal; what was consumed is gone."""
        self._journal = None


class Ahead:
    """What a reader has passed on its way to something that may not come.

    Whitespace may go on for ever, and a reader that looked through it again at every feed would
    cost its square. So it is consumed as it comes, and given back once if that proves wrong.
    """

    __slots__ = ("_passed",)

    def __init__(self) -> None:
        self._passed: list[str] = []

    def take(self, buffer: Buffer, count: int) -> None:
        """Pass the next `count` characters."""
        taken = buffer.take(count)
        if taken:
            self._passed.append(taken)

    def skip_space(self, buffer: Buffer) -> None:
        """Pass the whitespace that comes next."""
        space = buffer.skip_space()
        if space:
            self._passed.append(space)

    def settle(self) -> None:
        """What was passed is consumed for good."""
        self._passed.clear()

    def give_back(self, buffer: Buffer) -> None:
        """What was passed is unread again."""
        if self._passed:
            buffer.untake("".join(self._passed))
            self._passed.clear()


def words(text: str) -> tuple[str, ...]:
    """The parts of a literal between its whitespace: how it is read tolerantly."""
    return tuple(text.split())
