"""The tools of a request and the choice among them, checked against each other.

Custom tools (free text input) are read, so that the refusal can name them, and not served yet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never, cast

import msgspec

from toolrail.errors import CallerError
from toolrail.openai.decode import decode_json, without_wide_integers
from toolrail.openai.limits import MAX_SCHEMAS_BYTES
from toolrail.openai.refusals import refusal
from toolrail.openai.wire import (
    AllowedToolsChoice,
    CustomTool,
    FunctionTool,
    NamedCustom,
    NamedFunction,
    WireToolChoice,
    given,
)
from toolrail.tools import JsonSchema, Tool, ToolChoice

_MANY_DIGITS: Final = re.compile(rb"[0-9]{19}")


@dataclass(frozen=True, slots=True)
class Choice:
    """The tool choice: what may be called, and whether the request said so itself.

    Attributes:
        mode: `none` when there is nothing to call.
        callable: the tools that may be called: all, those allowed, the one named; none of them
            under `none`.
        stated: False when `tool_choice` was left out.
    """

    mode: ToolChoice = "none"
    callable: tuple[Tool, ...] = ()
    stated: bool = False


def function_tools(wire: Sequence[FunctionTool | CustomTool] | None) -> tuple[Tool, ...]:
    """The tools in the order given, their schemas parsed.

    Raises:
        CallerError: a custom tool, a name used twice, a schema that is no object or too large.
    """
    tools: list[Tool] = []
    names: set[str] = set()
    schema_bytes = 0
    for index, entry in enumerate(wire or ()):
        path = f"tools[{index}]"
        if isinstance(entry, CustomTool):
            raise _custom_refused(f"{path}.type")
        function = entry.function
        if function.name in names:
            raise refusal(
                f"Two tools are named '{function.name}': names must be unique.",
                param=f"{path}.function.name",
            )
        names.add(function.name)
        schema_bytes += memoryview(function.parameters).nbytes
        if schema_bytes > MAX_SCHEMAS_BYTES:
            raise refusal(
                f"The parameters of all tools together exceed {MAX_SCHEMAS_BYTES:,} bytes.",
                param="tools",
                code="string_above_max_length",
            )
        parameters = json_schema(
            function.parameters, f"{path}.function.parameters", f"function '{function.name}'"
        )
        tools.append(Tool(function.name, parameters, function.strict, function.description))
    return tuple(tools)


def json_schema(raw: msgspec.Raw, path: str, owner: str) -> JsonSchema | None:
    """The schema in `raw`, None when it is absent or null. Only its outermost type is checked.

    `owner` says in a refusal whose schema it is.
    """
    if not given(raw):
        return None
    schema = decode_json(raw, path)
    if not isinstance(schema, dict):
        raise invalid_schema(owner, path, "#", "schema_shape", "a schema must be an object")
    found = cast("dict[str, object]", schema)
    if _MANY_DIGITS.search(bytes(raw)):
        return cast("dict[str, object]", without_wide_integers(found, path))
    return found


def invalid_schema(owner: str, param: str, pointer: str, rule: str, message: str) -> CallerError:
    """A 400 for a schema: whose it is, where in it (JSON Pointer), which rule, and why."""
    return refusal(
        f"Invalid schema for {owner}: In context={pointer}, {message} (rule '{rule}').",
        param=param,
        code="invalid_function_parameters" if param.startswith("tools") else "invalid_json_schema",
    )


def choice(wire: WireToolChoice | None, tools: tuple[Tool, ...]) -> Choice:
    """The choice among `tools`; left out, it is `auto` with tools and `none` without.

    Raises:
        CallerError: a call is forced without tools, or a function is named that is not offered.
    """
    match wire:
        case None:
            return Choice("auto", tools) if tools else Choice()
        case "none":
            return Choice("none", (), stated=True)
        case "auto":
            return Choice("auto", tools, stated=True) if tools else Choice()
        case "required":
            _need_tools(tools)
            return Choice("required", tools, stated=True)
        case NamedFunction(function):
            _need_tools(tools)
            return Choice("named", (_offered(function.name, tools, "tool_choice"),), stated=True)
        case AllowedToolsChoice(allowed):
            _need_tools(tools)
            return Choice(allowed.mode, _allowed(allowed.tools, tools), stated=True)
        case NamedCustom():
            raise _custom_refused("tool_choice.type")
        case _:
            assert_never(wire)


def _allowed(
    entries: Sequence[NamedFunction | NamedCustom], tools: tuple[Tool, ...]
) -> tuple[Tool, ...]:
    names: set[str] = set()
    for index, entry in enumerate(entries):
        path = f"tool_choice.allowed_tools.tools[{index}]"
        if isinstance(entry, NamedCustom):
            raise _custom_refused(f"{path}.type")
        names.add(_offered(entry.function.name, tools, path).name)
    return tuple(tool for tool in tools if tool.name in names)


def _offered(name: str, tools: tuple[Tool, ...], path: str) -> Tool:
    for tool in tools:
        if tool.name == name:
            return tool
    raise refusal(
        f"Invalid value for '{path}': no function named '{name[:80]}' is among 'tools'.",
        param=path,
    )


def _need_tools(tools: tuple[Tool, ...]) -> None:
    if not tools:
        raise refusal(
            "'tool_choice' asks for a call, and the request has no 'tools'.", param="tool_choice"
        )


def _custom_refused(path: str) -> CallerError:
    return refusal(
        "Custom tools are not supported yet: use function tools.",
        param=path,
        code="unsupported_value",
    )
