"""What a stream costs, whatever it says: counted in characters looked at, never timed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.families.loading import FAMILIES, cases, events
from tests.families.test_robustness import fragments
from tests.families.walking import TOOLS
from toolrail.events import Call, Reasoning, Text, assemble
from toolrail.families import dialect, family, stream_parser
from toolrail.parsing import ParseSpec

LONG = 4_000
"""Characters of a run after which all that is bounded has been decided."""
MOST = 1_200
"""What a character may cost then: the longest piece of text that a parser may hold is less."""
MILLION = 1_000_000
GAP = 1_100
"""Whitespace longer than any piece of text that a parser may hold back."""
PER_CHARACTER = {"prose": 3, "value": 3, "calls": 12, "noise": 40}
"""What a character of a long stream costs at most; what is not linear costs thousands."""
_CALLS = [
    Call("get_weather", '{"city": "Paris", "days": 3}'),
    Call("nested", '{"options": {"text": "a", "n": 1}, "tags": ["x", "y"]}'),
]
_OPENINGS = (
    "",
    'He said "',
    "it's '",
    "say `",
    "```\n",
    "[",
    '[{"name": "ping", "arguments": {}}',
    "call: ",
)
_RUNS = (
    " ",
    "\n",
    "\t \n",
    "}",
    "]",
    "{",
    "[",
    '"',
    "'",
    "`",
    "\\",
    "<",
    "a",
    "} ",
    "[ ",
    " x",
    "()",
    ", ",
)


@pytest.mark.parametrize("name", FAMILIES)
def test_cost_is_linear(name: str) -> None:
    for size, most in PER_CHARACTER.items():
        text = stream(name, size, 3)
        assert work(name, text) <= most * len(text), size


def stream(name: str, size: str, n: int) -> str:
    """A text of `n` units of one kind of difficulty."""
    long = next(case for case in cases(name) if "long_value" in case.kinds).text
    if size == "prose":
        return "It's 5\" wide, says `he`. <a> [b] {c}\n" * (30 * n)
    if size == "value":
        middle = len(long) // 2
        return long[:middle] + long[middle : middle + 50] * (20 * n) + long[middle:]
    if size == "calls":
        return next(case for case in cases(name) if "one_call" in case.kinds).text * (8 * n)
    random_ = random.Random(name)
    pieces = [piece for piece in fragments(name) if len(piece) < 40]
    return "".join(random_.choice(pieces) for _ in range(200)) * n


def work(name: str, text: str) -> int:
    """Characters that the parser looked at, fed in small pieces."""
    parser = stream_parser(ParseSpec(name, reasoning_of(name), TOOLS))
    for at in range(0, len(text), 4):
        parser.feed(text[at : at + 4])
    parser.finish()
    return parser.work


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FAMILIES)
def test_the_end_of_a_long_run_costs_what_its_beginning_did(name: str) -> None:
    places, runs = positions(name), (*_RUNS, *own_runs(name))
    random_ = random.Random(name)
    for spec in specs(name):
        for place in random_.sample(places, 8):
            check_run(spec, place, " ")
            check_run(spec, place, random_.choice(runs))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_the_end_of_a_long_run_at_every_place(name: str) -> None:
    runs, random_ = (*_RUNS, *own_runs(name)), random.Random(name)
    for spec in specs(name):
        for place in positions(name):
            for run in (" ", *random_.sample(runs, 2)):
                check_run(spec, place, run)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_million_spaces_one_by_one(name: str) -> None:
    places = positions(name)
    for spec in list(specs(name))[::3]:
        place = random.Random(str(spec)).choice(places)
        parser = stream_parser(spec)
        parser.feed(place)
        for _ in range(MILLION):
            parser.feed(" ")
        parser.finish()
        assert parser.work <= 8 * MILLION, place


@pytest.mark.parametrize("name", FAMILIES)
def test_a_long_gap_is_read_alike_however_it_is_cut(name: str) -> None:
    random_ = random.Random(name)
    for spec in specs(name):
        text = random_.choice(turns(name))
        check_gap(spec, text, random_.randrange(len(text)), random_.choice(" \n"))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_any_long_gap_is_read_alike_however_it_is_cut(name: str) -> None:
    random_ = random.Random(name)
    for spec in specs(name):
        for text in turns(name):
            for at in range(0, len(text), 13):
                check_gap(spec, text, at, random_.choice(_RUNS))


def check_gap(spec: ParseSpec, text: str, at: int, run: str) -> None:
    """What stands between two parts of a turn, and what comes of it, does not depend on cuts."""
    gapped = text[:at] + (run * GAP)[:GAP] + text[at:]
    whole = assemble(events(spec, [gapped]))
    assert assemble(events(spec, gapped)) == whole, (spec, gapped)
    pieces = [gapped[:at], gapped[at : at + 1], gapped[at + 1 : at + GAP], gapped[at + GAP :]]
    assert assemble(events(spec, pieces)) == whole, (spec, gapped)


def check_run(spec: ParseSpec, place: str, run: str) -> None:
    """One more character of a run that has gone on for long costs a bounded amount."""
    parser = stream_parser(spec)
    parser.feed(place)
    parser.feed(run * (LONG // len(run)))
    before = parser.work
    tail = run * 8
    for character in tail:
        parser.feed(character)
    assert parser.work - before <= MOST * len(tail), (spec, place, run)
    parser.finish()


def specs(name: str) -> Iterator[ParseSpec]:
    """The machines of a family."""
    own = (name, reasoning_of(name))
    yield ParseSpec(*own, TOOLS)
    yield ParseSpec(*own, TOOLS, starts_in="reasoning")
    yield ParseSpec(*own, TOOLS, held=True)
    yield ParseSpec(*own, TOOLS, "required", mode="guided_json")
    yield ParseSpec(*own, TOOLS[:1], "named", mode="guided_json")


@cache
def positions(name: str) -> tuple[str, ...]:
    """Beginnings of turns up to every place between two words or signs, and other openings."""
    found = dict.fromkeys(_OPENINGS)
    for text in turns(name):
        found.update(dict.fromkeys(text[: m.end()] for m in re.finditer(r"\w+|\s+|[^\w\s]", text)))
    return tuple(found)


@cache
def turns(name: str) -> tuple[str, str]:
    """Two turns of a family, as they are written."""
    own = family(name)
    thought = [Reasoning("hm")] if own.reasoning is not None else []
    # Of `default` calls are the whole output.
    first = _CALLS if name == "default" else [*thought, Text("On it."), *_CALLS]
    return own.render(first), own.render([*_CALLS[:1], Call("ping", "{}")])


def own_runs(name: str) -> tuple[str, ...]:
    """Markers of a family, and markers that never end."""
    markers = [marker.text for marker in dialect(name, reasoning_of(name)).markers]
    return (*markers, *(marker[:-1] for marker in markers if len(marker) > 1))


def reasoning_of(name: str) -> str | None:
    """The reasoning parser that goes with a family."""
    return next(iter(family(name).reasoning_names), None)
