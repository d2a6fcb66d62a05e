"""Tools as the prompt shows them: one spelling for equal tools, so that prefixes stay shared.

`tojson` keeps the client's key order, and two clients (or two releases of one) that order keys
differently share no cached prefix. So the envelope and the schema keywords get a fixed order; the
order inside `properties` stays, for it may be the order in which a grammar makes the arguments.
`strict` is left out: it is an instruction to the server, not to the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from toolrail.openai.schemas import with_children
from toolrail.tools import INPUT, INPUT_SCHEMA, Tool

_ORDER: Final = {
    name: position
    for position, name in enumerate(
        (
            "$schema",
            "$id",
            "$ref",
            "type",
            "title",
            "description",
            "const",
            "enum",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "prefixItems",
        )
    )
}
_LAST: Final = {"default": 1, "examples": 2, "definitions": 3, "$defs": 4}

_NO_PARAMETERS: Final[Mapping[str, object]] = {"type": "object", "properties": {}}


def template_tool(tool: Tool) -> dict[str, object]:
    """The tool in the published shape, in canonical key order."""
    function: dict[str, object] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = canonical_schema(_parameters(tool))
    return {"type": "function", "function": function}


def _parameters(tool: Tool) -> object:
    if tool.grammar is None:
        return _NO_PARAMETERS if tool.parameters is None else tool.parameters
    # A model that is not told what it is held to writes what fits it least badly.
    said = f"Raw text of this {tool.grammar.syntax} grammar:\n{tool.grammar.definition}"
    return {**INPUT_SCHEMA, "properties": {INPUT: {"type": "string", "description": said}}}


def canonical_schema(schema: object) -> object:
    """`schema` with its keywords in canonical order; data and declared orders are kept.

    Recursive: callers have bounded the depth (`limits.MAX_JSON_DEPTH`).
    """
    if not isinstance(schema, Mapping):
        return schema
    keywords = with_children(cast("Mapping[str, object]", schema), canonical_schema)
    return {name: keywords[name] for name in sorted(keywords, key=_rank)}


def _rank(name: str) -> tuple[int, int, str]:
    if name in _ORDER:
        return 0, _ORDER[name], ""
    if name in _LAST:
        return 2, _LAST[name], ""
    return 1, 0, name
