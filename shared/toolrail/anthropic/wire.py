"""The body of a Messages request as it travels: shapes, types and ranges, no meaning.

Every field of the published reference is here, those of its betas included; a field that is not
here is refused. Content blocks, tools and the choice among these stay `Raw` until `blocks` and
`tools` read them: their kind decides how, and what a refusal says.

Source of the shapes: Anthropic's API reference, `POST /v1/messages` and
`POST /v1/messages/count_tokens`, version 2023-06-01 (anthropic-python 2.14.0).
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw

from toolrail.openai.limits import (
    MAX_MESSAGES,
    MAX_MODEL_CHARS,
    MAX_PARTS,
    MAX_STOP_STRINGS,
    MAX_TOOLS,
)
from toolrail.openai.wire import ABSENT, StopString

Effort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
Content: TypeAlias = str | Annotated[list[Raw], Meta(max_length=MAX_PARTS)]


class WireTurn(msgspec.Struct, frozen=True):
    """A message. `role` is checked where it is read, to say what may stand there."""

    role: str
    content: Content


class ThinkingEnabled(msgspec.Struct, frozen=True, tag_field="type", tag="enabled"):
    """Thinking, up to a budget that no engine here can hold."""

    budget_tokens: Annotated[int, Meta(ge=1)] | None = None


class ThinkingAdaptive(msgspec.Struct, frozen=True, tag_field="type", tag="adaptive"):
    """Thinking as the model sees fit."""


class ThinkingBetweenTools(msgspec.Struct, frozen=True, tag_field="type", tag="between_tools"):
    """Thinking also between calls, which is the models' own affair."""


class ThinkingDisabled(msgspec.Struct, frozen=True, tag_field="type", tag="disabled"):
    """No thinking."""


Thinking: TypeAlias = ThinkingEnabled | ThinkingAdaptive | ThinkingBetweenTools | ThinkingDisabled


class JsonFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_schema"):
    """The text of the answer is JSON of this schema."""

    schema: Raw = ABSENT


class OutputConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to answer. `task_budget` is accepted and not held."""

    effort: Effort | None = None
    format: JsonFormat | None = None
    task_budget: Raw = ABSENT


class MessagesBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of both requests; only one of them needs `max_tokens`."""

    model: Annotated[str, Meta(min_length=1, max_length=MAX_MODEL_CHARS)]
    messages: Annotated[list[WireTurn], Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    system: Content | None = None
    tools: Annotated[list[Raw], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Raw = ABSENT
    stop_sequences: Annotated[list[StopString], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=1 << 31)] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: JsonFormat | None = None

    # Of chat templates, as in Chat Completions.
    chat_template_kwargs: Raw = ABSENT

    # Accepted: they change nothing in the answer, or ask for what is done anyway.
    metadata: Raw = ABSENT
    cache_control: Raw = ABSENT
    service_tier: Literal["auto", "standard_only"] | None = None
    speed: Literal["standard", "fast"] | None = None
    inference_geo: str | None = None
    user_profile_id: str | None = None
    workspace_id: str | None = None
    billing_policy: Raw = ABSENT
    diagnostics: Raw = ABSENT
    context_management: Raw = ABSENT
    fallbacks: Raw = ABSENT
    fallback_credit_token: Raw = ABSENT
    betas: Raw = ABSENT

    # Refused unless null or empty.
    compaction: Raw = ABSENT
    container: Raw = ABSENT
    mcp_servers: Raw = ABSENT
    thread: Raw = ABSENT


decoder: msgspec.json.Decoder[MessagesBody] = msgspec.json.Decoder(MessagesBody)
