"""Logprobs as clients see them: token text and bytes in place of ids."""

from __future__ import annotations

from toolrail.messages import TokenLogprob, VisibleLogprob
from toolrail.tokens import Tokenizer


def visible(entry: TokenLogprob, tokenizer: Tokenizer, top: int) -> VisibleLogprob:
    """`entry` with the `top` best alternatives; the text of half a character is U+FFFD."""
    data = tokenizer.bytes_of(entry.token_id)
    alternatives: list[tuple[str, float, bytes]] = []
    for other in entry.top[:top]:
        other_data = tokenizer.bytes_of(other.token_id)
        alternatives.append((_text(other_data), other.logprob, other_data))
    return VisibleLogprob(_text(data), entry.logprob, data, tuple(alternatives))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
