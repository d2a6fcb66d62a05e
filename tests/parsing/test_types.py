"""Types of parameters, and raw text as JSON by them."""

from __future__ import annotations

import pytest

from toolrail.arguments.types import ParameterTypes, json_kind, json_text

DEFS = {
    "Int": {"type": "integer"},
    "Alias": {"$ref": "#/$defs/Int"},
    "Loop": {"$ref": "#/$defs/Loop"},
    "Null": {"type": "string", "const": "null"},
    "a/b~c": {"type": "boolean"},
    "caf\u00e9 x": {"type": "integer"},
    "Scoped": {"$id": "https://example.com/s", "type": "integer"},
    "City": {"type": ["string", "null"]},
}
STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "raw", "typed", "text_first"),
    [
        (STRING, "42", '"42"', '"42"'),
        (STRING, ' "a"\n', '" \\"a\\"\\n"', '" \\"a\\"\\n"'),
        ({}, "42", '"42"', '"42"'),
        (True, "null", '"null"', '"null"'),
        ({"type": "integer"}, " 42 ", "42", "42"),
        ({"type": "integer"}, "1e3", "1e3", "1e3"),
        ({"type": "integer"}, "1.5", '"1.5"', '"1.5"'),
        ({"type": "integer"}, "9007199254740993", "9007199254740993", "9007199254740993"),
        ({"type": "number"}, "1.50", "1.50", "1.50"),
        ({"type": "number"}, "42", "42", "42"),
        ({"type": "number"}, "NaN", '"NaN"', '"NaN"'),
        ({"type": "boolean"}, "True", "true", "true"),
        ({"type": "boolean"}, "yes", '"yes"', '"yes"'),
        ({"type": "null"}, "None", "null", "null"),
        ({"type": "object"}, '{"a": 1.0}', '{"a": 1.0}', '{"a": 1.0}'),
        ({"type": "object"}, '{"a": "x\ny"}', '{"a": "x\\ny"}', '{"a": "x\\ny"}'),
        ({"type": "object"}, '{"a": ', '"{\\"a\\": "', '"{\\"a\\": "'),
        ({"type": "array"}, "[1,2]", "[1,2]", "[1,2]"),
        ({"type": ["string", "integer"]}, "42", "42", '"42"'),
        ({"type": ["string", "null"]}, "null", "null", "null"),
        ({"type": ["string", "null"]}, "None", '"None"', '"None"'),
        ({"type": "string", "nullable": True}, "null", "null", "null"),
        ({"type": "string", "nullable": True, "enum": ["null"]}, "null", '"null"', '"null"'),
        ({"$ref": "#/$defs/Null", "nullable": True}, "null", '"null"', '"null"'),
        ({"anyOf": [{"const": "42"}, {"type": "integer"}]}, "42", "42", '"42"'),
        ({"anyOf": [{"const": "null"}, {"type": "null"}]}, "null", "null", "null"),
        ({"type": "string", "anyOf": [{"minLength": 1}, {"type": "null"}]}, "null", '"null"', None),
        ({"allOf": [{"type": "integer"}, {"type": ["string", "integer"]}]}, "42", "42", "42"),
        ({"enum": ["auto", 7]}, "7", "7", "7"),
        ({"enum": ["auto", 7]}, " auto\n", '"auto"', None),
        ({"enum": [" auto", "auto"]}, " auto", '" auto"', None),
        ({"$ref": "#/$defs/Alias"}, "42", "42", "42"),
        ({"$ref": "#/$defs/Loop"}, "42", '"42"', '"42"'),
        ({"$ref": "#/$defs/Loop", "type": "integer"}, "42", "42", "42"),
        ({"$ref": "#/$defs/a~1b~0c"}, "true", "true", "true"),
        ({"$ref": "#/$defs/caf%C3%A9%20x"}, "42", "42", "42"),
        ({"$ref": "#/$defs/Scoped"}, "42", '"42"', '"42"'),
        ({"$ref": "other.json", "type": "integer"}, "42", "42", "42"),
        ({"type": "integer", "$id": "https://example.com/c"}, "42", "42", "42"),
        ({"$ref": "#/$defs/City"}, "null", "null", "null"),
        ({"type": "anything"}, "42", '"42"', '"42"'),
    ],
)
def test_json_text(schema: object, raw: str, typed: str, text_first: str | None) -> None:
    types = ParameterTypes({"properties": {"p": schema}, "$defs": DEFS}).of("p")
    assert json_text(raw, types) == typed
    assert json_text(raw, types, "string") == (text_first or typed)


def test_properties_are_found_through_the_root() -> None:
    root = {
        "allOf": [{"$ref": "#/$defs/Args"}],
        "anyOf": [{"properties": {"b": {"type": "boolean"}}}, {"properties": {"b": STRING}}],
        "$defs": {"Args": {"properties": {"a": {"type": "integer"}}}},
        "additionalProperties": {"type": "number"},
    }
    types = ParameterTypes(root)
    assert types.of("a").allows("integer")
    assert types.of("b").kinds == {"boolean", "string"} & types.of("b").kinds
    assert types.of("else").allows("number")


def test_a_schema_that_branches_without_end_is_unknown() -> None:
    defs = {f"N{i}": {"allOf": [{"$ref": f"#/$defs/N{i + 1}"}] * 4} for i in range(12)}
    root = {"properties": {"p": {"$ref": "#/$defs/N0"}}, "$defs": defs | {"N12": STRING}}
    assert ParameterTypes(root).of("p").text_only


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1", "integer"),
        ("1.0", "integer"),
        ("1e400", "number"),
        ("-0.5", "number"),
        ("{}", "object"),
        (" [] ", "array"),
        ('"a"', "string"),
        ("true", "boolean"),
        ("null", "null"),
        ("01", None),
        ("1 2", None),
        ("", None),
        ("'a'", None),
        ("Infinity", None),
    ],
)
def test_json_kind(text: str, kind: str | None) -> None:
    assert json_kind(text) == kind
