"""Any text at all: never an error, never a difference by cuts, nothing invented; in linear time."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.families.loading import FAMILIES, cases, events, random_cuts
from tests.families.walking import TOOLS
from toolrail.events import CallEnd, CallStart, Reasoning, Text, assemble
from toolrail.families import dialect, family, stream_parser
from toolrail.parsing import ParseSpec


@cache
def fragments(name: str) -> tuple[str, ...]:
    """Pieces of which the family's outputs are made, and pieces that disturb them."""
    own = family(name)
    pair = dialect(name, own.reasoning_names[0] if own.reasoning_names else None)
    markers = [marker.text for marker in pair.markers]
    pieces = [marker[:at] for marker in markers for at in (1, len(marker) // 2, len(marker) - 1)]
    wire = [case.text for case in cases(name) if case.kinds and len(case.text) < 300][:12]
    words = [
        '{"name": "ping", "arguments": {',
        "}}",
        "</parameter>",
        "get_weather",
        "ping>",
        "city",
    ]
    noise = [
        '"',
        "'",
        "`",
        "```",
        "\n",
        "\n\n",
        " ",
        "a",
        "é",
        "\u2028",
        "\x00",
        "{",
        "[",
        "]",
        ",",
    ]
    return tuple(dict.fromkeys([*markers, *pieces, *wire, *words, *noise]))


def specs(name: str) -> st.SearchStrategy[ParseSpec]:
    own = family(name)
    reasoning = own.reasoning_names[0] if own.reasoning_names else None
    return st.builds(
        ParseSpec,
        tool_parser=st.just(name),
        reasoning_parser=st.sampled_from([reasoning] if own.needs_reasoning else [reasoning, None]),
        tools=st.sampled_from([TOOLS, TOOLS[:1]]),
        tool_choice=st.sampled_from(["auto", "none", "required", "named"]),
        starts_in=st.sampled_from(["none", "reasoning", "response"]),
        mode=st.sampled_from(["native", "native", "guided_json"]),
    )


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_any_text_is_read(name: str, data: st.DataObject) -> None:
    spec = data.draw(specs(name))
    parts = st.lists(st.sampled_from(fragments(name)) | st.text(max_size=5), max_size=12)
    text = "".join(data.draw(parts))
    cut = data.draw(st.booleans())
    whole = events(spec, [text], cut=cut)
    turn = assemble(whole)
    assert turn == assemble(events(spec, text, cut=cut)), text
    assert turn == assemble(events(spec, random_cuts(text, text), cut=cut)), text
    starts = [event for event in whole if isinstance(event, CallStart)]
    ends = [event for event in whole if isinstance(event, CallEnd)]
    assert [e.index for e in starts] == [e.index for e in ends] == list(range(len(starts)))
    for call in turn.calls:
        assert isinstance(json.loads(call.arguments), dict), text
    if spec.tool_choice == "none":
        assert not starts
    shown = "".join(item.text for item in turn.items if isinstance(item, (Text, Reasoning)))
    assert is_subsequence(shown.replace("\n", ""), text), (text, shown)


def is_subsequence(part: str, whole: str) -> bool:
    """Whether `part` is `whole` with characters left out."""
    rest = iter(whole)
    return all(character in rest for character in part)


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(text=st.text(st.characters(exclude_characters="<[{(|]◁f", exclude_categories=["Cs"])))
def test_text_without_markup_is_text(name: str, text: str) -> None:
    own = family(name)
    reasoning = own.reasoning_names[0] if own.needs_reasoning else None
    turn = assemble(events(ParseSpec(name, reasoning, TOOLS, starts_in="response"), text))
    assert (turn.content or "") == text


@pytest.mark.parametrize("size", ["prose", "value", "calls", "noise"])
@pytest.mark.parametrize("name", FAMILIES)
def test_cost_is_linear(name: str, size: str) -> None:
    base, larger = (work(name, stream(name, size, n)) for n in (1, 4))
    assert larger <= 4.5 * base + 2_000


def stream(name: str, size: str, n: int) -> str:
    """A text of `n` units of one kind of difficulty."""
    long = next(case for case in cases(name) if "long_value" in case.kinds).text
    if size == "prose":
        return "It's 5\" wide, says `he`. <a> [b] {c}\n" * (60 * n)
    if size == "value":
        middle = len(long) // 2
        return long[:middle] + long[middle : middle + 50] * (40 * n) + long[middle:]
    if size == "calls":
        return next(case for case in cases(name) if "one_call" in case.kinds).text * (15 * n)
    random_ = random.Random(name)
    pieces = [piece for piece in fragments(name) if len(piece) < 40]
    return "".join(random_.choice(pieces) for _ in range(400)) * n


def work(name: str, text: str) -> int:
    """Characters that the parser looked at, fed in small pieces."""
    own = family(name)
    reasoning = own.reasoning_names[0] if own.reasoning_names else None
    parser = stream_parser(ParseSpec(name, reasoning, TOOLS))
    for at in range(0, len(text), 4):
        parser.feed(text[at : at + 4])
    parser.finish()
    return parser.work
