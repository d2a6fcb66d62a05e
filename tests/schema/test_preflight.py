"""The strict preflight against its rows, its edges and hostile sizes."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from tests.schema.preflight_cases import a, closed, rows
from toolrail.schema import preflight
from toolrail.schema.preflight import Fault, check

STRING = {"type": "string"}
CLOSED = closed({"x": STRING})


@pytest.mark.parametrize("row", [pytest.param(row, id=row["case"]) for row in rows()])
def test_row(row: dict[str, Any]) -> None:
    fault = check(row["schema"])
    assert (400 if fault else 200) == row["status"], fault
    if fault is not None:
        assert fault.path == row["at"]
        assert fault.rule
        assert fault.message


@pytest.mark.parametrize(
    ("schema", "path", "rule"),
    [
        (True, "#", "root_type"),
        ([], "#", "root_type"),
        ({"type": ["object", "null"]}, "#", "root_type"),
        ({"enum": [{}]}, "#", "root_type"),
        ({"type": "object", "anyOf": [CLOSED]}, "#", "root_any_of"),
        (a({"type": []}), "#/properties/a/type", "type_names"),
        (a({"type": [["string"]]}), "#/properties/a/type", "type_names"),
        (a({"type": {"string": 1}}), "#/properties/a/type", "type_names"),
        (a({"type": "string", "required": "x"}), "#/properties/a/required", "required_shape"),
        (a({"type": "string", "required": [["x"]]}), "#/properties/a/required", "required_shape"),
        (a({"items": None}), "#/properties/a/items", "schema_shape"),
        (a({"items": [STRING, 1]}), "#/properties/a/items/1", "schema_shape"),
        (a({"prefixItems": STRING}), "#/properties/a/prefixItems", "array_shape"),
        (a({"patternProperties": 1}), "#/properties/a/patternProperties", "map_shape"),
        (a(STRING, **{"$defs": []}), "#/$defs", "map_shape"),
        (a({"unevaluatedProperties": 3}), "#/properties/a/unevaluatedProperties", "schema_shape"),
        (a({"additionalProperties": 3}), "#/properties/a/additionalProperties", "schema_shape"),
        (
            a({"additionalProperties": {"not": True}}),
            "#/properties/a/additionalProperties/not",
            "refused_keyword",
        ),
        (
            a({"dependencies": {"b": {"not": True}}}),
            "#/properties/a/dependencies/b/not",
            "refused_keyword",
        ),
        (
            a({"propertyNames": {"oneOf": [True]}}),
            "#/properties/a/propertyNames/oneOf",
            "refused_keyword",
        ),
        (a({"$recursiveRef": "#"}), "#/properties/a/$recursiveRef", "dynamic_reference"),
        (closed({"a/b": {"type": 1}}), "#/properties/a~1b/type", "type_names"),
        (closed({"a~b": {"type": 1}}), "#/properties/a~0b/type", "type_names"),
    ],
)
def test_shapes(schema: object, path: str, rule: str) -> None:
    fault = check(schema)
    assert fault is not None
    assert (fault.path, fault.rule) == (path, rule)


def referring(ref: object, **defs: object) -> dict[str, object]:
    return a({"$ref": ref}, **({"$defs": defs} if defs else {}))


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        (referring("#"), None),
        (referring("#/%24defs/D", D=STRING), None),
        (referring("#/$defs/a%20b", **{"a b": STRING}), None),
        (referring("#/$defs/a~1b", **{"a/b": STRING}), None),
        (referring("#/$defs/a~01", **{"a~1": STRING}), None),
        (referring("#/$defs/caf%C3%A9", café=STRING), None),
        (referring("#/$defs/caf%C3", café=STRING), "reference_escape"),
        (referring("#/$defs/a~2b", **{"a~2b": STRING}), "reference_escape"),
        (referring("#/$defs/a~", **{"a~": STRING}), "reference_escape"),
        (referring("#/$defs/%4", **{"%4": STRING}), "reference_escape"),
        (referring(""), "remote_reference"),
        (referring("http://example.test/#"), "remote_reference"),
        (referring("#D", D=STRING), "anchor_reference"),
        (referring("#/"), "reference_target"),
        (referring("#/$defs", D=STRING), "reference_target"),
        (referring("#/properties"), "reference_target"),
        (referring("#/type"), "reference_target"),
        (referring("#/$defs/D/anyOf/0", D={"anyOf": [STRING]}), None),
        (referring("#/$defs/D/anyOf/1", D={"anyOf": [STRING]}), "reference_target"),
        (referring("#/$defs/D/anyOf/-", D={"anyOf": [STRING]}), "reference_target"),
        (referring("#/$defs/D/anyOf/" + "9" * 5000, D={"anyOf": [STRING]}), "reference_target"),
        (referring("#/$defs/D/items", D={"items": STRING}), None),
        (referring("#/$defs/D/items", D={"items": [STRING]}), "reference_target"),
        (referring("#/$defs/D/items/0", D={"items": [STRING]}), None),
        (referring("#/$defs/D/const", D={"const": {"type": "string"}}), "reference_target"),
        (referring("#/$defs/D/const/items", D={"const": {"items": {}}}), "reference_target"),
        (referring("#/$defs/D/dependencies/x", D={"dependencies": {"x": STRING}}), None),
        (
            referring("#/$defs/D/dependencies/x", D={"dependencies": {"x": ["y"]}}),
            "reference_target",
        ),
        (referring("#/$defs/A", A={"$ref": "#/$defs/B"}, B={"$ref": "#/$defs/C"}, C=True), None),
        (
            referring("#/$defs/A", A={"$ref": "#/$defs/B"}, B={"$ref": "#/$defs/A"}),
            "reference_cycle",
        ),
        (referring("#/$defs/A", A={"anyOf": [{"$ref": "#/$defs/A"}, STRING]}), None),
        ({"$ref": "#/$defs/R", "$defs": {"R": CLOSED}}, None),
        ({"$ref": "#/$defs/Q", "$defs": {"Q": {"$ref": "#/$defs/R"}, "R": CLOSED}}, None),
        ({"$ref": "#/$defs/R", "$defs": {"R": STRING}}, "root_representation"),
        ({"$ref": "#/$defs/R", "$defs": {"R": {"anyOf": [CLOSED]}}}, "root_representation"),
        ({"$ref": "#/$defs/R", "type": "string", "$defs": {"R": CLOSED}}, "root_type"),
        ({"$ref": "#"}, "reference_cycle"),
        (a({"type": "object", "$ref": "#/$defs/D"}, **{"$defs": {"D": True}}), "open_reference"),
        (
            a(
                {"type": "object", "$ref": "#/$defs/D"},
                **{"$defs": {"D": {"$ref": "#/$defs/E"}, "E": CLOSED}},
            ),
            None,
        ),
        (
            a({"type": ["object", "null"], "$ref": "#/$defs/D"}, **{"$defs": {"D": STRING}}),
            "open_reference",
        ),
        (
            a(
                {"type": "object", "$ref": "#/$defs/D", "additionalProperties": True},
                **{"$defs": {"D": CLOSED}},
            ),
            "closed_object",
        ),
        (a(STRING, **{"$id": "http://r.test/", "$defs": {"D": {"$id": "d"}}}), None),
    ],
)
def test_references(schema: object, fault: str | None) -> None:
    found = check(schema)
    assert (found.rule if found else None) == fault


def test_a_cycle_is_named_where_it_is_entered() -> None:
    schema = referring("#/$defs/A", A={"$ref": "#/$defs/B"}, B={"$ref": "#/$defs/A"})
    assert check(schema) == Fault(
        "#/properties/a", "reference_cycle", "the reference leads back to itself; remove it"
    )


def test_the_message_names_the_property_and_stays_short() -> None:
    fault = check(closed({"n" * 1000: STRING}) | {"required": []})
    assert fault is not None
    assert "nnn" in fault.message
    assert len(fault.message) < 200


def nested_arrays(depth: int) -> dict[str, object]:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return a(schema)


def test_hostile_depth_costs_no_stack() -> None:
    assert check(nested_arrays(20_000)) is None
    deep = nested_arrays(20_000)
    innermost: Any = deep["properties"]
    innermost = innermost["a"]
    while "items" in innermost:
        innermost = innermost["items"]
    innermost["not"] = {}
    fault = check(deep)
    assert fault is not None
    assert fault.path == "#/properties/a" + "/items" * 20_000 + "/not"


def test_hostile_object_depth_stops_at_the_eleventh_level() -> None:
    schema: dict[str, object] = closed({})
    for _ in range(50_000):
        schema = closed({"c": schema})
    fault = check(schema)
    assert fault is not None
    assert fault.path == "#" + "/properties/c" * (preflight.MAX_OBJECT_LEVELS + 1)


def lines_run(schema: object) -> int:
    """How many lines of Python a check runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        assert check(schema) is None
    finally:
        sys.settrace(previous)
    return count


def reference_chain(length: int) -> dict[str, object]:
    defs: dict[str, object] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(length)}
    return referring("#/$defs/d0", **defs, **{f"d{length}": STRING})


def references_to_one(length: int) -> dict[str, object]:
    members = {f"p{i}": {"$ref": "#/$defs/D"} for i in range(length)}
    return closed(members, **{"$defs": {"D": CLOSED}})


def references_down_a_path(length: int) -> dict[str, object]:
    return {**nested_arrays(length), "$defs": {"D": {"$ref": "#/properties/a" + "/items" * length}}}


def wide(length: int) -> dict[str, object]:
    return closed({f"p{i}": {"type": ["string", "null"], "enum": ["a"]} for i in range(length)})


@pytest.mark.parametrize(
    "make", [nested_arrays, reference_chain, references_to_one, references_down_a_path, wide]
)
def test_the_cost_is_linear(make: Any) -> None:
    small, large = lines_run(make(200)), lines_run(make(800))
    assert large < 4.2 * small
