"""Schemas as grammars of a family's own notation: what they take, what they refuse, what they say.

Judged by the engine, on texts that the renderer writes.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from toolrail.arguments.notation import arguments_text
from toolrail.families import dialect
from toolrail.grammar import CompiledGrammar, Matcher, compile_tag
from toolrail.schema.normalise import normalise
from toolrail.structural_tag import TagOptions, ebnf
from toolrail.structural_tag.arguments import Held, held_arguments
from toolrail.syntax import NotationStyle
from toolrail.tools import Tool, ToolPolicy

FAMILIES = ("gemma4", "minimax_m3", "pythonic")
STRING = {"type": "string"}
INTEGER = {"type": "integer"}
FORMS = Path(__file__).parents[1] / "schema" / "cases" / "forms.jsonl"


@cache
def style(family: str) -> NotationStyle:
    found = dialect(family, None).family
    assert found is not None
    assert isinstance(found.arguments, NotationStyle)
    return found.arguments


def held(family: str, schema: Any, **options: Any) -> Held:
    return held_arguments(style(family), Tool("f", schema), TagOptions(**options))


def compiled(found: Held) -> CompiledGrammar:
    return compile_tag(json.dumps({"type": "structural_tag", "format": found.format}))


def takes(grammar: CompiledGrammar, text: str) -> bool:
    matcher = Matcher(grammar)
    return (not text or matcher.accept_string(text)) and matcher.can_end


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }


VALUES = {
    # schema, what is taken, what is refused on every wire, what of it is left free
    "integer": (INTEGER, [0, -7, 12], [1.5, "x", True, None, [1]], []),
    "range": ({"type": "integer", "minimum": -2, "maximum": 110}, [-2, 0, 110], [-3, 111], []),
    "exclusive": (
        {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10},
        [1, 9],
        [0, 10],
        [],
    ),
    "number": ({"type": "number"}, [0, -1.5, 1e-7, 12], ["x", True], []),
    "whole bounds": (
        {"type": "number", "minimum": -90, "exclusiveMaximum": 1},
        [-90, -0.5, 0, 0.999],
        [-90.1, 1, 1.5],
        [],
    ),
    "other bounds": (
        {"type": "number", "minimum": 0.5, "maximum": 2},
        [0.5, 2],
        [-1, 2.5],
        ["properties/v/minimum"],
    ),
    "multiple": ({"type": "integer", "multipleOf": 5}, [5], ["x"], ["properties/v/multipleOf"]),
    "boolean": ({"type": "boolean"}, [True, False], [1, None], []),
    "nullable": ({"type": ["integer", "null"]}, [None, 3], [True, 1.5], []),
    "constants": ({"enum": [1, "a b", True, None]}, [1, "a b", True, None], [2, False, "c"], []),
    "pattern": ({**STRING, "pattern": "^[a-z]{2}-\\d+$"}, ["ab-1"], ["ab-", "AB-1", "ab-1x"], []),
    "search": ({**STRING, "pattern": "b"}, ["b", "abc"], ["ac", ""], []),
    "format": ({**STRING, "format": "date"}, ["2024-05-06"], ["tomorrow"], []),
    "lengths": ({**STRING, "minLength": 2, "maxLength": 3}, ["ab", "東京é"], ["a", "abcd"], []),
    "least": ({**STRING, "minLength": 2}, ["ab", "a" * 99], ["a", ""], []),
    "none at all": ({**STRING, "maxLength": 0}, [""], ["a"], []),
    "long": ({**STRING, "maxLength": 256}, ["é" * 256], ["a" * 257], []),
    "list": (
        {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 2},
        [[1], [1, 2]],
        [[], [1, 2, 3], ["x"]],
        [],
    ),
    "positions": (
        {"type": "array", "prefixItems": [INTEGER, {"type": "boolean"}], "items": {"type": "null"}},
        [[], [1], [1, True], [1, True, None, None]],
        [[True], [1, 2], [1, True, 3]],
        [],
    ),
    "unique": (
        {"type": "array", "items": INTEGER, "uniqueItems": True},
        [[1, 2]],
        [["x"]],
        ["properties/v/uniqueItems"],
    ),
    "object": (
        closed({"b": INTEGER, "a": {"type": "boolean"}}, required=["b"]),
        [{"b": 1}, {"b": 1, "a": True}],
        [{}, {"a": True}, {"b": "x"}, {"b": 1, "c": 1}],
        [],
    ),
    "map": (
        {"type": "object", "additionalProperties": INTEGER, "minProperties": 1, "maxProperties": 2},
        [{"x": 1}, {"x": 1, "y-z": 2}],
        [{}, {"x": "y"}, {"x": 1, "y": 2, "z": 3}],
        [],
    ),
    "union": (
        {"anyOf": [INTEGER, {"type": "array", "items": INTEGER}]},
        [1, [1, 2]],
        [True, [True]],
        [],
    ),
    "reference": ({"$ref": "#/$defs/Tree"}, [{}, {"l": {"l": {}}}], [{"l": 1}, {"m": {}}], []),
    "not": ({"type": "integer", "not": {"const": 3}}, [2], [1.5], ["properties/v/not"]),
}
TREE = {"Tree": closed({"l": {"$ref": "#/$defs/Tree"}}, required=[])}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_held(family: str, kind: str) -> None:
    schema, good, bad, free = VALUES[kind]
    found = held(family, closed({"v": schema}, **{"$defs": TREE}))
    assert [line.partition(": ")[0] for line in found.free] == free
    grammar = compiled(found)
    for value in good:
        assert takes(grammar, arguments_text(style(family), {"v": value})), value
    for value in bad:
        assert not takes(grammar, arguments_text(style(family), {"v": value})), value


@pytest.mark.parametrize("family", FAMILIES)
def test_strings_hold_what_does_not_end_them(family: str) -> None:
    grammar = compiled(held(family, closed({"a": STRING, "b": STRING})))
    for text in ("", "a \"b\" 'c' \\ <x> {y} [z] (w)\n\ttab", "</a>", "<|", "]<]", "é東😀"):
        assert takes(grammar, arguments_text(style(family), {"a": text, "b": text})), text


@pytest.mark.parametrize(("family", "end"), [("gemma4", '<|"|>'), ("minimax_m3", "]<]minimax[>[")])
def test_no_string_holds_what_ends_it(family: str, end: str) -> None:
    for schema in (
        STRING,
        {**STRING, "pattern": "^.*$"},
        {**STRING, "maxLength": 60},
        {**STRING, "minLength": 1},
        {},
    ):
        grammar = compiled(held(family, closed({"a": schema})))
        assert takes(grammar, arguments_text(style(family), {"a": "x y"}))
        assert not takes(grammar, arguments_text(style(family), {"a": f"x{end}y"}))


@pytest.mark.parametrize("family", FAMILIES)
def test_required_properties_and_their_order(family: str) -> None:
    grammar = compiled(
        held(family, closed({"b": STRING, "a": STRING, "c": STRING}, required=["a"]))
    )

    def write(*names: str) -> str:
        return arguments_text(style(family), dict.fromkeys(names, "x"))

    for names in (("a",), ("b", "a"), ("a", "c"), ("b", "a", "c")):
        assert takes(grammar, write(*names)), names
    for names in ((), ("b",), ("b", "c"), ("c", "a"), ("a", "d")):
        assert not takes(grammar, write(*names)), names
    sorted_order = takes(grammar, write("a", "b", "c"))
    assert sorted_order == style(family).sorts  # as the template showed the model its tools


@pytest.mark.parametrize("family", FAMILIES)
def test_any_order(family: str) -> None:
    schema = closed({"a": STRING, "b": INTEGER})
    grammar = compiled(held(family, schema, tool_arguments_any_order=True))
    assert takes(grammar, arguments_text(style(family), {"b": 1, "a": "x"}))
    assert not takes(grammar, arguments_text(style(family), {"b": 1}))
    assert not takes(grammar, arguments_text(style(family), {"b": "x", "a": "x"}))


@pytest.mark.parametrize("family", FAMILIES)
def test_other_members_cannot_repeat_a_declared_one(family: str) -> None:
    inner = {
        "type": "object",
        "properties": {"count": INTEGER, "co": INTEGER},
        "additionalProperties": {"type": "boolean"},
    }
    grammar = compiled(held(family, closed({"o": inner})))
    for good in (
        {},
        {"count": 1},
        {"c": True},
        {"cou": True, "counts": False},
        {"co": 1, "x": True},
    ):
        assert takes(grammar, arguments_text(style(family), {"o": good})), good
    for bad in ({"count": True}, {"co": False}, {"x": 1}):
        assert not takes(grammar, arguments_text(style(family), {"o": bad})), bad


@pytest.mark.parametrize("family", ["gemma4", "pythonic"])
@pytest.mark.parametrize(
    "schema", [None, {}, True, {"type": "object"}, {"type": ["object", "null"]}]
)
def test_without_a_schema_any_arguments(family: str, schema: Any) -> None:
    grammar = compiled(held(family, schema))
    for arguments in ({}, {"a": 1}, {"a": [{"b": [None, True, "x"]}], "c": -1.5}):
        assert takes(grammar, arguments_text(style(family), arguments)), arguments
    assert not takes(grammar, "null")


def test_elements_of_any_name_are_free_text_up_to_the_end_of_the_call() -> None:
    grammar = compiled(held("minimax_m3", None))
    mark = "]<]minimax[>["
    assert takes(grammar, f"{mark}<a>{mark}<b>1{mark}</b>{mark}</a>")
    for end in ("<invoke name=", "</invoke>", "<tool_call>", "</tool_call>"):
        assert not takes(grammar, f"{mark}<a>1{mark}</a>{mark}{end}")


def test_nested_values_are_elements_or_json() -> None:
    schema = closed({"o": closed({"n": INTEGER, "s": {"type": "array", "items": STRING}})})
    grammar = compiled(held("minimax_m3", schema))
    mark = "]<]minimax[>["
    items = "".join(f"{mark}<item>{item}{mark}</item>\n" for item in ("a b", "{c}"))
    elements = f"{mark}<n>1{mark}</n>\n{mark}<s>{items}{mark}</s>"
    assert takes(grammar, f"{mark}<o>{elements}{mark}</o>")
    assert takes(grammar, f'{mark}<o>{{"n": 1, "s": ["a b", "{{c}}"]}}{mark}</o>')
    assert not takes(grammar, f"{mark}<o>{elements.replace('1', 'x')}{mark}</o>")
    assert not takes(grammar, f'{mark}<o>{{"n": 1}}{mark}</o>')
    assert not takes(grammar, f"{mark}<o>{elements}{mark}</p>")


@pytest.mark.parametrize(
    ("family", "name"), [("pythonic", "a b"), ("pythonic", ""), ("minimax_m3", "a>b")]
)
def test_a_name_that_cannot_be_written_is_left_out_and_said(family: str, name: str) -> None:
    found = held(family, closed({"a": INTEGER, name: INTEGER}, required=["a"]))
    assert any(line.startswith(f"properties/{name}: ") for line in found.free)
    assert takes(compiled(found), arguments_text(style(family), {"a": 1}))


def test_any_name_can_be_quoted_in_gemma() -> None:
    found = held("gemma4", closed({"a b:{": INTEGER}))
    assert found.free == []
    assert takes(compiled(found), '{<|"|>a b:{<|"|>:1}')


@pytest.mark.parametrize("family", FAMILIES)
def test_a_schema_that_is_too_large_is_left_free_and_said(family: str) -> None:
    schema = closed({f"p{i}": {"type": "integer", "minimum": i} for i in range(9_000)})
    found = held(family, schema)
    assert found.free == ["type: the schema makes too large a grammar"]
    compiled(found)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_grammar_is_linear_in_the_schema(family: str) -> None:
    def size(count: int) -> int:
        properties = {
            f"p{i}": {"type": "array", "items": closed({"a": STRING})} for i in range(count)
        }
        found = held(family, closed(properties, required=[]))
        return len(str(found.format["grammar"]))

    assert size(400) <= 4.5 * size(100)


ROWS = [json.loads(line) for line in FORMS.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("family", FAMILIES)
def test_normalised_schemas_are_held_as_reported(family: str) -> None:
    """Whatever form a schema has, what is neither noted nor left free is enforced."""
    typed = style(family).values.typed
    for row in ROWS:
        inner = row["schema"]
        schema = closed({"v": inner})
        if isinstance(inner, dict):
            schema |= {key: inner[key] for key in ("$defs", "definitions") if key in inner}
        if "#" in json.dumps(inner).replace("#/$defs", "").replace("#/definitions", ""):
            continue  # refers to where it stood
        normalised = normalise(schema, style=style(family).style)
        found = held(family, normalised.schema)
        grammar = compiled(found)
        if found.free or normalised.report.status != "enforced":
            continue
        for value in row["refused"]:
            if typed or not isinstance(value, (int, float, type(None))):
                text = arguments_text(style(family), {"v": value})
                assert not takes(grammar, text), (row["case"], value)


@pytest.mark.parametrize("seed", range(8))
def test_ranges_of_numbers(seed: int) -> None:
    chooser = random.Random(seed)
    for _ in range(12):
        low = chooser.choice([None, chooser.randint(-1200, 1200), chooser.randint(-12, 12), 0])
        high = chooser.choice([None, chooser.randint(-1200, 1200), chooser.randint(-12, 12), 0])
        opens = chooser.random() < 0.4, chooser.random() < 0.4

        def inside(
            value: float, low: Any = low, high: Any = high, opens: Any = (False, False)
        ) -> bool:
            above = low is None or (value > low if opens[0] else value >= low)
            below = high is None or (value < high if opens[1] else value <= high)
            return above and below

        near = [bound + step for bound in (low or 0, high or 0) for step in (-1, 0, 1)]
        whole = [*near, *(chooser.randint(-2000, 2000) for _ in range(20))]
        parts = [value + part for value in whole for part in (0.5, 0.25, -0.001)]
        found = ebnf.integers(low, high)
        if found is None:
            assert not any(map(inside, whole))
        else:
            grammar = rule(found)
            assert all(takes(grammar, str(value)) == inside(value) for value in whole)
        found = ebnf.decimals(low, high, low_open=opens[0], high_open=opens[1])
        if found is not None:
            grammar = rule(found)
            for value in (*whole, *parts):
                assert takes(grammar, repr(value)) == inside(value, opens=opens), (low, high, value)


def rule(body: str) -> CompiledGrammar:
    content = {"type": "grammar", "grammar": f"root ::= {body}"}
    return compile_tag(json.dumps({"type": "structural_tag", "format": content}))


def test_lists_of_tools_that_may_not_be_called_are_kept_out_of_text() -> None:
    speaks = dialect("pythonic", None)
    policy = ToolPolicy("auto", (Tool("f", closed({"a": INTEGER})),), others=("g",))
    found = speaks.tag(policy, "none", TagOptions())
    grammar = compile_tag(json.dumps({"type": "structural_tag", "format": found}))
    for text in ("See [g], [a](b) and g(a=1).", "[f(a=1)] [h(a=1)]", "x [f", "[f(a=1), f(a=2)]"):
        assert takes(grammar, text), text
    for text in ("[g(a=1)]", "Hm [f(a='x')]", "[f(a=1), g(a=1)]", "[f(b=1)]"):
        assert not takes(grammar, text), text


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("reference", ["#/$defs/A", "#/$defs/Self", "#/nowhere", "other.json#/a"])
def test_a_reference_that_leads_nowhere_is_left_free_and_said(family: str, reference: str) -> None:
    definitions = {
        "A": {"$ref": "#/$defs/B"},
        "B": {"$ref": "#/$defs/A"},
        "Self": {"$ref": "#/$defs/Self"},
    }
    found = held(family, closed({"v": {"$ref": reference}}, **{"$defs": definitions}))
    assert found.free == ["properties/v/$ref: is not followed"]
    assert takes(compiled(found), arguments_text(style(family), {"v": "x"}))
