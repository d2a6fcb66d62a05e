"""Arguments as literals with strings between delimiters, written on as JSON while they come.

`{city:<|"|>Paris<|"|>,days:3,o:{a:[1,true,null]}}`: keys are bare, the types are on the wire, and
whatever stands between two delimiters is data. Any other value is a number, true, false, null or,
if it is none of these, a bare string.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Final

from toolrail.arguments.json_value import Read
from toolrail.arguments.output import Output
from toolrail.arguments.types import json_kind, json_string
from toolrail.scan import Buffer, marker_set
from toolrail.syntax import NotationStyle

MAX_DEPTH: Final = 128
"""Containers inside each other; deeper ones are no arguments."""
_MAX_KEY: Final = 1_000
_CLOSERS: Final = {"{": "}", "[": "]"}


class _At(IntEnum):  # hashed for every piece of text, which an Enum does in Python
    OPEN = auto()
    KEY = auto()
    KEY_STRING = auto()
    COLON = auto()
    VALUE = auto()
    STRING = auto()
    BARE = auto()
    COMMA = auto()


class DelimitedArguments:
    """Reads one object of arguments and puts it out as JSON text.

    `breaks`: markers of calls, which no bare text contains. Trailing commas are tolerated. DONE:
    the object's own brace came. Amortised O(characters).
    """

    def __init__(self, style: NotationStyle, output: Output, breaks: tuple[str, ...]) -> None:
        self._output: Final = output
        self._quote: Final = style.values.quotes[0]
        self._string_end: Final = marker_set(self._quote)
        self._key_end: Final = marker_set(":", ",", "{", "}", "[", "]", self._quote, *breaks)
        self._bare_end: Final = marker_set(",", "}", "]", self._quote, *breaks)
        self._at = _At.OPEN
        self._stack: list[str] = []
        self._text: list[str] = []
        self._first = True  # no member or item yet in the innermost container

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        steps = {
            _At.OPEN: self._read_open,
            _At.KEY: self._read_key,
            _At.KEY_STRING: self._read_key_string,
            _At.COLON: self._read_colon,
            _At.VALUE: self._read_value,
            _At.STRING: self._read_string,
            _At.BARE: self._read_bare,
            _At.COMMA: self._read_comma,
        }
        while True:
            status = steps[self._at](buffer)
            if status is not None:
                return status

    def _read_open(self, buffer: Buffer) -> Read | None:
        buffer.skip_space()
        if not len(buffer):
            return Read.MORE
        if buffer.peek() != "{":
            return Read.BAD
        return self._open(buffer)

    def _open(self, buffer: Buffer) -> Read | None:
        if len(self._stack) == MAX_DEPTH:
            return Read.BAD
        bracket = buffer.take(1)
        self._output.arguments(bracket)
        self._stack.append(_CLOSERS[bracket])
        self._first = True
        self._at = _At.KEY if bracket == "{" else _At.VALUE
        return None

    def _close(self, buffer: Buffer) -> Read | None:
        buffer.take(1)
        self._output.arguments(self._stack.pop())
        self._first = False
        self._at = _At.COMMA
        return None if self._stack else Read.DONE

    def _separate(self) -> None:
        if not self._first:
            self._output.arguments(", ")
        self._first = False

    # --- keys ---

    def _read_key(self, buffer: Buffer) -> Read | None:
        if not self._text:
            buffer.skip_space()
        text, marker = buffer.until(self._key_end)
        if text:
            self._text.append(text)
        if self._too_long(buffer):
            return Read.BAD
        if marker is None:
            return Read.MORE
        key = "".join(self._text).strip()
        if marker == ":" and key:
            self._end_key(key)
        elif marker == "}" and not key:
            self._text = []
            return self._close(buffer)
        elif marker == self._quote and not key:
            buffer.take(len(marker))
            self._text = []
            self._at = _At.KEY_STRING
        else:
            return Read.BAD
        return None

    def _read_key_string(self, buffer: Buffer) -> Read | None:
        text, marker = buffer.until(self._string_end)
        self._text.append(text)
        if self._too_long(buffer):
            return Read.BAD
        if marker is None:
            return Read.MORE
        buffer.take(len(marker))
        self._end_key("".join(self._text))
        return None

    def _too_long(self, buffer: Buffer) -> bool:
        """Whether what was read is longer than a key may be; what is too much is unread again."""
        if sum(map(len, self._text)) <= _MAX_KEY:
            return False
        buffer.give_back("".join(self._text)[_MAX_KEY:])
        return True

    def _end_key(self, key: str) -> None:
        self._separate()
        self._output.arguments(json_string(key) + ": ")
        self._text = []
        self._at = _At.COLON

    def _read_colon(self, buffer: Buffer) -> Read | None:
        buffer.skip_space()
        if not len(buffer):
            return Read.MORE
        if buffer.peek() != ":":
            return Read.BAD
        buffer.take(1)
        self._at = _At.VALUE
        return None

    # --- values ---

    def _read_value(self, buffer: Buffer) -> Read | None:
        buffer.skip_space()
        ahead = buffer.peek(len(self._quote))
        if not ahead:
            return Read.MORE
        in_array = self._stack[-1] == "]"
        if ahead == self._quote:
            buffer.take(len(ahead))
            self._begin_value('"')
            self._at = _At.STRING
        elif self._quote.startswith(ahead):
            return Read.MORE
        elif ahead[0] in _CLOSERS:
            self._begin_value("")
            return self._open(buffer)
        elif in_array and ahead[0] == "]":
            return self._close(buffer)
        else:
            self._at = _At.BARE
        return None

    def _begin_value(self, opening: str) -> None:
        if self._stack[-1] == "]":
            self._separate()
        self._output.arguments(opening)

    def _read_string(self, buffer: Buffer) -> Read | None:
        text, marker = buffer.until(self._string_end)
        self._output.arguments(json_string(text)[1:-1])
        if marker is None:
            return Read.MORE
        buffer.take(len(marker))
        self._output.arguments('"')
        self._at = _At.COMMA
        return None

    def _read_bare(self, buffer: Buffer) -> Read | None:
        text, marker = buffer.until(self._bare_end)
        self._text.append(text)
        if marker is None:
            return Read.MORE
        if marker not in (",", self._stack[-1]):
            return Read.BAD
        value = "".join(self._text).strip()
        if self._stack[-1] == "]" and not value:
            return Read.BAD
        self._begin_value("")
        self._output.arguments(_bare(value))
        self._text = []
        self._at = _At.COMMA
        return None

    def _read_comma(self, buffer: Buffer) -> Read | None:
        buffer.skip_space()
        if not len(buffer):
            return Read.MORE
        if buffer.peek() == self._stack[-1]:
            return self._close(buffer)
        if buffer.peek() != ",":
            return Read.BAD
        buffer.take(1)
        self._at = _At.KEY if self._stack[-1] == "}" else _At.VALUE
        return None


def _bare(text: str) -> str:
    kind = json_kind(text) if text[:1] not in ('"', "") else None
    return text if kind is not None else json_string(text)
