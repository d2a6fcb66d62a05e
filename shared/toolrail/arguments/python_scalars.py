r"""Python's strings, numbers and constants as JSON text: what `python_literal` is made of."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from toolrail.arguments.json_value import Read
from toolrail.arguments.types import json_string
from toolrail.scan import Buffer

WORDS: Final = {
    "True": "true",
    "False": "false",
    "None": "null",
    "true": "true",
    "false": "false",
    "null": "null",
}
PREFIXES: Final = frozenset({"r", "u", "b", "f", "br", "rb", "fr", "rf"})
"""What may stand before a string's quote, in lower case."""
_MAX_BASED: Final = 256
"""Longest number in another base than ten; such a one is converted."""
_WHOLE: Final = re.compile(r"(?:0(?:_?0)*|[1-9](?:_?[0-9])*)\Z")
_BASED: Final = re.compile(
    r"0(?:[xX](?:_?[0-9a-fA-F])+|[oO](?:_?[0-7])+|[bB](?:_?[01])+)\Z", re.ASCII
)
_FLOAT: Final = re.compile(
    r"([0-9](?:_?[0-9])*)?(\.([0-9](?:_?[0-9])*)?)?([eE][+-]?[0-9](?:_?[0-9])*)?\Z"
)
_SIMPLE: Final = {
    "\n": "",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_OCTAL: Final = re.compile(r"[0-7]{1,3}")
_HEX_DIGITS: Final = {"x": 2, "u": 4, "U": 8}
_HEX: Final = re.compile(r"[0-9a-fA-F]*")
_MAX_CHARACTER_NAME: Final = 100


class PythonString:
    """Reads one string, from its quote on, and adds its text to `pieces` as JSON escapes it.

    `prefix`: what stood before the quote, in lower case. DONE: its quote closed. BAD: a code that
    is none, or a placeholder. Amortised O(characters).
    """

    def __init__(self, prefix: str, pieces: list[str]) -> None:
        self._pieces: Final = pieces
        self._raw: Final = "r" in prefix
        self._bytes: Final = "b" in prefix
        self._formatted: Final = "f" in prefix
        self._quote = ""

    def read(self, buffer: Buffer) -> Read:
        """Read on."""
        status: Read | None = None
        while status is None:
            status = self._read_text(buffer) if self._quote else self._read_quote(buffer)
        return status

    def _read_quote(self, buffer: Buffer) -> Read | None:
        ahead = buffer.peek(3)
        if len(ahead) < 3 and ahead == ahead[:1] * len(ahead):
            return Read.MORE
        self._quote = ahead if ahead == ahead[0] * 3 else ahead[0]
        buffer.take(len(self._quote))
        return None

    def _read_text(self, buffer: Buffer) -> Read | None:
        quote = self._quote
        plain = _PLAIN[quote[0], self._formatted].match(buffer.window, buffer.pos)
        if plain:
            self._pieces.append(json_string(buffer.take(plain.end() - buffer.pos))[1:-1])
        following = buffer.peek()
        if not following:
            return Read.MORE
        if following == "\\":
            return self._read_escape(buffer)
        if following != quote[0]:
            return Read.BAD  # a placeholder of a formatted string
        ahead = buffer.peek(len(quote))
        if ahead == quote:
            buffer.take(len(quote))
            return Read.DONE
        if len(ahead) < len(quote) and ahead == quote[: len(ahead)]:
            return Read.MORE
        self._pieces.append(json_string(buffer.take(1))[1:-1])
        return None

    def _read_escape(self, buffer: Buffer) -> Read | None:
        """A backslash and what it stands for; None also where it is data."""
        letter = buffer.peek(2)[1:]
        if not letter:
            return Read.MORE
        coded = letter in "01234567x" or (letter in "uUN" and not self._bytes)
        if coded and not self._raw:
            return self._read_code(buffer, letter)
        plain = "\\" + letter
        return self._put(buffer, 2, plain if self._raw else _SIMPLE.get(letter, plain))

    def _read_code(self, buffer: Buffer, letter: str) -> Read | None:
        if letter in _HEX_DIGITS:
            return self._read_hex(buffer, letter)
        if letter == "N":
            return self._read_named(buffer)
        digits = _OCTAL.match(buffer.window, buffer.pos + 1)
        assert digits is not None
        if len(digits[0]) < 3 and digits.end() == len(buffer.window):
            return Read.MORE
        return self._put(buffer, 1 + len(digits[0]), chr(int(digits[0], 8)))

    def _read_hex(self, buffer: Buffer, letter: str) -> Read | None:
        wanted = _HEX_DIGITS[letter]
        digits = _HEX.match(buffer.window, buffer.pos + 2, buffer.pos + 2 + wanted)
        assert digits is not None
        if len(digits[0]) < wanted:
            return Read.MORE if digits.end() == len(buffer.window) else Read.BAD
        code = int(digits[0], 16)
        return self._put(buffer, 2 + wanted, chr(code)) if code <= 0x10FFFF else Read.BAD

    def _read_named(self, buffer: Buffer) -> Read | None:
        window, start = buffer.window, buffer.pos + 2
        end = window.find("}", start, start + _MAX_CHARACTER_NAME)
        if end < 0:
            may_come = len(window) - start < _MAX_CHARACTER_NAME
            return Read.MORE if may_come and window[start : start + 1] in ("", "{") else Read.BAD
        try:
            character = unicodedata.lookup(window[start + 1 : end])
        except KeyError:
            return Read.BAD
        return self._put(buffer, end + 1 - buffer.pos, character)

    def _put(self, buffer: Buffer, count: int, text: str) -> None:
        """Take the escape and write what it stands for."""
        buffer.take(count)
        surrogate = len(text) == 1 and "\ud800" <= text <= "\udfff"
        self._pieces.append(f"\\u{ord(text):04x}" if surrogate else json_string(text)[1:-1])


_PLAIN: Final = {
    (quote, formatted): re.compile(rf"[^\\{quote}{'{}' if formatted else ''}]+")
    for quote in "'\""
    for formatted in (False, True)
}


def json_number(token: str) -> str | None:
    """A number as JSON writes it, its digits kept; None: it is none."""
    if _WHOLE.match(token):
        return token.replace("_", "").lstrip("0") or "0"
    if _BASED.match(token):
        return str(int(token, 0)) if len(token) <= _MAX_BASED else None
    found = _FLOAT.match(token)
    if found is None:
        return None
    before, point, after, exponent = (part or "" for part in found.groups())
    if not (before or after) or not (point or exponent):
        return None
    whole = before.replace("_", "").lstrip("0") or "0"
    fraction = f".{after.replace('_', '') or '0'}" if point else ""
    return whole + fraction + exponent.replace("_", "")
