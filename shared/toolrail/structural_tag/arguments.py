"""How a tool's arguments are held, in each style, so that the parser reads what the grammar wrote.

JSON styles take the schema as it is, notations get a grammar written from it. The engine's XML
styles take what they hold safely; everything else is spelled out by `structural_tag.elements`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from toolrail.arguments.types import as_list, as_mapping, is_mapping
from toolrail.grammars import UnheldGrammarError
from toolrail.structural_tag import TagFormat, TagOptions, grammar
from toolrail.structural_tag.elements import (
    MAX_WHITESPACE,
    UNSAFE_NAME,
    Elements,
    is_listed,
    is_plain,
    json_schema,
    properties_of,
)
from toolrail.structural_tag.inputs import input_rules
from toolrail.structural_tag.notation import notation_grammar
from toolrail.syntax import ArgumentStyle, JsonStyle, NotationStyle, XmlStyle
from toolrail.tools import JsonSchema, Tool

__all__ = ["MAX_WHITESPACE", "Held", "held_arguments", "held_rules"]

_OBJECT: Final[Mapping[str, object]] = {"type": "object"}


@dataclass(slots=True)
class Held:
    """A format for a tool's arguments, and what of the schema it does not hold."""

    format: TagFormat
    free: list[str] = field(default_factory=list[str])


def held_arguments(style: ArgumentStyle, tool: Tool, options: TagOptions) -> Held:
    """The format of `tool`'s arguments under the deployment's schema mode."""
    if tool.grammar is not None:
        return Held(grammar(_input_rules(style, tool, options)))
    root = _root(tool, options)
    any_order = options.tool_arguments_any_order
    if isinstance(style, JsonStyle):
        return Held(json_schema(style.style, root, any_order=any_order))
    if isinstance(style, NotationStyle):
        rules, free = notation_grammar(style, root, any_order=any_order)
        return Held(grammar(rules), free)
    return _held_elements(style, root, options)


def held_rules(style: NotationStyle, tool: Tool, options: TagOptions, prefix: str) -> str:
    """The rules of the grammar of `tool`'s arguments, from `<prefix>root` on, to stand in one."""
    if tool.grammar is not None:
        return _input_rules(style, tool, options, prefix)
    any_order = options.tool_arguments_any_order
    return notation_grammar(style, _root(tool, options), any_order=any_order, prefix=prefix)[0]


def _input_rules(style: ArgumentStyle, tool: Tool, options: TagOptions, prefix: str = "") -> str:
    assert tool.grammar is not None
    try:
        guarded = options.exclude_special_tokens is not False
        return input_rules(style, tool.grammar, guarded=guarded, prefix=prefix)
    except UnheldGrammarError as error:
        raise UnheldGrammarError(error.reason, tool.name) from None


def _root(tool: Tool, options: TagOptions) -> Mapping[str, object]:
    relaxed = tool.strict is False and options.schema == "auto"
    return _object_schema(None if relaxed else tool.parameters)


def _held_elements(style: XmlStyle, root: Mapping[str, object], options: TagOptions) -> Held:
    any_order = options.tool_arguments_any_order
    stop = style.reserved if options.exclude_special_tokens is not False else ""
    if not style.engine:
        writer = Elements(style, root, stop)
        return Held(writer.spelled_out(any_order=any_order), writer.free)
    excludes = [stop] if stop else []
    unsafe = [name for name in properties_of(root) if UNSAFE_NAME.search(name)]
    if unsafe:
        free = [f"properties/{name}: the name cannot be written in this format" for name in unsafe]
        found = json_schema(style.style, _OBJECT, any_order=any_order, excludes=excludes)
        return Held(found, free)
    writer = Elements(style, root, stop)
    if all(writer.is_native(value) for value in properties_of(root).values()) and is_plain(root):
        return Held(json_schema(style.style, root, any_order=any_order, excludes=excludes))
    if is_plain(root) and not any_order:
        return Held(writer.parameters(), writer.free)
    if not style.reserved:
        excludes = [style.close]
    if style.counted and is_listed(root):  # what counts characters is not the engine's style
        return Held(writer.with_others(excludes, any_order=any_order), writer.free)
    reduced = as_mapping(writer.guarded(root, ""))
    found = json_schema(style.style, reduced, any_order=any_order, excludes=excludes)
    return Held(found, writer.free)


def _object_schema(schema: JsonSchema | None) -> Mapping[str, object]:
    """`schema` as one that only objects satisfy: arguments are an object in every format."""
    if not is_mapping(schema):
        return _OBJECT
    kind = schema.get("type")
    if kind is None:
        composed = {"$ref", "anyOf", "oneOf", "allOf"} & schema.keys()
        return schema if composed else {"type": "object", **schema}
    kinds = as_list(kind) or [kind]
    if "object" not in kinds:
        return _OBJECT
    return schema if kind == "object" else {**schema, "type": "object"}
