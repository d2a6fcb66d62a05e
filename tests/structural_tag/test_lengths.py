"""Lengths beside an excluded string: judged by the grammar engine against a plain count."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator

import pytest

from toolrail.grammar import accepts, compile_tag
from toolrail.schema.counting import MAX_EXTRA, counting
from toolrail.structural_tag import tag
from toolrail.structural_tag.lengths import counted_text

STOPS = {
    "</｜": "</｜DSML｜ parameter>",
    "<|close|>": "<|close|>argument<|sep|>",
    "<|close|>argument<|sep|>": "<|close|>argument<|sep|>",
}
BOUNDS = {
    (0, 3): "longest",
    (0, 5_000): "longest",
    (1, None): "least",
    (3, None): "least",
    (1, 3): "between",
    (2, 2): "between",
    (1, 13): "both",
    (2, 16): "both",
    (8, 20): "both",
    (14, 20): "head",
    (40, None): "head",
}


def texts(stop: str) -> Iterator[str]:
    """Every short text of what matters, and longer ones at random, runs of starts among them."""
    for length in range(5):
        yield from map("".join, itertools.product(f"{stop[:3]}a\n", repeat=length))
    random_ = random.Random(stop)
    for _ in range(300):
        yield "".join(random_.choice(f"<<{stop}aé東") for _ in range(random_.randint(0, 18)))
        yield "".join(random_.choice(("a", "é", stop[:-1], stop)) for _ in range(4))
    yield from ("é" * 39, "é" * 40, "é" * 40 + "<p>", "a<" * 20, "x" * 5_000, "x" * 5_001)


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("stop", STOPS)
def test_both_are_held(stop: str, bounds: tuple[int, int | None]) -> None:
    shortest, longest = bounds
    guard = "</｜" if stop == "</｜" else "<|close|>"
    found = counting(guard, shortest, longest)
    assert found is not None
    if guard == "</｜":
        assert found.way == BOUNDS[bounds]
    format_ = tag("<p>", counted_text(found, stop, shortest, longest), STOPS[stop])
    grammar = compile_tag(json.dumps({"type": "structural_tag", "format": format_}))
    for text in texts(stop):
        fits = shortest <= len(text) <= (longest or 10_000) and stop not in text
        taken = accepts(grammar, f"<p>{text}{STOPS[stop]}")
        if fits and not taken:
            assert found.narrowed(stop, shortest)
            assert is_narrowed(found.way, text, stop, shortest), text
        else:
            assert taken == fits, text


def is_narrowed(way: str, text: str, stop: str, shortest: int) -> bool:
    """Whether the text does what the way to count says that values cannot do."""
    if way == "head":
        return stop[0] in text[:shortest]
    run = range(shortest, shortest + min(MAX_EXTRA, len(stop)))
    return way == "both" and all(starts_stop(text[:at], stop) for at in run)


def starts_stop(text: str, stop: str) -> bool:
    return any(text.endswith(stop[:count]) for count in range(1, len(stop)))


def test_what_would_cost_too_much_is_not_held() -> None:
    assert counting("</｜", 257, None) is None
    assert counting("</｜", 300, 400) is None
    longest = counting("</｜", 0, 2**40)
    assert longest is not None
    format_ = tag("", counted_text(longest, "</｜", 0, 2**40), "</｜>")
    assert accepts({"type": "structural_tag", "format": format_}, "abc</｜>")


@pytest.mark.parametrize("bounds", [(2, None), (2, 5), (2, 20), (14, 20)], ids=str)
def test_a_first_character_may_be_ruled_out(bounds: tuple[int, int | None]) -> None:
    shortest, longest = bounds
    found = counting("</at", shortest, longest)
    assert found is not None
    content = counted_text(found, "</at", shortest, longest, not_first=' \n"')
    grammar = {"type": "structural_tag", "format": tag("<p>", content, "</atem>")}
    long = "ab" if shortest == 2 else "ab" * 7
    assert accepts(grammar, f"<p>{long}</atem>")
    assert accepts(grammar, f'<p>{long}" \n</atem>')
    for first in ' \n"':
        assert not accepts(grammar, f"<p>{first}{long}</atem>")
