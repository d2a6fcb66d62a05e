r"""Python literals read from a stream and written as JSON text: never evaluated, left to right.

`location="NYC", days=3, on=True, opts={'a': (1, None)}` → `{"location": "NYC", "days": 3, …}`

Strings have Python's prefixes, quotes and escapes; whole numbers keep their digits; tuples are
arrays. What is no literal (names, calls, operators, sets, placeholders) is refused at its first
wrong character. Nesting is bounded, and nothing is looked at twice.
"""

from __future__ import annotations

import re
from enum import IntEnum, auto
from typing import Final

from toolrail.arguments.json_value import Read
from toolrail.arguments.output import Output
from toolrail.arguments.python_scalars import PREFIXES, WORDS, PythonString, json_number
from toolrail.arguments.types import json_string
from toolrail.scan import Buffer

MAX_DEPTH: Final = 128
"""Containers inside each other; deeper ones are no arguments."""
NOT_IN_NAMES: Final = " \t\n\r=(),[]{}\"'`#:;<>|\\"
"""What the name of an argument cannot hold."""
_MAX_NAME: Final = 1_000
_NAME: Final = re.compile(rf"[^{re.escape(NOT_IN_NAMES)}\s]+")
_WORD: Final = re.compile(r"\w+")
_NUMBER_RUN: Final = re.compile(r"[\w.]+")
_CLOSERS: Final = {"[": "]", "(": ")", "{": "}"}


class _At(IntEnum):  # hashed for every piece of text, which an Enum does in Python
    NAME = auto()
    EQUALS = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    WORD = auto()
    NUMBER = auto()
    STRING = auto()
    JOIN = auto()  # after a string: another one is part of it
    AFTER = auto()


class _Frame:
    """An open container. `mark`: of a parenthesis, where its bracket goes if it is a tuple."""

    __slots__ = ("closer", "comma", "count", "mark")

    def __init__(self, closer: str, mark: int = -1) -> None:
        self.closer: Final = closer
        self.mark = mark
        self.count = 0
        self.comma = False


class KeywordArguments:
    """Reads the arguments of one call, its parenthesis opened, and puts them out as JSON text.

    DONE: the closing parenthesis came. Amortised O(characters).
    """

    def __init__(self, output: Output) -> None:
        self._output: Final = output
        self._pieces: Final[list[str]] = ["{"]
        self._stack: Final[list[_Frame]] = [_Frame("arguments")]
        self._tuples = 0  # open parentheses that may prove to be tuples
        self._at = _At.NAME
        self._token: list[str] = []
        self._length = 0
        self._sign = ""
        self._is_key = False
        self._string: PythonString | None = None

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        steps = {
            _At.NAME: self._read_name,
            _At.EQUALS: self._read_equals,
            _At.KEY: self._read_key,
            _At.COLON: self._read_colon,
            _At.VALUE: self._read_value,
            _At.WORD: self._read_word,
            _At.NUMBER: self._read_number,
            _At.STRING: self._read_string,
            _At.JOIN: self._read_join,
            _At.AFTER: self._read_after,
        }
        status: Read | None = None
        while status is None:
            status = steps[self._at](buffer)
        self._put_out()
        return status

    def _put_out(self) -> None:
        """Put out all that stands before the first parenthesis that may prove to be a tuple."""
        certain = len(self._pieces)
        if self._tuples:
            certain = next(frame.mark for frame in self._stack if frame.mark >= 0)
            for frame in self._stack:
                frame.mark -= certain if frame.mark >= 0 else 0
        self._output.arguments("".join(self._pieces[:certain]))
        del self._pieces[:certain]

    # --- names, keys and what stands between ---

    def _next(self, buffer: Buffer) -> str:
        """The next character that is no white space, or nothing yet."""
        buffer.skip_space()
        return buffer.peek()

    def _run(self, buffer: Buffer, pattern: re.Pattern[str]) -> bool:
        """Take what belongs to a token; False when more of it may come."""
        found = pattern.match(buffer.window, buffer.pos)
        if found:
            self._token.append(buffer.take(found.end() - buffer.pos))
            self._length += len(self._token[-1])
        return len(buffer) > 0

    def _taken(self) -> str:
        token = "".join(self._token)
        self._token, self._length = [], 0
        return token

    def _read_name(self, buffer: Buffer) -> Read | None:
        if not self._token and self._next(buffer) == ")":
            return self._close(buffer)
        more = self._run(buffer, _NAME)
        if self._length > _MAX_NAME:
            return Read.BAD
        if not more:
            return Read.MORE
        name = self._taken()
        if not name:
            return Read.BAD
        self._separate()
        self._pieces.append(json_string(name) + ": ")
        self._at = _At.EQUALS
        return None

    def _read_equals(self, buffer: Buffer) -> Read | None:
        return self._expect(buffer, "=")

    def _read_colon(self, buffer: Buffer) -> Read | None:
        return self._expect(buffer, ":")

    def _expect(self, buffer: Buffer, sign: str) -> Read | None:
        following = self._next(buffer)
        if following != sign:
            return Read.BAD if following else Read.MORE
        buffer.take(1)
        if sign == ":":
            self._pieces.append(": ")
        self._is_key = False
        self._at = _At.VALUE
        return None

    def _separate(self) -> None:
        frame = self._stack[-1]
        if frame.count:
            self._pieces.append(", ")
        frame.count += 1

    def _read_key(self, buffer: Buffer) -> Read | None:
        following = self._next(buffer)
        if not following:
            return Read.MORE
        if following == "}":
            return self._close(buffer)
        self._is_key = True
        return self._begin_scalar(following)

    def _read_after(self, buffer: Buffer) -> Read | None:
        following = self._next(buffer)
        frame = self._stack[-1]
        if not following:
            return Read.MORE
        if self._is_key:
            self._at = _At.COLON
            return None
        if following == frame.closer or (following == ")" and frame.closer == "arguments"):
            return self._close(buffer)
        if following != ",":
            return Read.BAD
        buffer.take(1)
        frame.comma = True
        begins = {"arguments": _At.NAME, "}": _At.KEY}
        self._at = begins.get(frame.closer, _At.VALUE)
        return None

    # --- values ---

    def _read_value(self, buffer: Buffer) -> Read | None:
        following = self._next(buffer)
        if not following:
            return Read.MORE
        frame = self._stack[-1]
        if following == frame.closer and following in "])":
            return self._close(buffer)
        if following in _CLOSERS:
            return self._open(buffer)
        return self._begin_scalar(following)

    def _begin_value(self) -> None:
        if self._stack[-1].closer in ("]", ")") or self._is_key:
            self._separate()

    def _open(self, buffer: Buffer) -> Read | None:
        if len(self._stack) > MAX_DEPTH:
            return Read.BAD
        self._begin_value()
        bracket = buffer.take(1)
        mark = len(self._pieces) if bracket == "(" else -1
        self._pieces.append("" if bracket == "(" else bracket)
        self._tuples += bracket == "("
        self._stack.append(_Frame(_CLOSERS[bracket], mark))
        self._at = _At.KEY if bracket == "{" else _At.VALUE
        return None

    def _close(self, buffer: Buffer) -> Read | None:
        frame = self._stack.pop()
        buffer.take(1)
        if frame.closer != ")":
            self._pieces.append("}" if frame.closer == "arguments" else frame.closer)
        elif frame.comma or not frame.count:
            self._pieces[frame.mark] = "["
            self._pieces.append("]")
        self._tuples -= frame.closer == ")"
        self._is_key = False
        self._at = _At.AFTER
        return None if self._stack else Read.DONE

    def _begin_scalar(self, following: str) -> Read | None:
        self._sign = ""
        if following in "'\"":
            self._begin_value()
            self._begin_string("")
            self._pieces.append('"')
        elif following.isalpha() or following == "_":
            self._at = _At.WORD
        elif following in "+-." or following.isdigit():
            self._at = _At.NUMBER
        else:
            return Read.BAD
        return None

    def _put_scalar(self, text: str) -> None:
        self._begin_value()
        self._pieces.append(json_string(text) if self._is_key else text)
        self._at = _At.AFTER

    def _read_word(self, buffer: Buffer) -> Read | None:
        """A constant, or the prefix of a string."""
        more = self._run(buffer, _WORD)
        if self._length > _MAX_NAME:
            return Read.BAD
        if not more:
            return Read.MORE
        word = self._taken()
        if buffer.peek() in ("'", '"') and word.lower() in PREFIXES:
            self._begin_value()
            self._begin_string(word.lower())
            self._pieces.append('"')
        elif word in WORDS:
            self._put_scalar(WORDS[word])
        else:
            return Read.BAD
        return None

    def _read_number(self, buffer: Buffer) -> Read | None:
        if not self._token:
            following = self._next(buffer)
            if following in ("+", "-") and not self._sign:
                self._sign = buffer.take(1)
                return None
        if not self._run(buffer, _NUMBER_RUN):
            return Read.MORE
        token = self._token
        exponent = bool(token) and token[-1][-1:] in ("e", "E") and token[0][:2].lower() != "0x"
        if exponent and buffer.peek() in ("+", "-"):
            self._token.append(buffer.take(1))
            return None
        number = json_number(self._taken())
        if number is None:
            return Read.BAD
        self._put_scalar(("-" if self._sign == "-" else "") + number)
        return None

    # --- strings ---

    def _begin_string(self, prefix: str) -> None:
        self._string = PythonString(prefix, self._pieces)
        self._at = _At.STRING

    def _read_string(self, buffer: Buffer) -> Read | None:
        assert self._string is not None
        status = self._string.read(buffer)
        if status is not Read.DONE:
            return status
        self._at = _At.JOIN
        return None

    def _read_join(self, buffer: Buffer) -> Read | None:
        following = self._next(buffer) if not self._token else "a"
        if following in ("'", '"'):
            self._begin_string("")
        elif following and (following.isalpha() or following == "_"):
            if not self._run(buffer, _WORD):
                return Read.MORE
            prefix = self._taken().lower()
            if prefix not in PREFIXES or buffer.peek() not in ("'", '"'):
                return Read.BAD
            self._begin_string(prefix)
        elif following:
            self._pieces.append('"')
            self._at = _At.AFTER
        else:
            return Read.MORE
        return None
