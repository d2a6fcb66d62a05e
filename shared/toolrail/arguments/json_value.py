"""A JSON value read from a stream: passed through verbatim, its end known, anything else refused.

Not `json.loads` at the end: a value must be streamed as it comes, must keep its bytes (digits,
key order, escapes) and must be refused at the first character that no JSON could have, so that a
call that breaks off does not swallow what follows.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from toolrail.scan import Buffer

_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]+')
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_SCALAR: Final = re.compile(r"[-+.0-9A-Za-z]+")
_VALID_SCALAR: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_LITERALS: Final = frozenset({"true", "false", "null"})
_SHORT_ESCAPES: Final = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Read(Enum):
    """What a reader says after it has read all it could."""

    MORE = auto()
    """More text is needed."""
    DONE = auto()
    """What it reads is complete; the buffer stands right after it."""
    BAD = auto()
    """What comes cannot be what it reads; the buffer stands before the offending character."""


class _Expect(Enum):
    VALUE = auto()
    VALUE_OR_END = auto()
    KEY = auto()
    KEY_OR_END = auto()
    COLON = auto()
    COMMA_OR_END = auto()


def control_escape(character: str) -> str:
    """A control character as JSON writes it inside a string."""
    return _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04x}"


class JsonValue:
    """Reads one JSON value.

    `read` returns what was read, as JSON text: the bytes of the stream, except that raw control
    characters inside strings (which models write and JSON forbids) become escapes. `first` is the
    value's first character once known. Amortised O(characters).
    """

    __slots__ = ("_escape", "_expect", "_in_string", "_scalar", "_stack", "first", "status")

    def __init__(self) -> None:
        self.status = Read.MORE
        self.first = ""
        self._expect = _Expect.VALUE
        self._stack: list[str] = []
        self._in_string = False
        self._escape = 0  # 0: none; -1: after a backslash; 1 to 4: hex digits to come
        self._scalar: list[str] | None = None

    def read(self, buffer: Buffer, *, final: bool = False) -> str:
        """What could be read of the value, consumed. Sets `status`."""
        text, start = buffer.window, buffer.pos
        at, mark = start, start
        out: list[str] = []
        while at < len(text) and self.status is Read.MORE:
            if self._scalar is not None:
                at = self._read_scalar(text, at)
            elif not self._in_string:
                at = self._read_structure(text, at)
            elif self._escape:
                at = self._read_escape(text, at)
            else:
                plain = _PLAIN.match(text, at)
                at = plain.end() if plain else at
                if at < len(text) and text[at] < " ":
                    out += (text[mark:at], control_escape(text[at]))
                    at += 1
                    mark = at
                elif at < len(text):
                    at = self._read_string_edge(text, at)
        out.append(text[mark:at])
        buffer.take(at - start)
        if final and self._scalar is not None and self.status is Read.MORE:
            self._end_scalar()
        return "".join(out)

    def _read_string_edge(self, text: str, at: int) -> int:
        if text[at] == "\\":
            self._escape = -1
        else:
            self._in_string = False
            self._after_string()
        return at + 1

    def _after_string(self) -> None:
        if self._expect is _Expect.COLON:
            return
        self._end_value()

    def _read_escape(self, text: str, at: int) -> int:
        character = text[at]
        if self._escape > 0:
            if character not in "0123456789abcdefABCDEF":
                self.status = Read.BAD
                return at
            self._escape -= 1
        elif character == "u":
            self._escape = 4
        elif character in '"\\/bfnrt':
            self._escape = 0
        else:
            self.status = Read.BAD
            return at
        return at + 1

    def _read_scalar(self, text: str, at: int) -> int:
        assert self._scalar is not None
        run = _SCALAR.match(text, at)
        if run:
            self._scalar.append(run[0])
            at = run.end()
        if at < len(text):
            self._end_scalar()
        return at

    def _end_scalar(self) -> None:
        scalar = "".join(self._scalar or ())
        self._scalar = None
        if scalar in _LITERALS or _VALID_SCALAR.match(scalar):
            self._end_value()
        else:
            self.status = Read.BAD

    def _end_value(self) -> None:
        if self._stack:
            self._expect = _Expect.COMMA_OR_END
        else:
            self.status = Read.DONE

    def _read_structure(self, text: str, at: int) -> int:
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        if at == len(text):
            return at
        character = text[at]
        if not self.first:
            self.first = character
        match self._expect:
            case _Expect.VALUE | _Expect.VALUE_OR_END:
                return self._read_value_start(character, at)
            case _Expect.KEY | _Expect.KEY_OR_END:
                if character == '"':
                    self._in_string = True
                    self._expect = _Expect.COLON
                elif not (character == "}" and self._expect is _Expect.KEY_OR_END):
                    self.status = Read.BAD
                    return at
                else:
                    self._stack.pop()
                    self._end_value()
            case _Expect.COLON:
                if character != ":":
                    self.status = Read.BAD
                    return at
                self._expect = _Expect.VALUE
            case _Expect.COMMA_OR_END:
                return self._read_comma_or_end(character, at)
        return at + 1

    def _read_value_start(self, character: str, at: int) -> int:
        if character == '"':
            self._in_string = True
        elif character == "{":
            self._stack.append("}")
            self._expect = _Expect.KEY_OR_END
        elif character == "[":
            self._stack.append("]")
            self._expect = _Expect.VALUE_OR_END
        elif character == "]" and self._expect is _Expect.VALUE_OR_END:
            self._stack.pop()
            self._end_value()
        elif character == "-" or (character.isalnum() and character.isascii()):
            self._scalar = []
            return at
        else:
            self.status = Read.BAD
            return at
        return at + 1

    def _read_comma_or_end(self, character: str, at: int) -> int:
        if character == ",":
            self._expect = _Expect.KEY if self._stack[-1] == "}" else _Expect.VALUE
        elif character == self._stack[-1]:
            self._stack.pop()
            self._end_value()
        else:
            self.status = Read.BAD
            return at
        return at + 1


class JsonProbe:
    """Tells when a text that is still coming can no longer be one JSON value.

    `firsts`: the characters with which a value that counts may begin. A raw control character
    inside a string makes it none. Amortised O(characters).
    """

    __slots__ = ("_buffer", "_failed", "_firsts", "_value")

    def __init__(self, firsts: str = '{["-0123456789tfn') -> None:
        self._firsts: Final = firsts
        self._buffer: Final = Buffer()
        self._value: Final = JsonValue()
        self._failed = False

    def fails(self, text: str) -> bool:
        """Whether the text so far, `text` being its next piece, begins no JSON value."""
        buffer, value = self._buffer, self._value
        buffer.push(text)
        if not value.first:
            buffer.skip_space()
            self._failed = buffer.peek() not in self._firsts
        if not self._failed:
            before = buffer.consumed
            read = value.read(buffer)
            self._failed = len(read) != buffer.consumed - before
            buffer.skip_space()
        # What a value that is complete, or none, leaves unread is not part of one.
        return self._failed or len(buffer) > 0
