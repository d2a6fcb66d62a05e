"""A Messages request, parsed and checked once, as the one internal form.

Checks here need no model. What this API has and open models do not (images, server tools,
containers) is refused with the reason; hints of its service (cache control, tiers, regions) are
accepted and have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from toolrail.anthropic.conversation import conversation
from toolrail.anthropic.tools import choice, tools_of
from toolrail.anthropic.wire import (
    JsonFormat,
    MessagesBody,
    ThinkingDisabled,
    decoder,
)
from toolrail.openai.answers import ANY_OBJECT, Answer, FreeAnswer, JsonAnswer
from toolrail.openai.chat import ChatRequest, Origin, template_kwargs
from toolrail.openai.conversation import AssistantMessage, Message
from toolrail.openai.decode import decode
from toolrail.openai.functions import json_schema
from toolrail.openai.refusals import refusal
from toolrail.openai.sampling import Wishes
from toolrail.openai.wire import given

_REFUSED: Final = {
    "compaction": "conversations are not compacted here, ask for a summary",
    "container": "no code runs here",
    "mcp_servers": "no tools run here: connect to them and offer their tools as custom ones",
    "thread": "no conversations are kept here, send all messages",
}
THREAD_REFUSED: Final = "thread_unsupported_request"
"""The code at which clients go on without a thread, by themselves."""
_THINKING_SWITCHES: Final = ("enable_thinking", "thinking")
"""What chat templates call the switch; each reads the one that it knows."""


def check_messages(body: bytes) -> ChatRequest:
    """The request in `body`, every field typed, ranged and checked against the others.

    Raises:
        CallerError: with the path of the field at fault.
    """
    wire = decode(decoder, body)
    if wire.max_tokens is None:
        raise refusal(
            "Missing required parameter: 'max_tokens'.",
            param="max_tokens",
            code="missing_required_parameter",
        )
    return _request(wire)


def check_count(body: bytes) -> ChatRequest:
    """The same for a request whose prompt is only counted: it needs no `max_tokens`.

    Raises:
        CallerError: with the path of the field at fault.
    """
    return _request(decode(decoder, body))


def _request(wire: MessagesBody) -> ChatRequest:
    for name, reason in _REFUSED.items():
        value = cast("msgspec.Raw", getattr(wire, name))
        if given(value) and bytes(value) not in (b"[]", b"{}"):
            code = THREAD_REFUSED if name == "thread" else "unsupported_parameter"
            raise refusal(f"'{name}' is not supported: {reason}.", param=name, code=code)
    tools = tools_of(wire.tools or ())
    messages = conversation(wire.system, wire.messages)
    resumed = _resumes(messages)
    chosen, parallel = choice(wire.tool_choice, tools)
    return ChatRequest(
        model=wire.model,
        messages=messages,
        tools=tools,
        choice=chosen,
        parallel_tool_calls=parallel,
        answer=_answer(wire),
        wishes=Wishes(
            max_tokens=wire.max_tokens,
            temperature=wire.temperature,
            top_p=wire.top_p,
            top_k=wire.top_k,
            stop=tuple(dict.fromkeys(wire.stop_sequences or ())),
        ),
        stream=bool(wire.stream),
        include_usage=True,
        template_kwargs={**_thinking(wire), **template_kwargs(wire.chat_template_kwargs)},
        reasoning_effort=wire.output_config.effort if wire.output_config else None,
        add_generation_prompt=not resumed,
        continue_final_message=resumed,
        origin=Origin(
            answer="output_config.format" if wire.output_format is None else "output_format",
            schemas={tool.name: f"tools[{i}].input_schema" for i, tool in enumerate(tools)},
        ),
    )


def _answer(wire: MessagesBody) -> Answer:
    config, name = wire.output_config, "output_config.format"
    wanted: JsonFormat | None = config.format if config else None
    if wire.output_format is not None:
        if wanted is not None:
            raise refusal(
                "'output_format' and 'output_config.format' say the same: drop one of them.",
                param="output_format",
            )
        wanted, name = wire.output_format, "output_format"
    if wanted is None:
        return FreeAnswer()
    schema = json_schema(wanted.schema, f"{name}.schema", f"'{name}'")
    return JsonAnswer(ANY_OBJECT if schema is None else schema, "answer", strict=True)


def _thinking(wire: MessagesBody) -> Mapping[str, object]:
    """The template's switches; none where the request does not speak of thinking."""
    if wire.thinking is None:
        return {}
    return dict.fromkeys(_THINKING_SWITCHES, not isinstance(wire.thinking, ThinkingDisabled))


def _resumes(messages: tuple[Message, ...]) -> bool:
    """Whether the last message is the beginning of the answer.

    Raises:
        CallerError: it is one of the assistant and has nothing to go on from.
    """
    if not messages:
        raise refusal("'messages' must hold a message.", param="messages", code="empty_array")
    last = messages[-1]
    if not isinstance(last, AssistantMessage):
        return False
    if last.calls or not (last.content or "").strip():
        raise refusal(
            "The last message is one of the assistant, so the answer would go on from its text: it "
            "has no text, or a 'tool_use' that needs its 'tool_result' first.",
            param="messages",
        )
    return True
