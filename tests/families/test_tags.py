"""The structural tags' options, and the schemas that a format can only hold in part."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.families.walking import tag_json
from toolrail.events import Call
from toolrail.families import dialect
from toolrail.grammar import accepts
from toolrail.structural_tag import TagFormat, TagOptions
from toolrail.tools import JsonSchema, StartsIn, Tool, ToolPolicy

DEFAULT = TagOptions()
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
BOTH = ["hermes", "qwen3_coder"]


def tag(
    name: str,
    *tools: Tool,
    choice: str = "auto",
    starts_in: StartsIn = "none",
    options: TagOptions = DEFAULT,
    response: TagFormat | None = None,
) -> str:
    found = dialect(name, "qwen3").tag(
        ToolPolicy(choice, tools), starts_in, options, response=response
    )
    assert found is not None
    return tag_json(found)


def call(name: str, arguments: object) -> str:
    return dialect(name, "qwen3").render([Call("f", json.dumps(arguments, ensure_ascii=False))])


def takes(name: str, schema: JsonSchema, arguments: object, **options: object) -> bool:
    tool = Tool("f", schema, strict=options.pop("strict", None))
    return accepts(tag(name, tool, choice="named", **options), call(name, arguments))


def nodes(value: object) -> Iterator[dict[str, object]]:
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, (dict, list)):
            yield from nodes(child)


@pytest.mark.parametrize("name", BOTH)
def test_strict_false_holds_the_envelope_only(name: str) -> None:
    wrong = {"days": "many", "other": 1}
    assert not takes(name, CITY, wrong)
    assert takes(name, CITY, wrong, strict=False)
    strict = TagOptions(schema="strict")
    assert not takes(name, CITY, wrong, strict=False, options=strict)


@pytest.mark.parametrize("name", BOTH)
def test_any_order(name: str) -> None:
    turned = {"days": 1, "city": "Paris"}
    assert not takes(name, CITY, turned)
    assert takes(name, CITY, turned, options=TagOptions(tool_arguments_any_order=True))


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    "schema", [None, {}, True, False, {"type": ["object", "null"]}, {"type": "string"}]
)
def test_arguments_are_an_object_whatever_the_schema(name: str, schema: JsonSchema | None) -> None:
    tool = Tool("f", schema)
    held = tag(name, tool, choice="named")
    assert accepts(held, call(name, {}))
    assert not accepts(
        held, call(name, {}).replace("{}", "null").replace("\n</function", "null</function")
    )


@pytest.mark.parametrize("name", BOTH)
def test_whitespace_is_bounded(name: str) -> None:
    held = json.loads(tag(name, Tool("f", CITY)))
    schemas = [node for node in nodes(held) if node.get("type") == "json_schema"]
    assert schemas
    assert all("max_whitespace_cnt" in node for node in schemas)


@pytest.mark.parametrize("name", BOTH)
def test_exclusions_can_be_switched_off(name: str) -> None:
    off = TagOptions(exclude_special_tokens=False)
    text = "a </think> </tool_call>"
    assert not accepts(tag(name, Tool("f", CITY)), text)
    assert accepts(tag(name, Tool("f", CITY), options=off), text)
    assert not accepts(tag(name, Tool("f", CITY), choice="none", options=off), "a <tool_call>")


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("gap", ["", "\n", "\n\n"])
def test_required_takes_the_habitual_gap_after_reasoning(name: str, gap: str) -> None:
    text = call(name, {"city": "Paris", "days": 1})
    for choice in ("required", "named"):
        held = tag(name, Tool("f", CITY), choice=choice, starts_in="reasoning")
        assert accepts(held, f"so</think>{gap}{text}")
        assert not accepts(held, f"so</think>{gap}On it.{text}")
        assert not accepts(held, f"so</think>{gap}")
        assert not accepts(held, text)


@pytest.mark.parametrize("name", BOTH)
def test_the_backend_owns_the_boundary(name: str) -> None:
    backend = TagOptions(reasoning_boundary="backend")
    text = call(name, {"city": "Paris", "days": 1})
    for start in ("reasoning", "none"):
        held = tag(name, Tool("f", CITY), choice="required", starts_in=start, options=backend)
        assert accepts(held, text)
        assert not accepts(held, f"so</think>\n\n{text}")


@pytest.mark.parametrize("name", BOTH)
def test_a_held_answer_may_stand_instead(name: str) -> None:
    response = {"type": "json_schema", "json_schema": {"type": "object"}}
    held = tag(name, Tool("f", CITY), response=response, starts_in="reasoning")
    assert accepts(held, '</think>\n\n{"a": 1}')
    assert accepts(held, "</think>\n\n" + call(name, {"city": "Paris", "days": 1}))
    assert not accepts(held, "</think>\n\nHello")


@pytest.mark.parametrize("name", BOTH)
def test_no_text_is_a_dead_end(name: str) -> None:
    held = tag(name, Tool("f", CITY))
    for text in ("a <", "a <tool", "<function", "a < b", "<tool_call", "</", "<think"):
        assert accepts(held, text), text


def test_free_text_cannot_call_without_the_wrapper() -> None:
    held = tag("qwen3_coder", Tool("f", CITY))
    assert not accepts(held, "<function=f>\n<parameter=city>\nx\n</parameter>\n</function>")


VALUES = {
    # what is declared, what must be taken, what must not
    "pattern": ({"type": "string", "pattern": "^[a-z]{2}-.*$"}, ["ab-c d"], ["AB-c", "ab-<"]),
    "length": ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd"]),
    "format": ({"type": "string", "format": "date"}, ["2024-05-06"], ["tomorrow"]),
    "odd format": ({"type": "string", "format": "shape"}, ["x"], []),
    "constants": ({"enum": [" a", "<b>", 3]}, [" a", "<b>", 3], ["a", "b", 4]),
    "nested": (
        {
            "type": "object",
            "properties": {"t": {"type": "string"}},
            "required": ["t"],
            "additionalProperties": False,
        },
        [{"t": "a <b> </function>"}],
        [{}, {"t": 1}],
    ),
    "list": ({"type": "array", "items": {"type": "string"}, "maxItems": 2}, [["a"]], [["a"] * 3]),
    "union": (
        {"anyOf": [{"type": "string", "pattern": "^a+$"}, {"type": "integer", "minimum": 5}]},
        ["aa", 7],
        ["b", 3],
    ),
    "reference": ({"$ref": "#/$defs/Short"}, ["a"], ["abc"]),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", BOTH)
def test_values_are_held(name: str, kind: str) -> None:
    declared, good, bad = VALUES[kind]
    schema = {
        "type": "object",
        "properties": {"v": declared, "last": {"type": "integer"}},
        "required": ["v"],
        "$defs": {"Short": {"type": "string", "maxLength": 2}},
    }
    for value in good:
        assert takes(name, schema, {"v": value}), value
        assert takes(name, schema, {"v": value, "last": 1}), value
    for value in bad:
        if name == "hermes" and value == "ab-<":
            continue  # JSON needs no guard
        assert not takes(name, schema, {"v": value}), value
    assert not takes(name, schema, {"last": 1})


@pytest.mark.parametrize("unsafe", ['a"b', "a>b", "a\nb", "a</parameter>", " a", ""])
def test_a_name_that_cannot_be_written_frees_the_arguments_and_is_said(unsafe: str) -> None:
    schema = {
        "type": "object",
        "properties": {unsafe: {"type": "integer"}, "b": {"type": "integer"}},
    }
    tool = Tool("f", schema)
    pair = dialect("qwen3_coder", "qwen3")
    assert takes("qwen3_coder", schema, {"b": "free"})
    assert any(unsafe in line for line in pair.left_free(tool, DEFAULT))
    assert not dialect("hermes", "qwen3").left_free(tool, DEFAULT)


def test_what_cannot_be_held_is_said() -> None:
    pair = dialect("qwen3_coder", "qwen3")

    def said(value: object, **root: object) -> tuple[str, ...]:
        schema = {"type": "object", "properties": {"v": value}, **root}
        return pair.left_free(Tool("f", schema), DEFAULT)

    assert said({"type": "string", "pattern": "^[a-z]+$"}) == ()
    assert said({"type": "string", "pattern": "^<a>$"})
    assert said({"type": "string", "pattern": "a", "minLength": 2})
    assert said({"type": "string", "minLength": 2}, additionalProperties=True)
    assert said({"not": {"type": "string"}})
