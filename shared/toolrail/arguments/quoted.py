"""A call that an argument quotes whole: its closers are data, not the end of the argument.

Documentation and code about a format are written in that format. Only a well-formed call from its
opener to its closer is believed to be quoted; an opener alone proves nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

_HEADER: Final = re.compile(r"[^<>\"']{1,256}\"?>\s*\Z")
_MAX_HEADER: Final = 300
"""Longest text after a quoted opener that is still taken for the rest of a header."""


@dataclass(frozen=True, slots=True)
class CallTags:
    """The markers of a call with its parameters, as a value may quote them."""

    open: str
    close: str
    parameter: str
    parameter_close: str

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return (self.open, self.close, self.parameter, self.parameter_close)


class _At(Enum):
    OUTSIDE = auto()
    HEADER = auto()  # after a call's opener
    VALUE = auto()  # inside a parameter
    BETWEEN = auto()  # after a parameter


class QuotedCall:
    """Follows a value marker by marker. Amortised O(characters); keeps no more than a header."""

    __slots__ = ("_at", "_tags", "_text")

    def __init__(self, tags: CallTags) -> None:
        self._tags: Final = tags
        self._at = _At.OUTSIDE
        self._text = ""

    @property
    def over(self) -> bool:
        """Whether no quoted call is open (any more)."""
        return self._at is _At.OUTSIDE

    def add(self, text: str) -> None:
        """Text without markers comes next."""
        if self._at is _At.HEADER:
            self._text += text
            if len(self._text) > _MAX_HEADER:
                self._at = _At.OUTSIDE
        elif self._at is _At.BETWEEN and text and not text.isspace():
            self._at = _At.OUTSIDE

    def closes_parameter(self) -> bool:
        """A parameter's closer comes next: whether it is of a parameter of the quoted call."""
        own = self._at is _At.VALUE
        self._at = _At.BETWEEN if own else _At.OUTSIDE
        return own

    def see(self, marker: str) -> bool:
        """Another marker comes next: whether the quoted call ended whole with it."""
        tags, at = self._tags, self._at
        if at is _At.VALUE:
            return False
        header = at is _At.HEADER and _HEADER.match(self._text) is not None
        within = header or at is _At.BETWEEN
        self._text = ""
        if marker == tags.open:
            self._at = _At.HEADER
        else:
            self._at = _At.VALUE if within and marker == tags.parameter else _At.OUTSIDE
        return within and marker == tags.close
