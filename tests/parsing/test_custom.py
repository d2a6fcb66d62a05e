"""Calls of custom tools: kept until they are complete, then the raw input."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrail import families
from toolrail.events import (
    ArgumentsDelta,
    Call,
    CallEnd,
    CallStart,
    Event,
    TextDelta,
    assemble,
)
from toolrail.parsing import ParseSpec
from toolrail.parsing.custom import CustomCalls, unwrapped, wrapped
from toolrail.tools import INPUT_SCHEMA, Tool

TOOLS = (Tool("run_python", INPUT_SCHEMA, kind="custom"), Tool("get_weather"))


def through(events: Iterable[Event]) -> list[Event]:
    stage = CustomCalls({"run_python"})
    return [out for event in events for out in stage.feed(event)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input": "print(1)\\n"}', "print(1)\n"),
        ('{"input":""}', ""),
        (' {"input"\n: "\\u00e9\\ud83d\\ude00"} ', "é😀"),
        # No such wrapper: all of it.
        ('{"code": "x"}', '{"code": "x"}'),
        ('{"input": "x", "more": 1}', '{"input": "x", "more": 1}'),
        ('{"input": 1}', '{"input": 1}'),
        ('{"input": "\\ud83d"}', '{"input": "\\ud83d"}'),
        ("{}", "{}"),
        ('"x"', '"x"'),
        ("print(1)", "print(1)"),
        ("", ""),
    ],
)
def test_the_input_is_what_the_wrapper_says_or_all_of_it(arguments: str, text: str) -> None:
    assert unwrapped(arguments) == text


@given(st.text())
def test_what_is_wrapped_is_unwrapped(text: str) -> None:
    assert unwrapped(wrapped(text)) == text


def test_a_custom_call_leaves_in_one_piece_when_it_is_complete() -> None:
    stage = CustomCalls({"run_python"})
    for event in (
        CallStart(0, "run_python", "wire"),
        ArgumentsDelta(0, '{"input": "pri'),
        ArgumentsDelta(0, 'nt(1)"}'),
    ):
        assert stage.feed(event) == []
    assert stage.feed(CallEnd(0)) == [
        CallStart(0, "run_python", "wire", custom=True),
        ArgumentsDelta(0, "print(1)"),
        CallEnd(0),
    ]


def test_a_cut_call_never_leaves_and_leaves_no_gap() -> None:
    events = [
        TextDelta("a"),
        CallStart(0, "run_python"),
        ArgumentsDelta(0, '{"input": "pri'),
        CallEnd(0, complete=False),
        CallStart(1, "get_weather"),
        ArgumentsDelta(1, "{}"),
        CallEnd(1),
    ]
    assert through(events) == [
        TextDelta("a"),
        CallStart(0, "get_weather"),
        ArgumentsDelta(0, "{}"),
        CallEnd(0),
    ]


def test_an_incomplete_call_of_a_function_stays_incomplete() -> None:
    events = [CallStart(0, "get_weather"), CallEnd(0, complete=False)]
    assert through(events) == events


WIRES = {
    "hermes": (
        'On it.<tool_call>\n{"name": "run_python", "arguments": {"input": "a\\n</b>"}}\n'
        '</tool_call>\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "x"}}\n'
        "</tool_call>"
    ),
    "qwen3_coder": (
        "On it.<tool_call>\n<function=run_python>\n<parameter=input>\na\n</b>\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=city>\nx\n"
        "</parameter>\n</function>\n</tool_call>"
    ),
}


@pytest.mark.parametrize("family", WIRES)
def test_the_assembled_turn_does_not_depend_on_the_cuts(family: str) -> None:
    spec = ParseSpec(tool_parser=family, tools=TOOLS)
    wire = WIRES[family]
    cuts = random.Random(7)
    for pieces in (
        [wire],
        list(wire),
        [wire[:40], wire[40:]],
        [wire[at : at + 7] for at in range(cuts.randrange(7), len(wire), 7)],
    ):
        first = wire[: len(wire) - sum(map(len, pieces))]
        parser = families.dialect(family, None).parser(spec)
        events = [
            event for piece in [first, *pieces] for event in parser.feed(piece)
        ] + parser.finish()
        turn = assemble(through(events))
        assert turn.content == "On it."
        assert [(call.name, call.arguments, call.custom) for call in turn.calls] == [
            ("run_python", "a\n</b>", True),
            ("get_weather", '{"city": "x"}', False),
        ]


def test_events_of_a_custom_call_survive_the_fold() -> None:
    turn = assemble(through([CallStart(0, "run_python"), CallEnd(0)]))
    assert turn.items == (Call("run_python", "", custom=True),)
