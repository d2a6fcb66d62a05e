"""The tools of a Messages request and the choice among them.

Custom tools alone: those that the API's own service defines or runs are refused by name. `strict`
asks for the schema to be held, as this API means it; its rules are not those of the strict schemas
of Chat Completions (properties may be optional), so there is no such preflight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw

from toolrail.errors import CallerError
from toolrail.openai.decode import decode_at
from toolrail.openai.functions import Choice, json_schema
from toolrail.openai.limits import MAX_SCHEMAS_BYTES
from toolrail.openai.refusals import refusal, shortened
from toolrail.openai.wire import ABSENT, given
from toolrail.tools import Tool


class _Kind(msgspec.Struct, frozen=True):
    type: str | None = None


class _Tool(msgspec.Struct, frozen=True):
    """A tool; hints such as `cache_control` and `defer_loading` are not read."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,128}\Z")]
    input_schema: Raw = ABSENT
    description: str | None = None
    strict: bool | None = None


class _Choice(msgspec.Struct, frozen=True):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool = False


_CHOICES: Final = "'auto', 'any', 'tool' and 'none'"

_choice: Final = msgspec.json.Decoder(_Choice)
_kind: Final = msgspec.json.Decoder(_Kind)
_tool: Final = msgspec.json.Decoder(_Tool)


def tools_of(wire: Sequence[Raw]) -> tuple[Tool, ...]:
    """The tools in the order given, their schemas parsed.

    Raises:
        CallerError: a tool that is not a custom one, a name used twice, a schema that is none.
    """
    tools: list[Tool] = []
    names: set[str] = set()
    schema_bytes = 0
    for index, raw in enumerate(wire):
        path = f"tools[{index}]"
        kind = decode_at(_kind, raw, path).type
        if kind not in (None, "custom"):
            raise _not_custom(kind, f"{path}.type")
        tool = decode_at(_tool, raw, path)
        where = f"{path}.input_schema"
        if not given(tool.input_schema):
            raise refusal(
                f"Missing required parameter: '{where}'.",
                param=where,
                code="missing_required_parameter",
            )
        schema_bytes += memoryview(tool.input_schema).nbytes
        if schema_bytes > MAX_SCHEMAS_BYTES:
            raise refusal(
                f"The schemas of all tools together exceed {MAX_SCHEMAS_BYTES:,} bytes.",
                param="tools",
                code="string_above_max_length",
            )
        if tool.name in names:
            raise refusal(
                f"Two tools are named '{tool.name}': names must be unique.", param=f"{path}.name"
            )
        names.add(tool.name)
        schema = json_schema(tool.input_schema, where, f"tool '{tool.name}'")
        tools.append(Tool(tool.name, schema, tool.strict, tool.description))
    return tuple(tools)


def choice(raw: Raw, tools: tuple[Tool, ...]) -> tuple[Choice, bool]:
    """The choice among `tools`, and whether several calls may be made.

    Left out, it is `auto` with tools and `none` without.

    Raises:
        CallerError: a call is forced without tools, or a tool is named that is not offered.
    """
    if not given(raw):
        return (Choice("auto", tools) if tools else Choice()), True
    wire = decode_at(_choice, raw, "tool_choice")
    return _chosen(wire, tools), not wire.disable_parallel_tool_use


def _chosen(wire: _Choice, tools: tuple[Tool, ...]) -> Choice:
    match wire.type:
        case "auto":
            return Choice("auto", tools, stated=True) if tools else Choice()
        case "none":
            return Choice("none", (), stated=True)
        case "any":
            _need_tools(tools)
            return Choice("required", tools, stated=True)
        case "tool":
            _need_tools(tools)
            return Choice("named", (_named(wire.name, tools),), stated=True)
        case kind:
            raise refusal(
                f"Invalid value for 'tool_choice.type': '{shortened(kind)}'. Supported values are "
                f"{_CHOICES}.",
                param="tool_choice.type",
            )


def _named(name: str | None, tools: tuple[Tool, ...]) -> Tool:
    for tool in tools:
        if tool.name == name:
            return tool
    raise refusal(
        f"Invalid value for 'tool_choice.name': no tool named '{shortened(name or '')}' is among "
        "'tools'.",
        param="tool_choice.name",
    )


def _need_tools(tools: tuple[Tool, ...]) -> None:
    if not tools:
        raise refusal(
            "'tool_choice' asks for a call, and the request has no 'tools'.", param="tool_choice"
        )


def _not_custom(kind: str, param: str) -> CallerError:
    if kind == "function":
        advice = "tools of this API have 'name', 'description' and 'input_schema'"
    else:
        advice = "no tools run or are defined here, declare it as a custom one with 'input_schema'"
    return refusal(
        f"Tools of type '{shortened(kind)}' are not supported: {advice}.",
        param=param,
        code="unsupported_value",
    )
