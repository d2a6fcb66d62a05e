"""The response objects of the OpenAI API as typed records, and their one encoder.

Fields without a default are always present, as the published schema requires; `UNSET` leaves a
field out. Source: OpenAI OpenAPI document 2.3.0, `CreateChatCompletionResponse`,
`ChatCompletionTokenLogprob`, `CompletionUsage`, `Model`, `ErrorResponse`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from toolrail.messages import Usage as UsageCounts
from toolrail.messages import VisibleLogprob

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]

_MIN_LOGPROB: Final = -9999.0
"""Stands for minus infinity, which JSON lacks; the value vLLM and the hosted API send."""

_encoder = msgspec.json.Encoder()


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong; `type` and `code` are for programs, `message` for people."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every error answer, and the data of an error in a stream."""

    error: Error


class PromptDetails(msgspec.Struct, frozen=True):
    """How much of the prompt came from the prefix cache."""

    cached_tokens: int


class CompletionDetails(msgspec.Struct, frozen=True):
    """How much of the completion was reasoning."""

    reasoning_tokens: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the whole request, all choices together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class TopLogprob(msgspec.Struct, frozen=True):
    """An alternative at a position."""

    token: str
    logprob: float
    bytes: tuple[int, ...]


class TokenLogprob(msgspec.Struct, frozen=True):
    """A token of the output, its logprob and its alternatives, best first."""

    token: str
    logprob: float
    bytes: tuple[int, ...]
    top_logprobs: tuple[TopLogprob, ...]


class Logprobs(msgspec.Struct, frozen=True):
    """Logprobs of a choice or of a chunk of it."""

    content: tuple[TokenLogprob, ...]
    refusal: None = None


class Function(msgspec.Struct, frozen=True):
    """The function a call names, with its arguments as JSON text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """A complete call of a message."""

    id: str
    function: Function
    type: Literal["function"] = "function"


class Custom(msgspec.Struct, frozen=True):
    """The custom tool a call names, with its raw input."""

    name: str
    input: str


class CustomToolCall(msgspec.Struct, frozen=True):
    """A complete call of a custom tool."""

    id: str
    custom: Custom
    type: Literal["custom"] = "custom"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """The assistant's message. One of the two reasoning fields is set where a model reasons."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: tuple[ToolCall | CustomToolCall, ...] | UnsetType = UNSET


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One of the n answers."""

    index: int
    message: Message
    logprobs: Logprobs | None
    finish_reason: FinishReason


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a request that does not stream."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[Choice, ...]
    usage: Usage


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be served now. `max_model_len` as vLLM's clients know it."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "toolrail"
    max_model_len: int


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /v1/models`."""

    object: Literal["list"] = "list"
    data: tuple[Model, ...]


def to_json(value: object) -> bytes:
    """`value` as JSON text."""
    return _encoder.encode(value)


def usage(counts: UsageCounts) -> Usage:
    """The usage object of a request's counts."""
    return Usage(
        prompt_tokens=counts.prompt_tokens,
        completion_tokens=counts.completion_tokens,
        total_tokens=counts.prompt_tokens + counts.completion_tokens,
        prompt_tokens_details=PromptDetails(counts.cached_tokens),
        completion_tokens_details=CompletionDetails(counts.reasoning_tokens),
    )


def logprobs(entries: Iterable[VisibleLogprob]) -> Logprobs:
    """The logprobs object of a run of output tokens."""
    return Logprobs(tuple(token_logprob(entry) for entry in entries))


def token_logprob(entry: VisibleLogprob) -> TokenLogprob:
    """The logprob object of one output token."""
    top = tuple(
        TopLogprob(text, max(value, _MIN_LOGPROB), tuple(data)) for text, value, data in entry.top
    )
    return TokenLogprob(entry.token, max(entry.logprob, _MIN_LOGPROB), tuple(entry.data), top)
