"""Validation after generation: right, bounded, and honest about what it cannot judge."""

from __future__ import annotations

import json
import sys
from types import FrameType
from typing import Any

import pytest

from toolrail.schema.judging import MAX_VIOLATIONS
from toolrail.schema.validation import Violation, validator

STRING = {"type": "string"}


def violations(schema: object, value: Any) -> list[Violation]:
    return validator(schema)(json.dumps(value))


def test_a_violation_names_the_place_and_the_keyword_and_not_the_value() -> None:
    schema = {"properties": {"a/b": {"items": {"type": "string", "maxLength": 3}}}}
    found = violations(schema, {"a/b": ["ok", "secret"]})
    assert found == [Violation("#/a~1b/1", "maxLength", "is too long")]


@pytest.mark.parametrize(
    "text", ["", "{", '{"a": 1', "[1,]", "NaN", '{"a": Infinity}', "[" * 100_000, "'a'", "{} x"]
)
def test_what_is_not_json_is_one_violation(text: str) -> None:
    assert validator(True)(text) == [Violation("#", "", "is not JSON")]


def test_a_name_that_comes_twice_is_a_violation() -> None:
    found = validator({"type": "object"})('{"a": {"b": 1, "b": 2}}')
    assert [violation.message for violation in found] == ["names 'b' twice in one object"]


def test_no_schema_means_any_object() -> None:
    assert violations(None, {"a": 1}) == []
    assert violations(None, [1]) != []


@pytest.mark.parametrize(
    ("schema", "value", "keywords"),
    [
        ({"type": "string", "nullable": True}, None, []),
        ({"type": "any"}, 3, []),
        ({"minimum": 1, "exclusiveMinimum": True}, 1, ["minimum"]),
        ({"items": [STRING], "additionalItems": False}, ["a", 1], [""]),
        ({"dependencies": {"a": ["b"]}}, {"a": 1}, ["dependencies"]),
        ({"multipleOf": 0.01}, 4.35, []),
        ({"multipleOf": 0.01}, 4.355, ["multipleOf"]),
        ({"const": 1.0}, 1, []),
        ({"const": 1}, True, ["const"]),
        ({"enum": [{"a": 1, "b": 2}]}, {"b": 2, "a": 1.0}, []),
        ({"uniqueItems": True}, [1, 1.0], ["uniqueItems"]),
        ({"uniqueItems": True}, [1, True], []),
        ({"format": "date"}, "no date", []),
        ({"maxLength": 1}, "😀", []),
        ({"required": ["a", "b"]}, {}, ["required", "required"]),
    ],
)
def test_forms(schema: object, value: Any, keywords: list[str]) -> None:
    assert [violation.keyword for violation in violations(schema, value)] == keywords


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "http://example.test/x"}, 1),
        ({"not": {"$ref": "http://example.test/x"}}, 1),
        ({"oneOf": [True, {"$ref": "http://example.test/x"}]}, 1),
        ({"pattern": "\\bx"}, "y"),
        (
            {"patternProperties": {"\\bx": {"type": "null"}}, "additionalProperties": False},
            {"y": 1},
        ),
        ({"if": {"pattern": "(a)\\1"}, "then": False}, "x"),
        ({"$dynamicRef": "#x"}, 1),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"$id": "urn:a", "type": "null"}}}, 1),
    ],
)
def test_what_cannot_be_judged_is_no_violation(schema: object, value: Any) -> None:
    found = violations(schema, value)
    assert found
    assert not any(violation.judged for violation in found)


@pytest.mark.parametrize(
    "schema",
    [None, True, False, 3, "x", [], {"type": 3}, {"enum": 1}, {"anyOf": 1}, {"required": 1},
     {"properties": 1}, {"items": 1}, {"minLength": "x"}, {"pattern": 3}, {"$ref": 3}, {"not": 3},
     {"allOf": 1}, {"dependencies": 3}, {"contains": 3, "minContains": "x"}, {"multipleOf": 0}],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("text", ["1", '"x"', "[1]", '{"a": 1}', "null"])
def test_no_schema_makes_it_raise(schema: object, text: str) -> None:
    assert isinstance(validator(schema)(text), list)


def test_a_cycle_of_references_ends() -> None:
    cycle = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}
    assert not any(violation.judged for violation in violations(cycle, 1))


def test_violations_are_bounded() -> None:
    found = violations({"items": STRING}, [1] * 1_000)
    assert len(found) == MAX_VIOLATIONS


def lines_run(schema: object, text: str) -> int:
    count = 0
    check = validator(schema)

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        check(text)
    finally:
        sys.settrace(previous)
    return count


def doubling(depth: int) -> dict[str, object]:
    """A schema whose work doubles with each level of the value."""
    one: dict[str, object] = {"properties": {"x": {"$ref": "#/$defs/A"}}}
    return {"$ref": "#/$defs/A", "$defs": {"A": {"allOf": [one, one]}}}


def test_work_is_bounded_where_it_would_double() -> None:
    value: Any = {}
    for _ in range(60):
        value = {"x": value}
    found = violations(doubling(60), value)
    assert [violation.judged for violation in found] == [False]


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"type": "integer"}},
        {"uniqueItems": True},
        {"contains": {"const": -1}},
        {"items": {"enum": ["a", 1]}},
    ],
)
def test_the_cost_is_linear_in_the_value(schema: object) -> None:
    small, large = (lines_run(schema, json.dumps(list(range(n)))) for n in (200, 800))
    assert large < 4.2 * small
