"""Server-sent events: how JSON is put on one line of a stream, for every API alike."""

from __future__ import annotations

import re
from typing import Final

import msgspec

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment, which every client skips."""

DONE: Final = b"data: [DONE]\n\n"

_LINE_BREAKS: Final = re.compile(rb"\xc2\x85|\xe2\x80[\xa8\xa9]")
_ESCAPED: Final = {
    b"\xc2\x85": b"\\u0085",
    b"\xe2\x80\xa8": b"\\u2028",
    b"\xe2\x80\xa9": b"\\u2029",
}

_encode_string = msgspec.json.Encoder().encode


def json_string(text: str) -> bytes:
    """`text` as a JSON string that no client takes for several lines. O(len).

    JSON allows U+0085, U+2028 and U+2029 as they are, but clients that split a stream with
    Python's `str.splitlines` would cut the event there.
    """
    data = _encode_string(text)
    if text.isascii():
        return data
    return one_line(data)


def one_line(data: bytes) -> bytes:
    """JSON text that no client takes for several lines."""
    return _LINE_BREAKS.sub(lambda match: _ESCAPED[match[0]], data)


def data_event(data: bytes) -> bytes:
    """JSON text as an event without a name."""
    return b"data: " + one_line(data) + b"\n\n"


def named_event(name: bytes, data: bytes) -> bytes:
    """JSON text as an event with a name."""
    return b"event: " + name + b"\ndata: " + one_line(data) + b"\n\n"
