"""The body of a Responses request as it travels: shapes, types and ranges, no meaning.

Every field of the published schema is here, and the usual extras of vLLM; a field that is not here
is refused. Lists whose members differ in kind (`input`, `tools`) and what the response repeats
stay `Raw` until somebody who knows the kind reads them.

Source of the shapes: OpenAI's API reference, `POST /v1/responses` (openai-python 3.57.0).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw

from toolrail.openai.limits import (
    MAX_BAD_WORDS,
    MAX_LOGIT_BIAS,
    MAX_MESSAGES,
    MAX_MODEL_CHARS,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    MAX_TOOLS,
    MAX_TOP_LOGPROBS,
)
from toolrail.openai.wire import ABSENT, Effort, Metadata, Name, StopString

SummaryKind: TypeAlias = Literal["auto", "concise", "detailed"]
Include: TypeAlias = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]
LOGPROBS: Final[Include] = "message.output_text.logprobs"


class TextFormat(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """`text.format`: free text."""


class JsonObjectFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_object"):
    """`text.format`: some JSON object."""


class JsonSchemaFormat(
    msgspec.Struct, frozen=True, tag_field="type", tag="json_schema", forbid_unknown_fields=True
):
    """`text.format`: JSON of this schema."""

    name: Name
    schema: Raw = ABSENT
    description: str | None = None
    strict: bool | None = None


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the text of the answer must be."""

    format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reason. `generate_summary` is the old name of `summary`."""

    effort: Effort | None = None
    summary: SummaryKind | None = None
    generate_summary: SummaryKind | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: str | None = None


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to stream."""

    include_obfuscation: bool | None = None


class ResponsesBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body. All fields but the model may be absent or null."""

    model: Annotated[str, Meta(min_length=1, max_length=MAX_MODEL_CHARS)]
    input: str | Annotated[list[Raw], Meta(max_length=MAX_MESSAGES)] | None = None
    instructions: str | None = None
    previous_response_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None

    tools: Annotated[list[Raw], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Raw = ABSENT
    parallel_tool_calls: bool | None = None
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    text: Text | None = None
    reasoning: Reasoning | None = None
    include: Annotated[list[Include], Meta(max_length=64)] | None = None

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    store: bool | None = None
    background: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    truncation: Literal["auto", "disabled"] | None = None

    # Accepted: they change nothing in the answer, or ask for what is done anyway.
    metadata: Metadata | None = None
    user: str | None = None
    safety_identifier: Annotated[str, Meta(max_length=128)] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    service_tier: Literal["auto", "default"] | None = None
    client_metadata: dict[str, Raw] | None = None  # Codex's, about itself

    # vLLM's, honoured.
    presence_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=1 << 31)] | None = None
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    include_stop_str_in_output: bool | None = None
    stop_token_ids: (
        Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=MAX_STOP_TOKEN_IDS)] | None
    ) = None
    bad_words: (
        Annotated[
            list[Annotated[str, Meta(min_length=1, max_length=256)]], Meta(max_length=MAX_BAD_WORDS)
        ]
        | None
    ) = None
    logit_bias: (
        Annotated[
            dict[str, Annotated[float, Meta(ge=-100.0, le=100.0)]], Meta(max_length=MAX_LOGIT_BIAS)
        ]
        | None
    ) = None
    ignore_eos: bool | None = None
    chat_template_kwargs: Raw = ABSENT

    # Of some families alone (`PromptPolicy.request_fields`); with any other model they are refused.
    preserve_thinking: bool | None = None
    allow_missing_thinking: bool | None = None

    # Refused unless null.
    access_programs: Raw = ABSENT
    background_options: Raw = ABSENT
    context_management: Raw = ABSENT
    conversation: Raw = ABSENT
    image: Raw = ABSENT
    moderation: Raw = ABSENT
    prompt: Raw = ABSENT
    prompt_cache_options: Raw = ABSENT


body_decoder: Final = msgspec.json.Decoder(ResponsesBody)
