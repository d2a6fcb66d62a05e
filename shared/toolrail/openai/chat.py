"""A Chat Completions request, parsed and checked once: what the rest of the request side reads.

Checks here need no model. `check_chat` adds the strict preflight and is what `toolrail check` and
the server run on every body, before the model is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from toolrail.errors import CallerError
from toolrail.openai.answers import Answer, GuidedAnswer, JsonAnswer, answer
from toolrail.openai.conversation import AssistantMessage, Message, conversation
from toolrail.openai.decode import decode, decode_json
from toolrail.openai.functions import Choice, choice, tools_of
from toolrail.openai.refusals import refusal
from toolrail.openai.sampling import Wishes, wishes
from toolrail.openai.strict import check_strict
from toolrail.openai.wire import ChatBody, decoder, given
from toolrail.tools import Tool

_REFUSED: Final = {
    "audio": "the models served here write text",
    "functions": "it is deprecated, use 'tools'",
    "function_call": "it is deprecated, use 'tool_choice'",
    "moderation": "there is no moderation here",
    "prediction": "predicted outputs are not used here",
    "prompt_cache_options": "the prefix cache has no breakpoints and no lifetimes to choose",
    "web_search_options": "there is no web search here",
}
_FIXED: Final[Mapping[str, tuple[object, str]]] = {
    "verbosity": ("medium", "open models have no such switch"),
    "add_special_tokens": (False, "the chat template writes them"),
    "echo": (False, "the prompt is not repeated"),
    "include_reasoning": (
        True,
        'reasoning has a field of its own; "reasoning_effort": "none" switches it off',
    ),
    "length_penalty": (1.0, "it belongs to beam search"),
    "priority": (0, "requests are served in their order"),
    "prompt_logprobs": (None, "the engine is asked for logprobs of its own tokens alone"),
    "return_token_ids": (False, "answers are text"),
    "return_tokens_as_token_ids": (False, "answers are text"),
    "skip_special_tokens": (True, "control strings are read here and never text"),
    "spaces_between_special_tokens": (True, "control strings are read here and never text"),
    "use_beam_search": (False, "answers are sampled"),
}
"""Fields with the one value that they may have, and why no other."""

TEMPLATE_NAMES: Final = frozenset(
    {
        "add_generation_prompt",
        "bos_token",
        "caller",
        "chat_template",
        "continue_final_message",
        "cycler",
        "dict",
        "documents",
        "eos_token",
        "joiner",
        "lipsum",
        "loop",
        "messages",
        "namespace",
        "raise_exception",
        "range",
        "self",
        "strftime_now",
        "tokenize",
        "tools",
    }
)
"""Variables of a chat template that `chat_template_kwargs` may not replace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What of a request's API later steps need: its words, and what its answers repeat.

    Attributes:
        conversation: the field of the conversation, in refusals.
        answer: the field of the answer's format.
        schemas: path of each tool's schema, by name; None: as Chat Completions has them.
        namespaces: namespace and own name of tools that the model knows by another, by that one.
        echo: fields of the request that the response object repeats.
        chain: stored responses that it follows, oldest first.
    """

    conversation: str = "messages"
    answer: str = "response_format"
    schemas: Mapping[str, str] | None = None
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    echo: Mapping[str, object] = field(default_factory=dict[str, object])
    chain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What a request says, in precise types.

    Attributes:
        model: the name asked for.
        messages: the conversation.
        tools: all tools offered, in order.
        choice: which of them may be called.
        parallel_tool_calls: False: at most one call.
        max_calls: calls after which the answer ends, None: no bound.
        answer: what the text of the answer must be.
        wishes: sampling.
        num_choices: how many answers.
        stream: whether to stream.
        include_usage: whether a stream ends with the usage.
        template_kwargs: extra variables of the chat template.
        model_fields: fields that only some models know, as the request says them.
        reasoning_effort: as the request says it, or None.
        add_generation_prompt: whether the prompt opens the assistant's turn.
        continue_final_message: the last message is the beginning of the answer.
        truncate: the oldest messages may be left out where all of them do not fit.
        origin: of the API that it came through.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    choice: Choice
    parallel_tool_calls: bool = True
    max_calls: int | None = None
    answer: Answer
    wishes: Wishes
    num_choices: int = 1
    stream: bool = False
    include_usage: bool = False
    template_kwargs: Mapping[str, object]
    model_fields: Mapping[str, bool] = field(default_factory=dict[str, bool])
    reasoning_effort: str | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    truncate: bool = False
    origin: Origin = Origin()


def check_chat(body: bytes) -> ChatRequest:
    """`parse_chat`, then the strict preflight of everything that says `strict: true`.

    Raises:
        CallerError: the request is at fault.
    """
    request = parse_chat(body)
    for index, tool in enumerate(request.tools):
        check_strict(
            tool.parameters,
            strict=tool.strict,
            owner=f"function '{tool.name}'",
            param=f"tools[{index}].function.parameters",
        )
    wanted = request.answer
    if isinstance(wanted, JsonAnswer):
        check_strict(
            wanted.schema,
            strict=wanted.strict,
            owner=f"response_format '{wanted.name}'",
            param="response_format.json_schema.schema",
        )
    return request


def parse_chat(body: bytes) -> ChatRequest:
    """The request in `body`, every field typed, ranged and checked against the others.

    Raises:
        CallerError: with the path of the field at fault.
    """
    wire = decode(decoder, body)
    _refuse_unsupported(wire)
    tools = tools_of(wire.tools)
    chosen = choice(wire.tool_choice, tools)
    wanted = answer(wire)
    _refuse_guided_beside_call(wanted, chosen)
    messages = conversation(wire.messages)
    add, resume = _final_turn(wire, messages)
    stream = bool(wire.stream)
    return ChatRequest(
        model=wire.model,
        messages=messages,
        tools=tools,
        choice=chosen,
        parallel_tool_calls=wire.parallel_tool_calls is not False,
        answer=wanted,
        wishes=wishes(wire),
        num_choices=wire.n or 1,
        stream=stream,
        include_usage=_include_usage(wire, stream),
        template_kwargs=template_kwargs(wire.chat_template_kwargs),
        model_fields=_model_fields(wire),
        reasoning_effort=wire.reasoning_effort,
        add_generation_prompt=add,
        continue_final_message=resume,
    )


def _refuse_unsupported(wire: ChatBody) -> None:
    for name, reason in _REFUSED.items():
        if given(cast("msgspec.Raw", getattr(wire, name))):
            raise _unsupported(name, reason)
    if wire.store:
        raise _unsupported("store", "nothing is stored here", code="unsupported_value")
    for name, (value, reason) in _FIXED.items():
        if getattr(wire, name) not in (None, value):
            raise _unsupported(name, reason, code="unsupported_value")
    if wire.modalities is not None and wire.modalities != ["text"]:
        raise _unsupported(
            "modalities", "the models served here write text", code="unsupported_value"
        )


def _model_fields(wire: ChatBody) -> dict[str, bool]:
    found = {
        "preserve_thinking": wire.preserve_thinking,
        "allow_missing_thinking": wire.allow_missing_thinking,
    }
    return {name: value for name, value in found.items() if value is not None}


def _refuse_guided_beside_call(wanted: Answer, chosen: Choice) -> None:
    if isinstance(wanted, GuidedAnswer) and chosen.mode in ("required", "named"):
        raise refusal(
            f"'{wanted.param}' holds all output from the first token on, so the call that "
            "'tool_choice' forces could not be written: drop one of them.",
            param=wanted.param,
        )


def _include_usage(wire: ChatBody, stream: bool) -> bool:
    options = wire.stream_options
    if options is None:
        return False
    if not stream:
        raise refusal(
            "'stream_options' is only allowed when 'stream' is true.", param="stream_options"
        )
    for name in ("include_obfuscation", "continuous_usage_stats"):
        if getattr(options, name):
            raise _unsupported(f"stream_options.{name}", "it is not offered here")
    return bool(options.include_usage)


def _final_turn(wire: ChatBody, messages: tuple[Message, ...]) -> tuple[bool, bool]:
    """Whether the prompt opens an assistant turn, and whether it continues the last message."""
    resume = bool(wire.continue_final_message)
    add = not resume if wire.add_generation_prompt is None else wire.add_generation_prompt
    if not resume:
        return add, False
    if add:
        raise refusal(
            "'continue_final_message' and 'add_generation_prompt' exclude each other.",
            param="continue_final_message",
        )
    last = messages[-1]
    if not isinstance(last, AssistantMessage) or last.calls or not (last.content or "").strip():
        raise refusal(
            "'continue_final_message' needs a last message of the assistant with text and without "
            "calls.",
            param="continue_final_message",
        )
    return False, True


def template_kwargs(raw: msgspec.Raw) -> Mapping[str, object]:
    """The extra variables of the chat template. Raises CallerError for those that are taken."""
    path = "chat_template_kwargs"
    if not given(raw):
        return {}
    value = decode_json(raw, path)
    if not isinstance(value, dict):
        raise refusal(
            f"Invalid type for '{path}': expected an object.", param=path, code="invalid_type"
        )
    variables = cast("dict[str, object]", value)
    for name in variables:
        if name in TEMPLATE_NAMES or not name.isidentifier():
            raise refusal(f"'{path}' may not set '{name[:80]}'.", param=f"{path}.{name[:80]}")
    return variables


def _unsupported(param: str, reason: str, *, code: str = "unsupported_parameter") -> CallerError:
    return refusal(f"'{param}' is not supported: {reason}.", param=param, code=code)
