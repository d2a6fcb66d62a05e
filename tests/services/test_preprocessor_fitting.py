"""A prompt that cannot fit is refused without being tokenized to the end. Ids are counted here."""

from __future__ import annotations

import pytest

from services.preprocessor.fitting import fitting_ids, max_prompt_bytes
from tests.services.preprocessing import card
from toolrail.errors import CallerError


class Words:
    """One id a word; counts what it was given."""

    def __init__(self) -> None:
        self.chars = 0

    async def encode(self, text: str) -> list[int]:
        self.chars += len(text)
        return [7] * len(text.split())


async def fitted(text: str, context: int) -> tuple[list[int] | str, int]:
    """Ids or the refusal, and how many characters were tokenized for it."""
    words = Words()
    refused = None
    try:
        made = card(context_length=context)
        most = max_prompt_bytes(made, max_token_bytes=64)
        found = await fitting_ids(words, text, made, max_bytes=most)
    except CallerError as error:
        refused = error
    if refused is None:
        return found, words.chars
    assert (refused.status, refused.param) == (400, "messages")
    assert refused.code == "context_length_exceeded"
    return refused.message, words.chars


pytestmark = pytest.mark.anyio


async def test_what_fits_is_encoded_once() -> None:
    assert await fitted("a " * 99, 100) == ([7] * 99, 198)


async def test_what_fills_the_context_leaves_no_room() -> None:
    message, _ = await fitted("a " * 100, 100)
    assert "has 100 tokens" in message


async def test_bytes_alone_settle_a_text_longer_than_any_that_fits() -> None:
    message, chars = await fitted("x" * 1200, 100)
    assert chars == 0
    assert "1,200 bytes" in message
    assert (await fitted("é" * 600, 100))[1] == 0
    assert max_prompt_bytes(card(context_length=100), max_token_bytes=3) == 300


async def test_a_long_text_is_counted_only_until_it_is_too_long() -> None:
    text = "word " * 220_000
    message, chars = await fitted(text, 100_000)
    assert "more than" in message
    assert chars < len(text) / 1.8


async def test_a_long_text_of_long_tokens_may_fit() -> None:
    text = ("x" * 9 + " ") * 90_000
    found, chars = await fitted(text, 100_000)
    assert found == [7] * 90_000
    assert chars <= 2 * len(text)
