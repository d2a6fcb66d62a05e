"""Real tools in every style: each compiles, takes what is valid, and keeps what the report says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.schema.engine import HeldArguments
from tests.schema.instances import Instances
from tests.schema.wire import STYLES, compact
from toolrail.arguments.types import ParameterTypes, json_text
from toolrail.schema.validation import validator

ROWS = Path(__file__).parent / "cases" / "real_tools.jsonl"
TOOLS = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
UNTYPED = {"qwen_xml", "minimax_xml", "glm_xml"}
NARROWER = {"narrowed", "implied_type"}
OTHERS = [pytest.param(s, marks=pytest.mark.exhaustive) for s in STYLES if s != "json"]
"""The other styles, which the fast run leaves out."""


def values_for(schema: Any, seed: int, count: int) -> list[dict[str, Any]]:
    made = Instances(schema, seed)
    values = [made.some() for _ in range(count)]
    values += [made.damaged(value) for value in values for _ in range(3)]
    return [value for value in values if isinstance(value, dict)]


def as_read(schema: Any, values: dict[str, Any], style: str) -> dict[str, Any]:
    """What the reader of a style that tells no types makes of the values on the wire."""
    if style not in UNTYPED:
        return values
    types = ParameterTypes(schema)
    return {
        name: json.loads(
            json_text(value if isinstance(value, str) else compact(value), types.of(name))
        )
        for name, value in values.items()
    }


def hold(tool: Any, style: str, seed: int, count: int) -> None:
    schema = tool["schema"]
    valid = Draft202012Validator(schema)
    check = validator(schema)
    held = HeldArguments(schema, style)
    report = held.normalised.report
    assert not report.over_budget
    # `format` is an annotation to the validator, and the grammar holds it.
    narrower = NARROWER & {note.reason for note in report.notes} or '"format"' in json.dumps(schema)
    for values in values_for(schema, seed, count):
        takes = held.takes(values)
        read = as_read(schema, values, style)
        is_valid = valid.is_valid(read)
        assert (not check(json.dumps(read))) == is_valid
        if takes and not is_valid:
            assert report.status != "enforced", (tool["tool"], style, values)
        if is_valid and read == values and not narrower and not has_whole_float(values):
            assert takes, (tool["tool"], style, values)


def has_whole_float(value: Any) -> bool:
    """A whole number written with a point, which the grammar does not write."""
    if isinstance(value, dict | list):
        return any(map(has_whole_float, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and value.is_integer()


@pytest.mark.exhaustive
@pytest.mark.parametrize("style", [style for style in STYLES if style != "minimax_m3_xml"])
def test_every_tool_holds_what_its_report_says(style: str) -> None:
    for seed, tool in enumerate(TOOLS):
        if style == "json" or seed % 5 == STYLES.index(style) % 5:
            hold(tool, style, seed, count=2)


@pytest.mark.slow
@pytest.mark.parametrize("style", [style for style in STYLES if style != "minimax_m3_xml"])
def test_every_tool_holds_what_its_report_says_at_length(style: str) -> None:
    for seed, tool in enumerate(TOOLS):
        hold(tool, style, seed, count=20)


@pytest.mark.parametrize("style", ["json", *OTHERS])
def test_every_tool_compiles(style: str) -> None:
    enforced = 0
    for tool in TOOLS:
        held = HeldArguments(tool["schema"], style)
        enforced += held.normalised.report.status == "enforced"
    # One tool has a format that nobody knows. Elsewhere white space may stand around a value that
    # is no plain string, or the wire tells a type that the grammar does not tie to the value.
    assert enforced >= (184 if style in ("json", "deepseek_xml", "deepseek_v4_1_xml") else 140)


def test_elements_take_valid_values_and_ask_for_what_is_required() -> None:
    for seed, tool in enumerate(TOOLS):
        held = HeldArguments(tool["schema"], "minimax_m3_xml")
        required = tool["schema"].get("required", [])
        valid = Draft202012Validator(tool["schema"])
        if held.normalised.report.status != "enforced" or "narrowed" in str(held.normalised.notes):
            continue
        made = Instances(tool["schema"], seed)
        for values in (made.some() for _ in range(3)):
            if valid.is_valid(values) and not has_whole_float(values):
                assert held.takes(values), (tool["tool"], values)
                for name in required:
                    assert not held.takes({k: v for k, v in values.items() if k != name})
