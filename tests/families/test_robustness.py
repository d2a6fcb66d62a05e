"""Any text at all: never an error, never a difference by cuts, nothing invented."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.families.loading import FAMILIES, cases, events, random_cuts
from tests.families.walking import TOOLS
from toolrail.events import CallEnd, CallStart, Reasoning, Text, assemble
from toolrail.families import dialect, family
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
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_any_text_is_read(name: str, data: st.DataObject) -> None:
    check_any_text(name, data)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_any_text_is_read_in_many(name: str, data: st.DataObject) -> None:
    check_any_text(name, data)


def check_any_text(name: str, data: st.DataObject) -> None:
    spec = data.draw(specs(name))
    parts = st.lists(st.sampled_from(fragments(name)) | st.text(max_size=5), max_size=12)
    text = "".join(data.draw(parts))
    check_text(spec, text, cut=data.draw(st.booleans()))


def check_text(spec: ParseSpec, text: str, *, cut: bool) -> None:
    """Fails unless it is read, the same however it is cut."""
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
