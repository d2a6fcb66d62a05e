"""What the normaliser makes of single forms, judged by what the engine then takes and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.schema.engine import Held, HeldArguments, compiled
from tests.schema.wire import STYLES
from toolrail.errors import ConfigError
from toolrail.grammar import accepts
from toolrail.schema.context import MAX_DEPTH
from toolrail.schema.normalise import free, normalise, normalise_value
from toolrail.schema.styles import style_named

STRING = {"type": "string"}
LONG = "x" * 300


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }


FORMS = Path(__file__).parent / "cases" / "forms.jsonl"
"""Rows `{"case", "schema", "taken": values, "refused": values, "status": of the report}`."""
ROWS = [json.loads(line) for line in FORMS.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["case"]) for row in ROWS])
def test_form(row: Any) -> None:
    held = Held(row["schema"])
    for value in row["taken"]:
        assert held.takes(value), (value, held.normalised.schema)
    for value in row["refused"]:
        assert not held.takes(value), (value, held.normalised.schema)
    assert held.normalised.report.status == row["status"], held.normalised.notes


@pytest.mark.parametrize(
    "odd",
    [
        None, True, False, 3, "x", [], {}, {"type": 1}, {"type": []}, {"type": {"a": 1}},
        {"properties": []}, {"properties": {"a": 1}}, {"required": True}, {"required": [1]},
        {"items": 1}, {"prefixItems": 1}, {"enum": 1}, {"anyOf": []}, {"anyOf": 1}, {"allOf": 1},
        {"allOf": [1]}, {"oneOf": [[]]}, {"pattern": 1}, {"minLength": -1}, {"maxLength": "x"},
        {"minimum": "x"}, {"multipleOf": 0}, {"$ref": 1}, {"additionalProperties": None},
        {"patternProperties": {"(": {}}}, {"propertyNames": 1}, {"minProperties": 1.5},
        {"type": "object", "properties": {"a": {"enum": []}}, "required": ["a"]},
        {"const": float("1e999")}, {"minimum": float("nan")}, {"enum": [float("inf")]},
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("style", STYLES)
def test_no_schema_is_too_odd(odd: object, style: str) -> None:
    for schema in (odd, {"type": "object", "properties": {"p": odd}}):
        normalised = normalise(schema, style=style)
        assert normalised.schema["type"] == "object"
        compiled(normalised.schema, style)


@pytest.mark.parametrize("style", [style for style in STYLES if style != "json"])
class TestRawStyles:
    def test_a_bound_does_not_open_the_closing_tag(self, style: str) -> None:
        held = HeldArguments(closed({"a": {"type": "string", "maxLength": 60}}), style)
        assert held.takes({"a": "short"})
        if style != "minimax_m3_xml":
            assert not held.takes({"a": "x" * 61})
        if not style_named(style).counts:  # else the family's tag guards what it counts
            assert not held.takes({"a": f"x{style_named(style).closer}y"})

    def test_a_pattern_does_not_open_the_closing_tag(self, style: str) -> None:
        held = HeldArguments(closed({"a": {"type": "string", "pattern": "x.*y"}}), style)
        assert held.takes({"a": "x and y"})
        assert not held.takes({"a": f"x{style_named(style).closer}y"})

    def test_nor_does_one_inside_of_json(self, style: str) -> None:
        item = {"type": "string", "pattern": "x.*y"}
        held = HeldArguments(closed({"a": {"type": "array", "items": item}}), style)
        assert held.takes({"a": ["x and y"]})
        assert not held.takes({"a": [f"x{style_named(style).closer}y"]})

    def test_strings_are_raw_and_other_values_json(self, style: str) -> None:
        schema = closed({"a": STRING, "b": {"type": "integer"}, "c": {"enum": ['q"', "z"]}})
        held = HeldArguments(schema, style)
        assert held.takes({"a": 'say "hi"\n', "b": 1, "c": 'q"'})
        assert not held.takes({"a": "x", "b": "one", "c": "z"})
        assert not held.takes({"a": "x", "b": 1})

    def test_a_definition_used_as_an_argument_and_inside_one(self, style: str) -> None:
        schema = closed(
            {"a": {"$ref": "#/$defs/S"}, "b": {"type": "array", "items": {"$ref": "#/$defs/S"}}},
            **{"$defs": {"S": {"enum": ["x", "y"]}}},
        )
        held = HeldArguments(schema, style)
        assert held.takes({"a": "x", "b": ["y", "x"]})
        assert not held.takes({"a": "z", "b": []})
        assert not held.takes({"a": "x", "b": ["z"]})

    def test_a_name_that_cannot_be_written(self, style: str) -> None:
        optional = {"type": "object", "properties": {"a": STRING, "b>\n": STRING}}
        held = HeldArguments(optional, style)
        assert held.takes({"a": "x"})
        assert any("cannot be written" in note.detail for note in held.normalised.notes)
        required = optional | {"required": ["b>\n"]}
        assert normalise(required, style=style).report.status == "checked_after"


def test_extra_arguments_where_names_are_copied() -> None:
    declared = {"type": "object", "properties": {"a": {"type": "integer"}}}
    silent = HeldArguments(declared, "qwen_xml")
    assert not silent.takes({"a": 1, "b": 2})
    assert [note.reason for note in silent.normalised.notes] == ["narrowed"]
    asked = HeldArguments(declared | {"additionalProperties": True}, "qwen_xml")
    assert asked.takes({"a": 1, "b": 2})
    assert asked.normalised.report.status == "relaxed"
    nothing = HeldArguments({"type": "object"}, "qwen_xml")
    assert nothing.takes({"anything": 2})
    assert HeldArguments(declared, "json").takes({"a": 1, "b": 2})


def test_white_space_around_a_value_is_said() -> None:
    schema = closed({"a": {"type": "string", "pattern": "^[a-z]+$"}})
    for style, status in (("qwen_xml", "relaxed"), ("deepseek_xml", "enforced")):
        held = HeldArguments(schema, style)
        assert held.takes({"a": "abc"})
        assert held.takes({"a": " abc"}) == (status == "relaxed")
        assert held.normalised.report.status == status


def test_in_any_order_what_is_required_is_counted_only() -> None:
    schema = closed({"a": STRING, "b": STRING}) | {"required": ["a"]}
    assert normalise(schema).report.status == "enforced"
    assert normalise(schema, any_order=True).report.status == "relaxed"


def test_what_the_tag_excludes_is_kept_out_of_patterns_and_bounds() -> None:
    schema = closed(
        {"a": {"type": "string", "pattern": "^.+$"}, "b": {"type": "string", "maxLength": 9}}
    )
    normalised = normalise(schema, excludes=("[[",))
    grammar = compiled(normalised.schema, excludes=["[["])
    assert accepts(grammar, '{"a":"x]]","b":"y"}')
    assert not accepts(grammar, '{"a":"x[[","b":"y"}')
    assert not accepts(grammar, '{"a":"x","b":"[["}')


def test_every_keyword_is_in_the_report_once_with_its_path() -> None:
    schema = closed(
        {
            "a": {"type": "string", "maxLength": 5, "description": "not a keyword to hold"},
            "b": {"type": "array", "items": {"$ref": "#/$defs/D"}, "uniqueItems": True},
        },
        **{"$defs": {"D": {"type": "integer", "not": {"const": 3}}}},
    )
    held = (
        "#/type",
        "#/properties",
        "#/additionalProperties",
        "#/required",
        "#/properties/a/type",
        "#/properties/b/type",
        "#/properties/b/items",
        "#/properties/b/items/$ref",
        "#/$defs/D/type",
    )
    report = normalise(schema).report
    assert report.to_json() == {
        "status": "checked_after",
        "keywords": {
            **{path: {"status": "enforced"} for path in held},
            "#/properties/a/maxLength": {
                "status": "enforced",
                "reason": "narrowed",
                "detail": "values cannot hold what JSON must escape",
            },
            "#/properties/b/uniqueItems": {
                "status": "checked_after",
                "reason": "unique",
                "detail": "the grammar cannot compare items",
            },
            "#/$defs/D/not": {
                "status": "checked_after",
                "reason": "unheld",
                "detail": "the grammar cannot leave out what a schema describes",
            },
        },
    }
    assert report.counts() == {"enforced": 10, "relaxed": 0, "checked_after": 2, "dropped": 0}
    assert not report.lost


def test_what_is_lost_is_told_from_what_is_an_annotation() -> None:
    def lost(schema: Any) -> list[str]:
        return [note.path for note in normalise_value(schema).report.lost]

    assert lost({"type": "string", "format": "int32"}) == []
    assert lost({"type": "string", "pattern": "\\bx"}) == ["#/pattern"]
    assert lost({"$ref": "#/$defs/none"}) == ["#/$ref"]


def test_a_schema_that_is_left_free_is_checked_after() -> None:
    report = free(
        closed({"a": {"type": "string", "maxLength": 5}}), "not_strict", "strict is false"
    )
    assert report.status == "checked_after"
    assert report.enforced == ()
    assert "#/properties/a/maxLength" in {note.path for note in report.notes}
    assert free(None, "not_strict", "strict is false").notes == ()


def test_a_style_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="qwen_xml"):
        normalise({}, style="yaml")


def test_depth_is_cut_and_said() -> None:
    schema: dict[str, Any] = STRING
    for _ in range(MAX_DEPTH + 5):
        schema = {"type": "array", "items": schema}
    normalised = normalise(closed({"a": schema}))
    assert json.dumps(normalised.schema).count("array") <= MAX_DEPTH + 1
    assert [note.reason for note in normalised.report.over_budget][:1] == ["depth"]


INTEGER = {"type": "integer"}
UNIONS: dict[str, tuple[dict[str, Any], str]] = {
    "string or null": ({"type": ["string", "null"]}, "enforced"),
    "string or any number": ({"anyOf": [STRING, {"type": "number"}]}, "enforced"),
    "string or a bounded number": (
        {"anyOf": [STRING, {"type": "integer", "maximum": 5}]},
        "relaxed",
    ),
    "string or array": ({"type": ["string", "array"], "items": INTEGER}, "relaxed"),
    "string or object": ({"oneOf": [STRING, closed({"a": INTEGER})]}, "relaxed"),
    "words or a bounded number": (
        {"anyOf": [{"enum": ["auto"]}, {"type": "integer", "minimum": 0}]},
        "enforced",
    ),
    "digits as a word, or a bounded number": (
        {"anyOf": [{"enum": ["7"]}, {"type": "integer", "minimum": 10}]},
        "relaxed",
    ),
    "constants of two types": ({"enum": ["a", 1, None]}, "enforced"),
    "a constant that looks like no other": ({"enum": ["2", 1]}, "relaxed"),
    "a constant that looks like another": ({"enum": ["1", 1]}, "enforced"),
    "string": (STRING, "enforced"),
}


@pytest.mark.parametrize(("schema", "status"), UNIONS.values(), ids=UNIONS)
def test_a_string_that_may_be_read_as_another_value_is_said(
    schema: dict[str, Any], status: str
) -> None:
    whole = closed({"a": schema})
    assert normalise(whole, style="qwen_xml").report.status == status
    assert normalise(whole, style="json").report.status == "enforced"
    inner = closed({"o": closed({"a": schema})})
    assert normalise(inner, style="qwen_xml").report.status == "enforced"
