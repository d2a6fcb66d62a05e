"""The rendering is what the model's own chat template writes for the same turn.

`template_turns.jsonl` holds, for each turn, the text that the named template wrote.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.families.loading import parse, shown
from toolrail.events import Call, Item, Reasoning, Text
from toolrail.families import family
from toolrail.parsing import ParseSpec
from toolrail.tools import Tool

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "template_turns.jsonl").read_text("utf-8").splitlines()
]
TOOLS = (
    Tool("get_weather", {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}),
    Tool("ping"),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["family"])
def test_rendering_is_the_templates(row: dict) -> None:
    found = family(row["family"])
    items = [item(event, compact=row.get("compact", False)) for event in row["events"]]
    assert found.render(items) == row["text"]
    reasoning = found.reasoning_names[0] if found.reasoning_names else None
    spec = ParseSpec(row["family"], reasoning, TOOLS)
    assert list(shown(parse(spec, row["text"]))) == row["events"]


def item(event: dict, *, compact: bool) -> Item:
    """`compact`: the template writes arguments without spaces, which are the model's bytes."""
    match event["kind"]:
        case "reasoning":
            return Reasoning(event["text"])
        case "text":
            return Text(event["text"])
        case _:
            separators = (",", ":") if compact else None
            arguments = json.dumps(event["arguments"], ensure_ascii=False, separators=separators)
            return Call(event["name"], arguments, event.get("id"))
