"""What real tool servers declare, under every family: nothing is refused, and what the report calls
enforced is enforced."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.openai.instances import instance, is_valid, wrong
from tests.openai.test_tags import HOLDING, constrained, spoken, written
from tests.schema.test_normalise import UNIONS, closed
from toolrail.events import Call, assemble
from toolrail.families import Dialect
from toolrail.grammar import Matcher, compile_tag
from toolrail.openai.constraint import Constraint
from toolrail.structural_tag import TagOptions

ROWS = (Path(__file__).parents[1] / "schema" / "cases" / "real_tools.jsonl").read_text()
SERVERS: dict[str, list[dict[str, Any]]] = {}
for row in map(json.loads, ROWS.splitlines()):
    SERVERS.setdefault(row["server"], []).append(
        {"name": row["tool"], "description": "A tool.", "inputSchema": row["schema"]}
    )
FAMILIES = {family.name: family for family in HOLDING}
SAMPLE = ("hermes", "qwen3_coder")
"""One family that writes JSON, one that writes elements; all of them in the slow test."""

LARGEST = max(SERVERS, key=lambda server: len(json.dumps(SERVERS[server])))


def offered(tool: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool["name"],
            "description": tool["description"],
            "parameters": tool["inputSchema"],
        },
    }


def named(family: Any, tool: dict[str, Any]) -> Constraint:
    choice = {"type": "function", "function": {"name": tool["name"]}}
    fields = {"tools": [offered(tool)], "tool_choice": choice}
    return constrained(spoken(family), fields, TagOptions())


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_the_longest_list_gets_a_tag(family: Any) -> None:
    fields = {"tools": [offered(tool) for tool in SERVERS[LARGEST]]}
    report = constrained(spoken(family), fields, TagOptions()).report
    assert report.held_by == "structural_tag"
    assert [tool.name for tool in report.tools if tool.free_because] == []


def holds(family: Any, server: str, samples: int) -> None:
    """What the tag of each tool accepts is what the tool declares, as the family's parser reads."""
    speaks = spoken(family)
    chooser = random.Random(server)
    for tool in SERVERS[server]:
        constraint = named(family, tool)
        compiled = compile_tag(constraint.guidance.structural_tag or "")
        schema = tool["inputSchema"]
        for _ in range(samples):
            good = instance(schema, chooser)
            if not is_valid(schema, good):
                continue
            text = written(speaks, call(tool, good))
            matcher = Matcher(compiled)
            assert matcher.accept_string(text), (tool["name"], good)
            assert matcher.can_end
            if constraint.report.tools[0].status != "enforced":
                continue
            for bad in list(wrong(schema, good))[: 2 * samples]:
                text = written(speaks, call(tool, bad))
                matcher = Matcher(compiled)
                if matcher.accept_string(text) and matcher.can_end:
                    found = read(speaks, constraint, text)
                    assert is_valid(schema, found), (tool["name"], bad)


def call(tool: dict[str, Any], arguments: Any) -> Call:
    return Call(tool["name"], json.dumps(arguments, ensure_ascii=False))


def read(speaks: Dialect, constraint: Constraint, text: str) -> Any:
    parser = speaks.parser(constraint.parse)
    (call,) = assemble([*parser.feed(text), *parser.finish()]).calls
    return json.loads(call.arguments)


@pytest.mark.exhaustive
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("family", SAMPLE)
def test_what_is_enforced_is_enforced(family: str, server: str) -> None:
    holds(FAMILIES[family], server, samples=1)


LOOKALIKES = (
    "words",
    "null",
    "true",
    "7",
    "2",
    "1.0",
    "1e3",
    "-1",
    '"x"',
    "[1]",
    '["x"]',
    '{"b": 1}',
)


@pytest.mark.parametrize("declared", [schema for schema, _ in UNIONS.values()], ids=UNIONS)
@pytest.mark.parametrize("family", ["qwen3_coder", "glm47", "minimax_m2"])
def test_text_that_may_be_a_string_is_held_or_reported(
    family: str, declared: dict[str, Any]
) -> None:
    speaks = spoken(FAMILIES[family])
    schema = closed({"a": declared})
    tool = {"name": "f", "description": "", "inputSchema": schema}
    constraint = named(FAMILIES[family], tool)
    compiled = compile_tag(constraint.guidance.structural_tag or "")
    broken: list[str] = []
    for text in LOOKALIKES:
        turn = written(speaks, call(tool, {"a": text}))
        matcher = Matcher(compiled)
        if matcher.accept_string(turn) and matcher.can_end:
            found = read(speaks, constraint, turn)
            broken += [] if is_valid(schema, found) else [text]
    relaxed = constraint.report.tools[0].status == "relaxed"
    assert relaxed or not broken
    if family == "qwen3_coder":  # others read a string where they may
        assert broken or not relaxed


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_in_every_family_what_is_enforced_is_enforced(family: Any, server: str) -> None:
    holds(family, server, samples=4)
    for choice in ("auto", "required"):
        fields = {"tools": [offered(tool) for tool in SERVERS[server]], "tool_choice": choice}
        report = constrained(spoken(family), fields, TagOptions()).report
        assert report.held_by == "structural_tag"
        assert [tool.name for tool in report.tools if tool.free_because] == []
