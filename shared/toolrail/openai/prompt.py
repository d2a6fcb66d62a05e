"""From a request to the prompt's text: what the chat template is given, and the rendering.

Equal requests give equal prompts, and a longer conversation starts with the shorter one's prompt
wherever the template allows it: ids of calls are made anew from what is in the conversation, tools
come in canonical spelling.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, assert_never, cast

from toolrail.families.family import PromptPolicy
from toolrail.openai.canonical import template_tool
from toolrail.openai.chat import ChatRequest
from toolrail.openai.conversation import (
    AssistantMessage,
    Instruction,
    Message,
    PastCall,
    ToolResult,
    UserMessage,
)
from toolrail.openai.habits import Habits, Template
from toolrail.openai.later_instructions import instructed_by_users
from toolrail.openai.refusals import refusal
from toolrail.openai.single_calls import one_call_each
from toolrail.tools import Tool

_ALPHANUMERIC: Final = string.digits + string.ascii_letters
_SHORT_ID_CHARS: Final = 9


def prompt_tools(request: ChatRequest, *, exclude_when_none: bool) -> tuple[Tool, ...]:
    """The tools that the prompt shows: all that were offered, or none under `none` if so set."""
    return () if request.choice.mode == "none" and exclude_when_none else request.tools


def render_prompt(
    request: ChatRequest,
    template: Template,
    habits: Habits,
    policy: PromptPolicy,
    *,
    exclude_tools_when_none: bool = True,
) -> str:
    """The prompt of `request`.

    Raises:
        CallerError: the template refuses the messages, or the prompt is beyond its budget.
        FaultError: the template failed.
    """
    tools = prompt_tools(request, exclude_when_none=exclude_tools_when_none)
    prompt = template.render(
        template_messages(request.messages, habits, policy),
        [template_tool(tool) for tool in tools] or None,
        add_generation_prompt=request.add_generation_prompt,
        **_variables(request, policy, tools),
    )
    return _up_to_final_text(request, prompt) if request.continue_final_message else prompt


def template_messages(
    messages: Sequence[Message], habits: Habits, policy: PromptPolicy
) -> list[dict[str, object]]:
    """The messages in the shape that chat templates read."""
    ids = _CallIds(policy.call_id)
    if not habits.later_instructions:
        messages = instructed_by_users(messages)
    if policy.single_calls:
        messages = one_call_each(messages)
    shown: list[dict[str, object]] = []
    for message in messages:
        if policy.text_apart and isinstance(message, AssistantMessage) and message.calls:
            shown += _text_before_calls(message, habits, policy, ids)
        else:
            shown.append(_template_message(message, habits, policy, ids))
    return shown


def _text_before_calls(
    message: AssistantMessage, habits: Habits, policy: PromptPolicy, ids: _CallIds
) -> list[dict[str, object]]:
    """The message, its text as one of its own before its calls."""
    if not message.content:
        return [_assistant(message, habits, policy, ids)]
    text, calls = replace(message, calls=()), replace(message, content=None, reasoning=None)
    return [
        {**_assistant(text, habits, policy, ids), **dict(policy.text_apart)},
        _assistant(calls, habits, policy, ids),
    ]


def _template_message(
    message: Message, habits: Habits, policy: PromptPolicy, ids: _CallIds
) -> dict[str, object]:
    match message:
        case Instruction(role, content, name):
            shown = role if habits.developer else "system"
            return _named({"role": shown, "content": content}, name)
        case UserMessage(content, name):
            return _named({"role": "user", "content": content}, name)
        case ToolResult(call_id, name, content):
            return {
                "role": "tool",
                "tool_call_id": ids.shown(call_id),
                "name": name,
                "content": content,
            }
        case AssistantMessage():
            return _assistant(message, habits, policy, ids)
        case _:
            assert_never(message)


def _assistant(
    message: AssistantMessage, habits: Habits, policy: PromptPolicy, ids: _CallIds
) -> dict[str, object]:
    shown: dict[str, object] = {
        "role": "assistant",
        "content": message.content or (habits.no_text if message.calls else ""),
    }
    if message.reasoning is not None:
        # Two spellings are in use where the family names none; templates read the one they know.
        shown.update(dict.fromkeys(policy.reasoning, message.reasoning))
    if message.calls:
        shown["tool_calls"] = [
            {
                "id": ids.issued(call),
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": call.value if habits.arguments == "object" else call.arguments,
                },
            }
            for call in message.calls
        ]
    return _named(shown, message.name)


def _named(message: dict[str, object], name: str | None) -> dict[str, object]:
    return message if name is None else {**message, "name": name}


class _CallIds:
    """Ids of past calls in the shape that the template knows, in the order of the conversation."""

    def __init__(self, shape: str) -> None:
        self._shape = shape
        self._issued: dict[str, str] = {}
        self._count = 0

    def issued(self, call: PastCall) -> str:
        """The id shown for the next call."""
        match self._shape:
            case "functions_index":
                shown = f"functions.{call.name}:{self._count}"
            case "nine_alphanumeric":
                shown = _short_id(call.id)
            case _:
                shown = call.id
        self._count += 1
        self._issued[call.id] = shown
        return shown

    def shown(self, call_id: str) -> str:
        """The id shown for the result of the call that the client knows as `call_id`."""
        return self._issued[call_id]


def _short_id(call_id: str) -> str:
    if len(call_id) == _SHORT_ID_CHARS and call_id.isascii() and call_id.isalnum():
        return call_id
    number = int.from_bytes(hashlib.blake2b(call_id.encode(), digest_size=8).digest())
    digits: list[str] = []
    for _ in range(_SHORT_ID_CHARS):
        number, digit = divmod(number, len(_ALPHANUMERIC))
        digits.append(_ALPHANUMERIC[digit])
    return "".join(digits)


def _variables(
    request: ChatRequest, policy: PromptPolicy, tools: Sequence[Tool]
) -> dict[str, object]:
    _refuse_foreign_fields(request, policy)
    variables: dict[str, object] = {**dict(policy.defaults), **request.model_fields}
    variables.update(request.template_kwargs)
    for name in policy.tool_names:
        if name in variables:
            variables[name] = _named_tools(request, name, variables[name])
            if not tools:  # kept out of the prompt, as the others are
                del variables[name]
    if request.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", request.reasoning_effort)
        if request.reasoning_effort == "none":
            variables.setdefault("enable_thinking", False)
            variables.setdefault("thinking", False)
    if request.choice.mode == "named":
        variables.update(policy.named_choice)
    variables.update(policy.fixed)
    return variables


def _refuse_foreign_fields(request: ChatRequest, policy: PromptPolicy) -> None:
    for name in request.model_fields:
        if name not in policy.request_fields:
            raise refusal(
                f"Unknown parameter: '{name}'. This model has no such switch.",
                param=name,
                code="unknown_parameter",
            )


def _named_tools(request: ChatRequest, variable: str, names: object) -> list[dict[str, object]]:
    """The offered tools that a template variable names, as the template is shown tools."""
    param = f"chat_template_kwargs.{variable}"
    if not isinstance(names, list):
        raise refusal(f"'{param}' must be an array of names.", param=param, code="invalid_type")
    offered = {tool.name: tool for tool in request.tools}
    shown: list[dict[str, object]] = []
    for index, name in enumerate(cast("list[object]", names)):
        tool = offered.get(name) if isinstance(name, str) else None
        if tool is None:
            where = f"{param}[{index}]"
            raise refusal(f"'{where}' names no tool of 'tools'.", param=where)
        shown.append(template_tool(tool))
    return shown


def _up_to_final_text(request: ChatRequest, prompt: str) -> str:
    """The prompt up to the end of the last message's text, for the model to go on from there."""
    last = request.messages[-1]
    text = last.content.rstrip() if isinstance(last, AssistantMessage) and last.content else ""
    start = prompt.rfind(text.strip())
    if start < 0:
        raise refusal(
            "The model's chat template does not show the last message as it is, so it cannot be "
            "continued.",
            param="continue_final_message",
            code="unsupported_value",
        )
    return prompt[: start + len(text.strip())]
