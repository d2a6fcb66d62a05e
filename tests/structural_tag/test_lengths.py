"""Lengths beside an excluded string: judged by the grammar engine against a plain count."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator

import pytest

from toolrail.grammar import accepts, compile_tag
from toolrail.structural_tag import tag
from toolrail.structural_tag.lengths import text_of_length

STOPS = {"</｜": "</｜DSML｜ parameter>", "<|close|>": "<|close|>argument<|sep|>"}
BOUNDS = [(0, 3), (1, None), (3, None), (1, 3), (2, 2), (1, 13), (8, 13)]


def texts(stop: str) -> Iterator[str]:
    """Every short text of what matters, and longer ones at random, runs of starts among them."""
    for length in range(5):
        yield from map("".join, itertools.product(f"{stop[:3]}a\n", repeat=length))
    random_ = random.Random(stop)
    for _ in range(400):
        yield "".join(random_.choice(f"<<{stop}aé東") for _ in range(random_.randint(0, 16)))
        yield "".join(random_.choice(("a", "é", stop[:-1], stop)) for _ in range(4))


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("stop", STOPS)
def test_both_are_held(stop: str, bounds: tuple[int, int | None]) -> None:
    shortest, longest = bounds
    found = text_of_length(stop, shortest, longest)
    assert found is not None
    format_ = tag("<p>", found, STOPS[stop])
    grammar = compile_tag(json.dumps({"type": "structural_tag", "format": format_}))
    for text in texts(stop):
        fits = shortest <= len(text) <= (longest or 1_000) and stop not in text
        taken = accepts(grammar, f"<p>{text}{STOPS[stop]}")
        if taken and not fits:
            assert in_a_run(text, stop, shortest), text
            assert stop not in text
        else:
            assert taken == fits, text


def in_a_run(text: str, stop: str, shortest: int) -> bool:
    """Whether the text goes on with starts of `stop` from `shortest` on: the one documented gap."""
    return all(starts_stop(text[:at], stop) for at in range(shortest, shortest + 3))


def starts_stop(text: str, stop: str) -> bool:
    return any(text.endswith(stop[:count]) for count in range(1, len(stop)))


@pytest.mark.parametrize("bounds", [(33, None), (9, 100), (100, 200)], ids=str)
def test_what_would_cost_too_much_is_not_held(bounds: tuple[int, int | None]) -> None:
    assert text_of_length("</｜", *bounds) is None
