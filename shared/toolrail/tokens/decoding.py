"""How a tokenizer's ids become text, read from the `decoder` part of its `tokenizer.json`.

Three shapes cover what there is. Byte-level vocabularies (GPT-2 and most since): every id is bytes,
text is their UTF-8. Fallback vocabularies (sentencepiece: Llama 2, Mistral 7B, Gemma): every id is
text, or one byte of a character that the vocabulary lacks. Anything else can only be decoded by the
tokenizer itself, a window of ids at a time.

Source of the rules: huggingface/tokenizers v0.23, `tokenizers/src/decoders/` and
`pre_tokenizers/byte_level.rs`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast


@dataclass(frozen=True, slots=True)
class ByteLevel:
    """Ids are bytes; a full decode is the UTF-8 of all of them, invalid ones as U+FFFD."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """Ids are pieces of text or, when `byte_fallback`, single bytes written `<0xE2>`.

    Attributes:
        replacements: what each piece's text goes through, in order.
        byte_fallback: whether `<0xE2>` is a byte.
        strip: character taken off the start of the whole text.
        strip_count: how many of them at most.
        first: how the first piece differs from later ones: `drop` loses every `marker`, `bare`
            lacks the space that later ones begin with, `same` does not.
        marker: the word-start character that becomes a space, for `drop`.
    """

    replacements: tuple[tuple[str, str], ...] = ()
    byte_fallback: bool = False
    strip: str = ""
    strip_count: int = 0
    first: str = "same"
    marker: str = ""

    def text(self, token: str) -> str:
        """Text of `token` anywhere but at the start."""
        for pattern, content in self.replacements:
            token = token.replace(pattern, content)
        if self.first == "bare":
            return " " + token
        return token.replace(self.marker, " ") if self.marker else token

    def byte(self, token: str) -> int | None:
        """The byte that `token` stands for, or None when it is text."""
        if self.byte_fallback and _BYTE_TOKEN.fullmatch(token):
            return int(token[3:5], 16)
        return None

    def at_start(self, token: str) -> str:
        """Text of `token` when it is the first piece."""
        if self.first == "drop":
            return token.replace(self.marker, "")
        return token if self.first == "bare" else self.text(token)


@dataclass(frozen=True, slots=True)
class Opaque:
    """Only the tokenizer knows."""


Decoding: TypeAlias = ByteLevel | Fallback | Opaque

_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def decoding(decoder: object) -> Decoding:
    """The shape that `decoder` (the JSON value of `tokenizer.json`'s key) amounts to."""
    if decoder is None:
        return Fallback(first="bare")  # tokens are joined with spaces
    steps = _steps(decoder)
    kinds = [step.get("type") for step in steps]
    if kinds and kinds[0] == "ByteLevel" and set(kinds[1:]) <= {"Fuse"}:
        return ByteLevel()
    if kinds == ["Metaspace"]:
        return _metaspace(steps[0])
    return _sentencepiece(steps)


def _steps(decoder: object) -> list[Mapping[str, object]]:
    step = cast("Mapping[str, object]", decoder)
    if step.get("type") != "Sequence":
        return [step]
    steps: list[Mapping[str, object]] = []
    for inner in cast("Sequence[object]", step.get("decoders", ())):
        steps += _steps(inner)
    return steps


def _metaspace(step: Mapping[str, object]) -> Fallback:
    marker = str(step.get("replacement", "▁"))
    never = step.get("prepend_scheme") == "never"
    return Fallback(first="same" if never else "drop", marker=marker)


def _sentencepiece(steps: Sequence[Mapping[str, object]]) -> Decoding:
    """`Replace* ByteFallback? (Fuse Strip?)?`, the order every sentencepiece conversion writes."""
    rest = list(steps)
    replacements: list[tuple[str, str]] = []
    while rest and rest[0].get("type") == "Replace":
        pattern = cast("Mapping[str, object]", rest[0].get("pattern", {}))
        if not isinstance(text := pattern.get("String"), str):
            return Opaque()
        replacements.append((text, str(rest[0].get("content", ""))))
        del rest[0]
    byte_fallback = bool(rest) and rest[0].get("type") == "ByteFallback"
    if byte_fallback:
        del rest[0]
    strip, strip_count = "", 0
    match rest:
        case [] | [{"type": "Fuse"}]:
            pass
        case [
            {"type": "Fuse"},
            {"type": "Strip", "content": str(strip), "stop": 0, "start": int(n)},
        ]:
            strip_count = n
        case _:
            return Opaque()
    return Fallback(tuple(replacements), byte_fallback, strip, strip_count)


def _byte_of_character() -> dict[str, int]:
    """The printable stand-in of every byte, the other way round (GPT-2's `bytes_to_unicode`)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if chr(byte) not in table]
    return table | {chr(0x100 + offset): byte for offset, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _byte_of_character()


def byte_level_bytes(token: str) -> bytes:
    """Bytes of a byte-level token; one with any other character (an added token) is its UTF-8."""
    try:
        return bytes([_BYTE_OF_CHARACTER[character] for character in token])
    except KeyError:
        return token.encode()
