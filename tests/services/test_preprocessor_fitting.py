"""A prompt that cannot fit is refused without being tokenized to the end. Ids are counted here."""

from __future__ import annotations

import pytest

from services.preprocessor.fitting import fitting_ids
from tests.services.preprocessing import card
from toolrail.errors import CallerError


class Words:
    """One id a word; counts what it was given."""

    def __init__(self) -> None:
        self.chars = 0

    async def encode(self, text: str) -> list[int]:
        self.chars += len(text)
        return [7] * len(text.split())


async def fitted(text: str, context: int, max_token_bytes: int = 64) -> tuple[list[int] | str, int]:
    words = Words()
    refused = None
    try:
        found = await fitting_ids(
            words, text, card(context_length=context), max_token_bytes=max_token_bytes
        )
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


async def test_bytes_alone_settle_a_text_longer_than_the_longest_tokens() -> None:
    message, chars = await fitted("x" * 6400, 100)
    assert chars == 0
    assert "at least 100 tokens" in message
    assert (await fitted("é" * 3200, 100))[1] == 0


async def test_a_long_text_is_counted_only_until_it_is_too_long() -> None:
    text = "word " * 2_000_000
    message, chars = await fitted(text, 100_000, max_token_bytes=1000)
    assert "more than" in message
    assert chars < len(text) / 10


async def test_a_long_text_of_long_tokens_may_fit() -> None:
    text = ("x" * 999 + " ") * 900
    found, chars = await fitted(text, 1000, max_token_bytes=1001)
    assert found == [7] * 900
    assert chars <= 2 * len(text)
