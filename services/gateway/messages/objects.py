"""The objects of the Messages API as typed records, and what ends a message in its words.

Source: Anthropic's API reference, version 2023-06-01 (anthropic-python 2.14.0).
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from toolrail.messages import ChoiceEnd
from toolrail.messages import Usage as UsageCounts

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class ThinkingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    """What the model thought."""

    thinking: str
    signature: str


class TextBlock(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """What it said."""

    text: str


class ToolUseBlock(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    """A call; `input` is a JSON object."""

    id: str
    name: str
    input: Raw


Block: TypeAlias = ThinkingBlock | TextBlock | ToolUseBlock


class OutputDetails(msgspec.Struct, frozen=True):
    """How much of the output was thinking."""

    thinking_tokens: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a message. Those read from the cache are not among the input tokens."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int
    output_tokens_details: OutputDetails | UnsetType = UNSET


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """An answer; without content while it has only begun."""

    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: tuple[Block, ...] = ()
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: Usage


class TokenCount(msgspec.Struct, frozen=True):
    """The answer of `count_tokens`."""

    input_tokens: int


EMPTY_INPUT: Final = Raw(b"{}")


def message_id(request_id: str) -> str:
    """The `id` of a message; holds the request id, so that a report names the request."""
    return f"msg_{request_id}"


def new_call_id() -> str:
    """A call id that is unique across turns: `toolu_` and 24 letters and digits."""
    return f"toolu_{secrets.token_hex(12)}"


class Signature:
    """What stands for the proof of a thinking block, which clients keep and send back.

    Nothing is signed and nothing is checked here. It must not be empty: some clients leave blocks
    without one out of the history. The same thinking has the same one, streamed or not.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, text: str) -> None:
        """More thinking."""
        self._hash.update(text.encode())

    def text(self) -> str:
        """Of all that was added."""
        return self._hash.hexdigest()


def stop_of(end: ChoiceEnd, complete_calls: int) -> tuple[StopReason, str | None]:
    """Why the message ended, and the stop sequence if it was one.

    As in Chat Completions: a cut answer says so whatever was called before, then a complete call.
    """
    if end.finish == "length":
        return "max_tokens", None
    if complete_calls:
        return "tool_use", None
    if isinstance(end.stop, str):
        return "stop_sequence", end.stop
    return "end_turn", None


def usage(counts: UsageCounts) -> Usage:
    """The usage of a finished message."""
    return Usage(
        input_tokens=counts.prompt_tokens - counts.cached_tokens,
        cache_read_input_tokens=counts.cached_tokens,
        output_tokens=counts.completion_tokens,
        output_tokens_details=OutputDetails(counts.reasoning_tokens),
    )
