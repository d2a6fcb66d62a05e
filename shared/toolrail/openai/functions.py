"""The tools of a request and the choice among them, checked against each other.

A custom tool becomes a function with one string (`tools.INPUT_SCHEMA`): what families, tags and
parsers see of it. Its grammar, if it declares one, is held or refused where the deployment is
known (`openai.inputs`).
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
    FunctionDefinition,
    FunctionTool,
    GrammarInput,
    InputFormat,
    NamedCustom,
    NamedFunction,
    WireToolChoice,
    given,
)
from toolrail.tools import INPUT_SCHEMA, InputGrammar, JsonSchema, Tool, ToolChoice, ToolKind

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


def tools_of(wire: Sequence[FunctionTool | CustomTool] | None) -> tuple[Tool, ...]:
    """The tools in the order given, their schemas parsed.

    Raises:
        CallerError: a name used twice, a schema that is no object or too large.
    """
    tools: list[Tool] = []
    names: set[str] = set()
    schema_bytes = 0
    for index, entry in enumerate(wire or ()):
        path = f"tools[{index}]"
        if isinstance(entry, CustomTool):
            custom, place = entry.custom, f"{path}.custom"
            tool = custom_tool(custom.name, custom.description, custom.format, f"{place}.format")
        else:
            place = f"{path}.function"
            schema_bytes += memoryview(entry.function.parameters).nbytes
            if schema_bytes > MAX_SCHEMAS_BYTES:
                raise refusal(
                    f"The parameters of all tools together exceed {MAX_SCHEMAS_BYTES:,} bytes.",
                    param="tools",
                    code="string_above_max_length",
                )
            tool = _function(entry.function, place)
        if tool.name in names:
            raise refusal(
                f"Two tools are named '{tool.name}': names must be unique.", param=f"{place}.name"
            )
        names.add(tool.name)
        tools.append(tool)
    return tuple(tools)


def custom_tool(name: str, description: str | None, format_: InputFormat | None, path: str) -> Tool:
    """A custom tool as everything below the API knows it. `path` of its format in the request.

    One with a grammar is strict: what cannot be held is refused.

    Raises:
        CallerError: a grammar that is not there, or there twice.
    """
    grammar = _grammar(format_, path) if isinstance(format_, GrammarInput) else None
    return Tool(
        name,
        INPUT_SCHEMA,
        strict=None if grammar is None else True,
        description=description,
        kind="custom",
        grammar=grammar,
    )


def _grammar(format_: GrammarInput, path: str) -> InputGrammar:
    nested = format_.grammar
    if nested is not None and format_.syntax is None and format_.definition is None:
        return InputGrammar(nested.syntax, nested.definition)
    if nested is None and format_.syntax is not None and format_.definition is not None:
        return InputGrammar(format_.syntax, format_.definition)
    raise refusal(
        f"'{path}' of type 'grammar' needs a 'grammar' with 'syntax' and 'definition'.",
        param=path,
        code="missing_required_parameter" if nested is None else "invalid_value",
    )


def _function(function: FunctionDefinition, path: str) -> Tool:
    parameters = json_schema(
        function.parameters, f"{path}.parameters", f"function '{function.name}'"
    )
    return Tool(function.name, parameters, function.strict, function.description)


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
        case NamedFunction() | NamedCustom():
            _need_tools(tools)
            return Choice("named", (_offered(wire, tools, "tool_choice"),), stated=True)
        case AllowedToolsChoice(allowed):
            _need_tools(tools)
            return Choice(allowed.mode, _allowed(allowed.tools, tools), stated=True)
        case _:
            assert_never(wire)


def _allowed(
    entries: Sequence[NamedFunction | NamedCustom], tools: tuple[Tool, ...]
) -> tuple[Tool, ...]:
    names = {
        _offered(entry, tools, f"tool_choice.allowed_tools.tools[{index}]").name
        for index, entry in enumerate(entries)
    }
    return tuple(tool for tool in tools if tool.name in names)


def _offered(entry: NamedFunction | NamedCustom, tools: tuple[Tool, ...], path: str) -> Tool:
    match entry:
        case NamedFunction(named):
            kind: ToolKind = "function"
            what = "function"
        case NamedCustom(named):
            kind, what = "custom", "custom tool"
    for tool in tools:
        if tool.name == named.name and tool.kind == kind:
            return tool
    raise refusal(
        f"Invalid value for '{path}': no {what} named '{named.name[:80]}' is among 'tools'.",
        param=path,
    )


def _need_tools(tools: tuple[Tool, ...]) -> None:
    if not tools:
        raise refusal(
            "'tool_choice' asks for a call, and the request has no 'tools'.", param="tool_choice"
        )
