"""Ids of a prompt, or the news that it cannot fit, without tokenizing megabytes to find out.

Bytes alone may settle it: no token is longer than the longest of the vocabulary, and no prompt has
a dozen bytes a token all along, runs of blanks apart. A text longer than what usually fits is first
counted in slices, until it is too long. What is left costs no more than the context is long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from toolrail.messages import ModelCard
from toolrail.openai.sampling import context_exceeded

_MOST_BYTES_PER_TOKEN: Final = 12
"""On average over a prompt, beyond which it is not tokenized at all: prose has 4 to 5."""

_USUAL_BYTES_PER_TOKEN: Final = 8
"""With fewer, encoding all of it costs little more than counting."""

_SLICE_CHARS: Final = 32 << 10

_SEAM_TOKENS: Final = 16
"""What a cut may add to the ids of a slice, generously."""


class Encoder(Protocol):
    """The part of a tokenizer that is needed here."""

    async def encode(self, text: str) -> list[int]:
        """Ids of `text`."""
        ...


def max_prompt_bytes(card: ModelCard, max_token_bytes: int) -> int:
    """Longest prompt that is tokenized for `card`, whose longest token has `max_token_bytes`."""
    return card.context_length * min(max_token_bytes, _MOST_BYTES_PER_TOKEN)


async def fitting_ids(
    tokenizer: Encoder, prompt: str, card: ModelCard, *, max_bytes: int
) -> list[int]:
    """Ids of `prompt`, which leave room for at least one token of output.

    `max_bytes` is `max_prompt_bytes` of the card.

    Raises:
        CallerError: they do not.
    """
    size = len(prompt.encode())
    if size >= max_bytes:
        raise context_exceeded(card, f"has {size:,} bytes, of which {max_bytes:,} may fit")
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
