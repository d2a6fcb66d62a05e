"""Spans of a text that are to be blacked out: put together, cut, and replaced."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from toolrail.redaction.builtin import MEDIA

_MEDIA_HEAD: Final = re.compile(rb"data:([A-Za-z0-9.+/-]{1,64})[^,]{0,400},")
NAME: Final = r"^[a-z][a-z0-9_]{0,31}\Z"
"""Of a rule."""
MAX_IN_TEXT: Final = 1000
"""Places that are replaced in one text; one that has more is blacked out whole."""


@dataclass(frozen=True, slots=True, order=True)
class Found:
    """A place in UTF-8 text, and the rule that found it: its number in order of weight."""

    start: int
    end: int
    rule: int


def placeholder(name: str) -> str:
    """What stands for something that was blacked out by the rule `name`."""
    return f"[redacted:{name}]"


def media_placeholder(data: bytes) -> str:
    """What stands for an image, a sound or a file: its type, size and hash.

    `data`: base64, as a data URL or bare. The hash is that of the bytes it stands for.
    """
    head = _MEDIA_HEAD.match(data)
    kind = head[1].decode().lower() if head else "base64"
    text = data[head.end() :] if head else data
    text = text.rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
    try:
        content = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        content = data
    digest = hashlib.sha256(content).hexdigest()
    return f"[redacted:{MEDIA} {kind} {len(content)} bytes sha256:{digest}]"


def placeholders(names: Iterable[str]) -> re.Pattern[bytes]:
    """What finds placeholders of the rules `names`, so that they are left alone."""
    known = "|".join(sorted(map(re.escape, names)))
    media = rf"{MEDIA} [a-z0-9.+/-]{{1,64}} [0-9]{{1,12}} bytes sha256:[0-9a-f]{{64}}"
    return re.compile(rf"\[redacted:(?:{known}|{media})\]".encode())


def merged(found: Iterable[Found]) -> list[Found]:
    """The same places without overlaps; what overlaps becomes one, of the weightiest rule."""
    out: list[Found] = []
    for place in sorted(found):
        last = out[-1] if out else None
        if last is not None and place.start < last.end:
            out[-1] = Found(last.start, max(last.end, place.end), min(last.rule, place.rule))
        elif last is not None and place.start == last.end and place.rule == last.rule:
            out[-1] = Found(last.start, place.end, last.rule)
        else:
            out.append(place)
    return out


def clipped(found: Iterable[Found], start: int, end: int) -> list[Found]:
    """The parts of places between `start` and `end`, counted from `start`."""
    return [
        Found(max(place.start, start) - start, min(place.end, end) - start, place.rule)
        for place in found
        if place.start < end and place.end > start
    ]


def replaced(data: bytes, found: Sequence[Found], names: Sequence[str]) -> Iterator[bytes]:
    """The pieces of `data` with placeholders for what was `found` (merged)."""
    at = 0
    for place in found:
        yield data[at : place.start]
        name = names[place.rule]
        hidden = data[place.start : place.end]
        yield (media_placeholder(hidden) if name == MEDIA else placeholder(name)).encode()
        at = place.end
    yield data[at:]
