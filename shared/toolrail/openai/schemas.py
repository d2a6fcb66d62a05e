"""Schemas taken apart and put together: a change below, a place in a larger schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from toolrail.schema.locations import LIST, MAP, ONE
from toolrail.tools import JsonSchema, Tool

_DEFINITIONS: Final = "$defs"


def with_children(
    schema: Mapping[str, object], change: Callable[[object], object]
) -> dict[str, object]:
    """`schema` with `change` applied to the schemas directly below it; data stays as it is."""
    return {keyword: _changed(keyword, value, change) for keyword, value in schema.items()}


def _changed(keyword: str, value: object, change: Callable[[object], object]) -> object:
    if isinstance(value, Mapping):
        if keyword in MAP:
            schemas = cast("Mapping[str, object]", value)
            return {name: change(schemas[name]) for name in schemas}
        if keyword in ONE or keyword == "items":
            return change(cast("object", value))
    if isinstance(value, list) and (keyword in LIST or keyword == "items"):
        return list(map(change, cast("Sequence[object]", value)))
    return cast("object", value)


def call_schema(tools: Sequence[Tool], *, single: bool) -> dict[str, object]:
    """The array of calls that guided JSON holds a `required` choice to.

    Each tool's schema moves whole into the root's `$defs`, its references with it.
    """
    definitions = {
        f"parameters_{index}": _parameters(tool, f"#/{_DEFINITIONS}/parameters_{index}")
        for index, tool in enumerate(tools)
    }
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": tool.name},
                "parameters": {"$ref": f"#/{_DEFINITIONS}/parameters_{index}"},
            },
            "required": ["name", "parameters"],
            "additionalProperties": False,
        }
        for index, tool in enumerate(tools)
    ]
    array: dict[str, object] = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
    if single:
        array["maxItems"] = 1
    array[_DEFINITIONS] = definitions
    return array


def _parameters(tool: Tool, place: str) -> object:
    return {"type": "object"} if tool.parameters is None else moved(tool.parameters, place)


def moved(schema: JsonSchema | object, place: str) -> object:
    """`schema` as it must read at `place` (a JSON Pointer): its own references follow it."""
    if not isinstance(schema, Mapping):
        return schema
    keywords = with_children(
        cast("Mapping[str, object]", schema), lambda below: moved(below, place)
    )
    reference = keywords.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        keywords["$ref"] = place + reference[1:]
    return keywords
