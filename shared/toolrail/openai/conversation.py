"""The messages of a request as precise records, whoever wrote the history.

History is untrusted: other services and clients leave out fields, send null or empty arguments, use
ids of any shape. What can be read is read; what cannot be given to a model faithfully (arguments
that are not a JSON object, results of calls that were never made, images) is a 400 with its path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, assert_never, cast

from toolrail.errors import CallerError
from toolrail.openai.decode import decode_json
from toolrail.openai.refusals import refusal, shortened
from toolrail.openai.wire import (
    AssistantTurn,
    Content,
    DeveloperTurn,
    FunctionTurn,
    Part,
    PastToolCall,
    RefusalPart,
    SystemTurn,
    TextPart,
    ToolTurn,
    UserTurn,
    WireMessage,
    given,
)
from toolrail.parsing.custom import wrapped
from toolrail.tools import INPUT

_PART_SEPARATOR: Final = "\n"
"""Between text parts of one message, as the peers join them."""

MAX_ARGUMENTS_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Instruction:
    """A system or developer message."""

    role: Literal["system", "developer"]
    content: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user says."""

    content: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call in history: `arguments` as the JSON text that was given, `value` as the object."""

    id: str
    name: str
    arguments: str
    value: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """An earlier answer. `content` None: it only called, or only reasoned."""

    content: str | None
    reasoning: str | None = None
    calls: tuple[PastCall, ...] = ()
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave; `name` is the called function's."""

    call_id: str
    name: str
    content: str


Message: TypeAlias = Instruction | UserMessage | AssistantMessage | ToolResult


def conversation(turns: Sequence[WireMessage]) -> tuple[Message, ...]:
    """The messages in order. O(size).

    Raises:
        CallerError: a message cannot be given to a model; `param` says which and where.
    """
    called: dict[str, str] = {}
    messages: list[Message] = []
    for position, turn in enumerate(turns):
        message = _message(turn, f"messages[{position}]", called)
        if isinstance(message, AssistantMessage):
            called.update((call.id, call.name) for call in message.calls)
        messages.append(message)
    return tuple(messages)


def _message(turn: WireMessage, path: str, called: Mapping[str, str]) -> Message:
    match turn:
        case SystemTurn():
            return Instruction("system", _text(turn.content, path), turn.name)
        case DeveloperTurn():
            return Instruction("developer", _text(turn.content, path), turn.name)
        case UserTurn():
            return UserMessage(_text(turn.content, path), turn.name)
        case AssistantTurn():
            return _assistant(turn, path)
        case ToolTurn():
            return _result(turn, path, called)
        case FunctionTurn():
            raise refusal(
                "Messages with role 'function' are deprecated and not supported: use 'tool' with "
                "'tool_call_id'.",
                param=f"{path}.role",
                code="unsupported_value",
            )
        case _:
            assert_never(turn)


def _assistant(turn: AssistantTurn, path: str) -> AssistantMessage:
    for name in ("function_call", "audio"):
        if given(getattr(turn, name)):
            raise refusal(
                f"'{name}' of an assistant message is not supported.",
                param=f"{path}.{name}",
                code="unsupported_parameter",
            )
    calls = tuple(
        _call(call, f"{path}.tool_calls[{index}]")
        for index, call in enumerate(turn.tool_calls or ())
    )
    seen: set[str] = set()
    for index, call in enumerate(calls):
        if call.id in seen:
            raise refusal(
                f"Two calls of one message have the id '{shortened(call.id)}'.",
                param=f"{path}.tool_calls[{index}].id",
            )
        seen.add(call.id)
    content = None if turn.content is None else _text(turn.content, path)
    if content is None and not calls:
        content = turn.refusal or ""
    reasoning = turn.reasoning_content or turn.reasoning or None
    return AssistantMessage(content, reasoning, calls, turn.name)


def custom_call(call_id: str, name: str, text: str) -> PastCall:
    """A past call of a custom tool, as the model wrote it: the input in a function's arguments."""
    return PastCall(call_id, name, wrapped(text), {INPUT: text})


def _call(call: PastToolCall, path: str) -> PastCall:
    if call.type == "custom":
        if call.custom is None:
            raise _missing(f"{path}.custom")
        return custom_call(call.id, call.custom.name, call.custom.input or "")
    if call.function is None:
        raise _missing(f"{path}.function")
    text = call.function.arguments
    if text is None or not text.strip():
        return PastCall(call.id, call.function.name, "{}", {})
    where = f"{path}.function.arguments"
    value = decode_json(text, where, max_bytes=MAX_ARGUMENTS_BYTES)
    if not isinstance(value, dict):
        raise refusal(
            f"'{where}' must be the JSON text of an object.", param=where, code="invalid_type"
        )
    return PastCall(call.id, call.function.name, text, cast("dict[str, object]", value))


def _missing(path: str) -> CallerError:
    return refusal(
        f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter"
    )


def _result(turn: ToolTurn, path: str, called: Mapping[str, str]) -> ToolResult:
    name = called.get(turn.tool_call_id)
    if name is None:
        raise refusal(
            f"No assistant message before '{path}' made a call with the id "
            f"'{shortened(turn.tool_call_id)}': a 'tool' message must follow the message whose "
            "'tool_calls' it answers.",
            param=f"{path}.tool_call_id",
        )
    content = "" if turn.content is None else _text(turn.content, path)
    return ToolResult(turn.tool_call_id, name, content)


def _text(content: Content, path: str) -> str:
    if isinstance(content, str):
        return content
    return _PART_SEPARATOR.join(
        _part(part, f"{path}.content[{index}]") for index, part in enumerate(content)
    )


def _part(part: Part, path: str) -> str:
    match part:
        case TextPart(text):
            return text
        case RefusalPart(text):
            return text
        case _:
            kind = part.__struct_config__.tag
            raise refusal(
                f"Content of type '{kind}' is not supported: the models served here read text.",
                param=f"{path}.type",
                code="unsupported_value",
            )
