"""The body of a Chat Completions request as it travels: shapes, types and ranges, no meaning.

Every field of the published schema is here, and the usual extras of vLLM and of the product
specification; a field that is not here is refused. Where a schema is silent about extra keys of a
message, they are ignored: history comes back with whatever other services put into it. Free JSON
(schemas, template variables) stays `Raw` until something bounded decodes it.

Source of the shapes: OpenAI's API reference, `POST /v1/chat/completions` (openai-python 3.57.0).
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw

from toolrail.openai.limits import (
    MAX_BAD_WORDS,
    MAX_CALLS,
    MAX_CHOICES,
    MAX_GUIDED_CHARS,
    MAX_INPUT_CHARS,
    MAX_LOGIT_BIAS,
    MAX_MESSAGES,
    MAX_MODEL_CHARS,
    MAX_STOP_CHARS,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    MAX_TOOLS,
    MAX_TOP_LOGPROBS,
)

ABSENT = Raw(b"")
"""Default of a `Raw` field. A null that was given is `b"null"`."""

Name: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
StopString: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]
"""`metadata`: at most 16 pairs, as published."""
GuidedText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_GUIDED_CHARS)]


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A part of text."""

    text: str


class RefusalPart(msgspec.Struct, frozen=True, tag_field="type", tag="refusal"):
    """An assistant's refusal in history."""

    refusal: str


class ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    """An image: refused."""


class AudioPart(msgspec.Struct, frozen=True, tag_field="type", tag="input_audio"):
    """A sound: refused."""


class FilePart(msgspec.Struct, frozen=True, tag_field="type", tag="file"):
    """A file: refused."""


class VideoPart(msgspec.Struct, frozen=True, tag_field="type", tag="video_url"):
    """A video (vLLM): refused."""


Part: TypeAlias = TextPart | RefusalPart | ImagePart | AudioPart | FilePart | VideoPart
Content: TypeAlias = str | list[Part]


class FunctionOfCall(msgspec.Struct, frozen=True):
    """What a past call asked for; `arguments` is JSON text, in foreign histories null or empty."""

    name: Annotated[str, Meta(min_length=1, max_length=256)]
    arguments: str | None = None


class CustomOfCall(msgspec.Struct, frozen=True):
    """What a past call of a custom tool passed; in foreign histories null for nothing."""

    name: Annotated[str, Meta(min_length=1, max_length=256)]
    input: Annotated[str, Meta(max_length=MAX_INPUT_CHARS)] | None = None


class PastToolCall(msgspec.Struct, frozen=True):
    """A call in history. Not a union tagged by `type`: some clients leave it out."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]
    type: Literal["function", "custom"] = "function"
    function: FunctionOfCall | None = None
    custom: CustomOfCall | None = None


class SystemTurn(msgspec.Struct, frozen=True, tag_field="role", tag="system"):
    """A system message."""

    content: Content
    name: str | None = None


class DeveloperTurn(msgspec.Struct, frozen=True, tag_field="role", tag="developer"):
    """A developer message: what system messages are called for newer models."""

    content: Content
    name: str | None = None


class UserTurn(msgspec.Struct, frozen=True, tag_field="role", tag="user"):
    """A user message."""

    content: Content
    name: str | None = None


class AssistantTurn(msgspec.Struct, frozen=True, tag_field="role", tag="assistant"):
    """An earlier answer, as some client gives it back."""

    content: Content | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Annotated[list[PastToolCall], Meta(max_length=MAX_CALLS)] | None = None
    function_call: Raw = ABSENT
    audio: Raw = ABSENT
    name: str | None = None


class ToolTurn(msgspec.Struct, frozen=True, tag_field="role", tag="tool"):
    """The result of a call."""

    tool_call_id: Annotated[str, Meta(min_length=1, max_length=256)]
    content: Content | None = None
    name: str | None = None


class FunctionTurn(msgspec.Struct, frozen=True, tag_field="role", tag="function"):
    """The deprecated form of a tool result: refused."""


WireMessage: TypeAlias = (
    SystemTurn | DeveloperTurn | UserTurn | AssistantTurn | ToolTurn | FunctionTurn
)


class FunctionDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function that may be called. Unknown keys are refused: a misplaced one changes meaning."""

    name: Name
    description: str | None = None
    parameters: Raw = ABSENT
    strict: bool | None = None


class FunctionTool(
    msgspec.Struct, frozen=True, tag_field="type", tag="function", forbid_unknown_fields=True
):
    """A function tool. `cache_control` (a hint of other APIs) is accepted and ignored."""

    function: FunctionDefinition
    cache_control: Raw = ABSENT


GrammarText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_GUIDED_CHARS)]


class TextInput(
    msgspec.Struct, frozen=True, tag_field="type", tag="text", forbid_unknown_fields=True
):
    """`format`: any text."""


class GrammarOfInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A grammar as Chat Completions nests it."""

    syntax: Literal["lark", "regex"]
    definition: GrammarText


class GrammarInput(
    msgspec.Struct, frozen=True, tag_field="type", tag="grammar", forbid_unknown_fields=True
):
    """`format`: text of a grammar, under `grammar` (Chat Completions) or flat (Responses)."""

    grammar: GrammarOfInput | None = None
    syntax: Literal["lark", "regex"] | None = None
    definition: GrammarText | None = None


InputFormat: TypeAlias = TextInput | GrammarInput


class CustomDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A custom tool. Unknown keys are refused, as in functions."""

    name: Name
    description: str | None = None
    format: InputFormat | None = None


class CustomTool(
    msgspec.Struct, frozen=True, tag_field="type", tag="custom", forbid_unknown_fields=True
):
    """A custom tool, whose input is free text."""

    custom: CustomDefinition
    cache_control: Raw = ABSENT


class FunctionName(msgspec.Struct, frozen=True):
    """The function that a choice names."""

    name: str


class NamedFunction(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    """`tool_choice`: this function and no other."""

    function: FunctionName


class NamedCustom(msgspec.Struct, frozen=True, tag_field="type", tag="custom"):
    """`tool_choice`: this custom tool and no other."""

    custom: FunctionName


class AllowedTools(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A subset of the tools and how they may be used."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedFunction | NamedCustom], Meta(min_length=1, max_length=MAX_TOOLS)]


class AllowedToolsChoice(msgspec.Struct, frozen=True, tag_field="type", tag="allowed_tools"):
    """`tool_choice`: only these."""

    allowed_tools: AllowedTools


WireToolChoice: TypeAlias = (
    Literal["none", "auto", "required"] | NamedFunction | NamedCustom | AllowedToolsChoice
)


class TextFormat(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """`response_format`: free text."""


class JsonObjectFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_object"):
    """`response_format`: some JSON object."""


class JsonSchemaOfFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schema of an answer."""

    name: Name
    description: str | None = None
    schema: Raw = ABSENT
    strict: bool | None = None


class JsonSchemaFormat(
    msgspec.Struct, frozen=True, tag_field="type", tag="json_schema", forbid_unknown_fields=True
):
    """`response_format`: JSON of this schema."""

    json_schema: JsonSchemaOfFormat


WireResponseFormat: TypeAlias = TextFormat | JsonObjectFormat | JsonSchemaFormat


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to stream."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class Guided(msgspec.Struct, frozen=True, kw_only=True):
    """The guided-decoding fields: at most one, a bare constraint from the first token on."""

    guided_json: Raw = ABSENT
    guided_regex: GuidedText | None = None
    guided_choice: Annotated[list[GuidedText], Meta(min_length=1)] | None = None
    guided_grammar: GuidedText | None = None
    guided_decoding_backend: str | None = None
    guided_whitespace_pattern: str | None = None


class StructuredOutputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """vLLM's newer name for the guided-decoding fields: one of them, without the prefix."""

    json: Raw = ABSENT
    json_object: bool | None = None
    regex: GuidedText | None = None
    choice: Annotated[list[GuidedText], Meta(min_length=1)] | None = None
    grammar: GuidedText | None = None


class Extensions(Guided, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`nvext`: extensions under a key of their own."""

    ignore_eos: bool | None = None
    top_k: Annotated[int, Meta(ge=-1, le=1 << 31)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None


class ChatBody(Guided, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body. All fields but the first two may be absent or null."""

    model: Annotated[str, Meta(min_length=1, max_length=MAX_MODEL_CHARS)]
    messages: Annotated[list[WireMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]

    tools: Annotated[list[FunctionTool | CustomTool], Meta(min_length=1, max_length=MAX_TOOLS)] | (
        None
    ) = None
    tool_choice: WireToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: WireResponseFormat | None = None

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2.0, le=2.0)] | None = None
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    logit_bias: (
        Annotated[
            dict[str, Annotated[float, Meta(ge=-100.0, le=100.0)]], Meta(max_length=MAX_LOGIT_BIAS)
        ]
        | None
    ) = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    # Accepted: they change nothing in the answer, or ask for what is done anyway.
    metadata: Metadata | None = None
    user: str | None = None
    safety_identifier: Annotated[str, Meta(max_length=128)] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    service_tier: Literal["auto", "default"] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    store: bool | None = None
    reasoning_effort: Effort | None = None

    # vLLM's, honoured.
    top_k: Annotated[int, Meta(ge=-1, le=1 << 31)] | None = None
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    stop_token_ids: (
        Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=MAX_STOP_TOKEN_IDS)] | None
    ) = None
    ignore_eos: bool | None = None
    bad_words: (
        Annotated[
            list[Annotated[str, Meta(min_length=1, max_length=256)]], Meta(max_length=MAX_BAD_WORDS)
        ]
        | None
    ) = None
    include_stop_str_in_output: bool | None = None
    chat_template_kwargs: Raw = ABSENT
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    structured_outputs: StructuredOutputs | None = None

    # vLLM's, accepted with the one value that says what is done anyway.
    add_special_tokens: bool | None = None
    echo: bool | None = None
    include_reasoning: bool | None = None
    length_penalty: float | None = None
    priority: int | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    use_beam_search: bool | None = None

    # Of some families alone (`PromptPolicy.request_fields`); with any other model they are refused.
    preserve_thinking: bool | None = None
    allow_missing_thinking: bool | None = None

    # The specification's.
    nvext: Extensions | None = None

    # Refused unless null.
    audio: Raw = ABSENT
    functions: Raw = ABSENT
    function_call: Raw = ABSENT
    moderation: Raw = ABSENT
    prediction: Raw = ABSENT
    prompt_cache_options: Raw = ABSENT
    web_search_options: Raw = ABSENT


decoder: msgspec.json.Decoder[ChatBody] = msgspec.json.Decoder(ChatBody)


def given(raw: Raw) -> bool:
    """True when the field was there and was not null."""
    return bytes(raw) not in (b"", b"null")
