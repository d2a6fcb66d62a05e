"""Reasoning that a client carries for us: `encrypted_content` of a reasoning item.

Clients that keep the conversation themselves send this field back and drop the reasoning's text.
It is an encoding, not a cipher: the same text stands beside it in `content`, and whoever may write
messages may write reasoning, so there is nothing to hide and nothing to prove.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Final

_MARK: Final = "tr1."
MAX_TEXT_BYTES: Final = 8 << 20
"""A small text may unpack to a large one; larger ones than this fit no context."""


def seal(text: str) -> str:
    """`text` in a form that clients hand back as it is. O(len)."""
    return _MARK + base64.urlsafe_b64encode(zlib.compress(text.encode(), 1)).decode("ascii")


def unseal(sealed: str, max_bytes: int = MAX_TEXT_BYTES) -> str | None:
    """The text of a `seal`; None for what another service made. O(max_bytes).

    Raises:
        OverflowError: the text is longer than `max_bytes`.
    """
    if not sealed.startswith(_MARK):
        return None
    try:
        packed = base64.b64decode(sealed[len(_MARK) :], altchars=b"-_", validate=True)
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(packed, max_bytes)
        if len(data) == max_bytes and not unpacking.eof:
            raise OverflowError(f"more than {max_bytes} bytes")
        return data.decode() if unpacking.eof else None
    except (binascii.Error, ValueError, zlib.error):
        return None
