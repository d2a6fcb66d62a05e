"""Ids of a prompt, or the news that it cannot fit, without tokenizing megabytes to find out.

Three bounds, cheapest first. No token is longer than the longest of the vocabulary, so bytes alone
may settle it. A text far longer than the context is usual text only if it fits nowhere: its ids are
counted in slices until they are too many. What is left costs no more than the context is long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from toolrail.messages import ModelCard
from toolrail.openai.sampling import context_exceeded

_USUAL_BYTES_PER_TOKEN: Final = 6
"""Few prompts have more on average; with less, encoding all costs little more than counting."""

_SLICE_CHARS: Final = 32 << 10

_SEAM_TOKENS: Final = 16
"""What a cut may add to the ids of a slice, generously."""


class Encoder(Protocol):
    """The part of a tokenizer that is needed here."""

    async def encode(self, text: str) -> list[int]:
        """Ids of `text`."""
        ...


async def fitting_ids(
    tokenizer: Encoder, prompt: str, card: ModelCard, *, max_token_bytes: int
) -> list[int]:
    """Ids of `prompt`, which leave room for at least one token of output.

    Raises:
        CallerError: they do not.
    """
    size = len(prompt.encode())
    least = -(-size // max_token_bytes)
    if least >= card.context_length:
        raise context_exceeded(card, f"has at least {least:,} tokens")
    if size > card.context_length * _USUAL_BYTES_PER_TOKEN:
        await _count(tokenizer, prompt, card)
    ids = await tokenizer.encode(prompt)
    if len(ids) >= card.context_length:
        raise context_exceeded(card, f"has {len(ids):,} tokens")
    return ids


async def _count(tokenizer: Encoder, prompt: str, card: ModelCard) -> None:
    """Raises CallerError as soon as the slices counted so far are too many tokens."""
    counted = 0
    for piece in _slices(prompt):
        counted += max(0, len(await tokenizer.encode(piece)) - _SEAM_TOKENS)
        if counted >= card.context_length:
            raise context_exceeded(card, f"has more than {counted:,} tokens")


def _slices(text: str) -> Iterator[str]:
    """`text` in pieces, cut before a space where there is one, since tokens seldom cross it."""
    start = 0
    while start < len(text):
        end = start + _SLICE_CHARS
        if end < len(text):
            space = text.rfind(" ", start + _SLICE_CHARS // 2, end)
            end = space if space > start else end
        yield text[start:end]
        start = end
