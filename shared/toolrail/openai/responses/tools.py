"""The tools of a Responses request and the choice among them.

Models know tools by one flat name. A member of a namespace is shown as `namespace__member`, and
calls of it go back to the client with both names. The namespace's description stands before that
of its first member: once, as a heading would.

Hosted tools (web search, code interpreter ...) do not run here and are refused by name, or left
out where the deployment says so. Tools that a client runs in shapes of their own (`shell`,
`apply_patch`, `computer`) are always refused: without them it would wait for calls that never come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw

from toolrail.errors import CallerError
from toolrail.openai.decode import decode_at
from toolrail.openai.functions import Choice, custom_tool, json_schema
from toolrail.openai.limits import MAX_SCHEMAS_BYTES, MAX_TOOLS
from toolrail.openai.refusals import refusal, shortened
from toolrail.openai.strict import check_strict
from toolrail.openai.wire import ABSENT, InputFormat, Name, given
from toolrail.tools import Tool, ToolKind

_JOINT: Final = "__"
_HOSTED: Final = (
    "code_interpreter",
    "file_search",
    "image_generation",
    "mcp",
    "tool_search",
    "web_search",
)
"""What the types of tools begin with that the hosted API runs itself."""
_CLIENTS: Final = ("apply_patch", "computer", "local_shell", "shell")
"""What the types of tools begin with that the client runs, in shapes of their own."""
_CHOICES: Final = ("none", "auto", "required")
Caller: TypeAlias = Literal["direct", "programmatic"]


class FunctionTool(
    msgspec.Struct,
    frozen=True,
    tag_field="type",
    tag="function",
    forbid_unknown_fields=True,
    rename={"run_async": "async"},
):
    """A function. What it says of deferred loading and of its output changes nothing here."""

    name: Name
    parameters: Raw = ABSENT
    strict: bool | None = None
    description: str | None = None
    defer_loading: bool | None = None
    output_schema: Raw = ABSENT
    allowed_callers: list[Caller] | None = None
    run_async: bool | None = None


class CustomTool(
    msgspec.Struct,
    frozen=True,
    tag_field="type",
    tag="custom",
    forbid_unknown_fields=True,
    rename={"run_async": "async"},
):
    """A custom tool, whose input is free text."""

    name: Name
    description: str | None = None
    format: InputFormat | None = None
    defer_loading: bool | None = None
    allowed_callers: list[Caller] | None = None
    run_async: bool | None = None


class NamespaceTool(
    msgspec.Struct, frozen=True, tag_field="type", tag="namespace", forbid_unknown_fields=True
):
    """Tools under one name."""

    name: Name
    tools: Annotated[list[Raw], Meta(max_length=MAX_TOOLS)]
    description: str | None = None


class ChosenTool(msgspec.Struct, frozen=True):
    """A tool that `tool_choice` names; one of a namespace may say so."""

    type: str
    name: str | None = None
    namespace: str | None = None


class AllowedTools(msgspec.Struct, frozen=True):
    """`tool_choice`: only these."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[ChosenTool], Meta(min_length=1, max_length=MAX_TOOLS)]


class _Kind(msgspec.Struct, frozen=True):
    type: str


_kind: Final = msgspec.json.Decoder(_Kind)
_function: Final = msgspec.json.Decoder(FunctionTool)
_custom: Final = msgspec.json.Decoder(CustomTool)
_namespace: Final = msgspec.json.Decoder(NamespaceTool)
_word: Final = msgspec.json.Decoder(str)
_chosen: Final = msgspec.json.Decoder(ChosenTool)
_allowed: Final = msgspec.json.Decoder(AllowedTools)


def flat_name(namespace: str | None, name: str) -> str:
    """The name by which models know a tool."""
    return name if not namespace else f"{namespace}{_JOINT}{name}"


@dataclass(slots=True)
class Offered:
    """The tools of a request, as they are gathered.

    Attributes:
        tools: in the order given, by their flat names.
        schemas: path of each tool's schema in the request, by flat name.
        namespaces: namespace and own name of the members of namespaces, by flat name.
        without_hosted: whether hosted tools are left out instead of refused.
    """

    without_hosted: bool = False
    tools: list[Tool] = field(default_factory=list[Tool])
    schemas: dict[str, str] = field(default_factory=dict[str, str])
    namespaces: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    _bytes: int = 0

    def add(self, entries: Sequence[Raw], path: str, *, empty_namespaces: bool = False) -> None:
        """Take the tools that stand at `path`, each checked as it comes.

        Raises:
            CallerError: one is malformed, not served here, named twice, or strict against a rule.
        """
        names: set[str] = set()
        for index, raw in enumerate(entries):
            at = f"{path}[{index}]"
            match decode_at(_kind, raw, at).type:
                case kind if self.without_hosted and kind.startswith(_HOSTED):
                    continue
                case "namespace":
                    group = decode_at(_namespace, raw, at)
                    _check_name(group.name, names, at)
                    self._add_members(group, at, empty=empty_namespaces)
                case kind:
                    self._add(self._tool(kind, raw, at), names, at)

    def _add_members(self, group: NamespaceTool, path: str, *, empty: bool) -> None:
        if not group.tools and not empty:
            raise refusal(
                f"Invalid value for '{path}.tools': expected at least 1 elements.",
                param=f"{path}.tools",
                code="empty_array",
            )
        names: set[str] = set()
        heading = group.description
        for index, raw in enumerate(group.tools):
            at = f"{path}.tools[{index}]"
            tool = self._tool(decode_at(_kind, raw, at).type, raw, at)
            flat = flat_name(group.name, tool.name)
            self.namespaces[flat] = (group.name, tool.name)
            about = "\n\n".join(filter(None, (heading, tool.description))) or None
            heading = None
            _check_name(tool.name, names, at)
            self._add(msgspec.structs.replace(tool, name=flat, description=about), set(), at)

    def _add(self, tool: Tool, names: set[str], path: str) -> None:
        _check_name(tool.name, names, path)
        if tool.name in self.schemas:
            raise refusal(
                f"Two tools would be known to the model as '{tool.name}': rename one of them or "
                "its namespace.",
                param=f"{path}.name",
            )
        self.schemas[tool.name] = f"{path}.{'parameters' if tool.kind == 'function' else 'format'}"
        self.tools.append(tool)
        if len(self.tools) > MAX_TOOLS:
            raise refusal(
                f"At most {MAX_TOOLS} tools may be offered, members of namespaces included.",
                param="tools",
                code="array_above_max_length",
            )

    def _tool(self, kind: str, raw: Raw, path: str) -> Tool:
        match kind:
            case "function":
                return self._function(decode_at(_function, raw, path), path)
            case "custom":
                custom = decode_at(_custom, raw, path)
                _check_callers(custom, path)
                return custom_tool(custom.name, custom.description, custom.format, f"{path}.format")
            case _:
                raise _unsupported(kind, f"{path}.type")

    def _function(self, function: FunctionTool, path: str) -> Tool:
        _check_callers(function, path)
        owner, param = f"function '{function.name}'", f"{path}.parameters"
        self._bytes += memoryview(function.parameters).nbytes
        if self._bytes > MAX_SCHEMAS_BYTES:
            raise refusal(
                f"The parameters of all tools together exceed {MAX_SCHEMAS_BYTES:,} bytes.",
                param="tools",
                code="string_above_max_length",
            )
        schema = json_schema(function.parameters, param, owner)
        check_strict(schema, strict=function.strict, owner=owner, param=param)
        return Tool(function.name, schema, function.strict, function.description)


def chosen(raw: Raw, offered: Offered) -> Choice:
    """The choice among the tools; left out, it is `auto` with tools and `none` without.

    Raises:
        CallerError: a call is forced without tools, or a tool is named that is not offered.
    """
    tools = tuple(offered.tools)
    if not given(raw):
        return Choice("auto", tools) if tools else Choice()
    if bytes(raw).startswith(b'"'):
        return _by_word(decode_at(_word, raw, "tool_choice"), tools)
    kind = decode_at(_kind, raw, "tool_choice").type
    if kind == "allowed_tools":
        allowed = decode_at(_allowed, raw, "tool_choice")
        _need_tools(tools)
        names: set[str] = set()
        for index, entry in enumerate(allowed.tools):
            if offered.without_hosted and entry.type.startswith(_HOSTED):
                continue
            names.update(_named(entry, offered, f"tool_choice.tools[{index}]"))
        return Choice(allowed.mode, tuple(t for t in tools if t.name in names), stated=True)
    entry = decode_at(_chosen, raw, "tool_choice")
    if kind == "namespace":
        raise refusal(
            "A namespace cannot be forced: name one of its tools, or use 'allowed_tools'.",
            param="tool_choice.type",
        )
    found = _named(entry, offered, "tool_choice")
    return Choice("named", tuple(t for t in tools if t.name in found), stated=True)


def _by_word(word: str, tools: tuple[Tool, ...]) -> Choice:
    match word:
        case "none":
            return Choice("none", (), stated=True)
        case "auto":
            return Choice("auto", tools, stated=True) if tools else Choice()
        case "required":
            _need_tools(tools)
            return Choice("required", tools, stated=True)
        case _:
            raise refusal(
                f"Invalid value for 'tool_choice': '{shortened(word)}'. Supported values are "
                "'none', 'auto', 'required' or an object that names a tool.",
                param="tool_choice",
            )


def _named(entry: ChosenTool, offered: Offered, path: str) -> set[str]:
    """Flat names of what an entry names: one tool, or all of a namespace."""
    if entry.type not in ("function", "custom", "namespace"):
        raise _unsupported(entry.type, f"{path}.type")
    if entry.name is None:
        raise refusal(
            f"Missing required parameter: '{path}.name'.",
            param=f"{path}.name",
            code="missing_required_parameter",
        )
    _need_tools(offered.tools)
    if entry.type == "namespace":
        found = {flat for flat, (space, _) in offered.namespaces.items() if space == entry.name}
    else:
        kind: ToolKind = "custom" if entry.type == "custom" else "function"
        found = _of_name(entry, offered, {t.name for t in offered.tools if t.kind == kind})
    if not found:
        what = entry.type if entry.type == "namespace" else f"{entry.type} tool"
        raise refusal(
            f"Invalid value for '{path}': no {what} named '{shortened(entry.name)}' is among "
            "'tools'.",
            param=path,
        )
    if len(found) > 1 and entry.type != "namespace":
        raise refusal(
            f"Invalid value for '{path}': several namespaces have a tool named "
            f"'{shortened(entry.name)}'; say which by 'namespace'.",
            param=path,
        )
    return found


def _of_name(entry: ChosenTool, offered: Offered, flat_names: set[str]) -> set[str]:
    """The tool of that name; one of a namespace answers to its own name where it is alone."""
    name = entry.name or ""
    exact = flat_name(entry.namespace, name)
    if exact in flat_names or entry.namespace:
        return flat_names & {exact}
    return {flat for flat in flat_names if offered.namespaces.get(flat, ("", ""))[1] == name}


def _check_name(name: str, names: set[str], path: str) -> None:
    if name in names:
        raise refusal(f"Two tools are named '{name}': names must be unique.", param=f"{path}.name")
    names.add(name)


def _check_callers(tool: FunctionTool | CustomTool, path: str) -> None:
    if tool.allowed_callers is not None and "direct" not in tool.allowed_callers:
        raise refusal(
            f"'{path}.allowed_callers' must hold 'direct': programs do not run here.",
            param=f"{path}.allowed_callers",
            code="unsupported_value",
        )
    if tool.run_async:
        raise refusal(
            f"'{path}.async' is not supported: calls are answered in the next request.",
            param=f"{path}.async",
            code="unsupported_value",
        )


def _need_tools(tools: Sequence[Tool]) -> None:
    if not tools:
        raise refusal(
            "'tool_choice' asks for a call, and the request has no 'tools'.", param="tool_choice"
        )


def _unsupported(kind: str, path: str) -> CallerError:
    if kind.startswith(_HOSTED):
        why = ": hosted tools do not run here"
    elif kind.startswith(_CLIENTS):
        why = ": their calls, which the client runs, are not written here"
    else:
        why = ""
    return refusal(
        f"Tools of type '{shortened(kind)}' are not supported{why}. "
        "Supported are 'function', 'custom' and 'namespace'.",
        param=path,
        code="unsupported_value",
    )


def named(namespaces: Mapping[str, tuple[str, str]], flat: str) -> tuple[str | None, str]:
    """Namespace, if it has one, and own name of the tool that models know as `flat`."""
    return namespaces.get(flat, (None, flat))
