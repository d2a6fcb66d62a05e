"""gemma4, minimax_m3, pythonic: what streams under a tag, and what hostile text costs."""

from __future__ import annotations

import pytest

from tests.families.loading import events, parse
from toolrail.events import ArgumentsDelta, Call, CallEnd, CallStart, Text
from toolrail.families import dialect, stream_parser
from toolrail.parsing import ParseSpec
from toolrail.tools import Tool

FAMILIES = ("gemma4", "minimax_m3", "pythonic")
RUN = Tool("run", {"type": "object", "properties": {"cmd": {"type": "string"}}})
PING = Tool("ping", {"type": "object", "properties": {}})
TEXT = "a line of text, " * 20
NS = "]<]minimax[>["


def written(family: str) -> str:
    return dialect(family, None).render([Call("run", f'{{"cmd": "{TEXT}"}}')])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_held_string_streams(family: str) -> None:
    wire = written(family)
    begun = wire[: wire.index("a line") + 40]
    found = events(ParseSpec(family, tools=(RUN,), held=True), begun)
    assert [e.name for e in found if isinstance(e, CallStart)] == ["run"]
    sent = "".join(e.text for e in found if isinstance(e, ArgumentsDelta))
    assert sent.startswith('{"cmd": "a line of text, ')
    assert len(sent) > 40
    assert [e.complete for e in found if isinstance(e, CallEnd)] == [False]


def test_a_list_that_no_tag_holds_waits_for_its_end() -> None:
    spec = ParseSpec("pythonic", tools=(RUN,))
    parser = stream_parser(spec)
    wire = written("pythonic")
    assert parser.feed(wire[:-1]) == []
    assert [type(event) for event in parser.feed("]")][:1] == [CallStart]


def test_under_a_tag_only_the_exact_beginning_is_a_list() -> None:
    wire = "[ run(cmd='a')] and [run (cmd='b')]"
    held = parse(ParseSpec("pythonic", tools=(RUN,), held=True), wire)
    assert held.items == (Text(wire),)
    assert len(parse(ParseSpec("pythonic", tools=(RUN,)), wire).calls) == 2


HOSTILE = {
    "pythonic": [
        *("[ping(a=[", "[ping(a='", "[", "[ping(), ", "[ping(a={'x': ", "[ping(a='''", "[ping(a=("),
        *("[ping(a=\"[ping(a='", "[ping(a='\\N{", "<|python_start|>[ping(a='", "[ping(a='\\"),
        "[ping(a='" + "y" * 600 + "'] ",
    ],
    "gemma4": [
        *(
            "<|tool_call>call:ping{a:",
            '<|tool_call>call:ping{a:<|"|>x',
            "<|tool_call>call:ping{a:[[",
        ),
        *('<|"|>', '<|tool_call>call:ping{a:<|"|>x<|"|> y', "<|tool_call>call:ping{a:1,"),
    ],
    "minimax_m3": [
        *(NS, f"{NS}<a>", f'{NS}<invoke name="ping">{NS}<a>', f"{NS}</a>", f"{NS}<tool_call>"),
        *(f'{NS}<invoke name="ping">{NS}<a>x{NS}</a>', f'{NS}<invoke name="ping">oops '),
    ],
}


@pytest.mark.parametrize(
    ("family", "unit"), [(family, unit) for family, units in HOSTILE.items() for unit in units]
)
def test_hostile_text_costs_no_more_than_any(family: str, unit: str) -> None:
    text = unit * 200
    assert cost(family, text) <= 40 * len(text)  # what is not linear costs hundreds


def cost(family: str, text: str) -> int:
    parser = stream_parser(ParseSpec(family, tools=(PING,)))
    for at in range(0, len(text), 5):
        parser.feed(text[at : at + 5])
    parser.finish()
    return parser.work
