"""The items of `input` as they travel: what may be given, and what each is refused for.

An item says its kind by `type`; a message may leave it out, and so may a reference. Keys that are
not known are ignored, as in messages of Chat Completions: history comes back with whatever other
services put into it. Kinds that only hosted tools make are refused: nothing here could show them to
a model.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw

from toolrail.openai.decode import Kinds, decode_at, decode_kind
from toolrail.openai.limits import MAX_TOOLS

CallId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
CallName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]


class InputText(msgspec.Struct, frozen=True, tag_field="type", tag="input_text"):
    """A part of text."""

    text: str


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    """A part of text that a model wrote."""

    text: str


class PlainText(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A part of text as Chat Completions spells it."""

    text: str


class Refusal(msgspec.Struct, frozen=True, tag_field="type", tag="refusal"):
    """A model's refusal."""

    refusal: str


class InputImage(msgspec.Struct, frozen=True, tag_field="type", tag="input_image"):
    """An image: refused."""


class InputFile(msgspec.Struct, frozen=True, tag_field="type", tag="input_file"):
    """A file: refused."""


class InputAudio(msgspec.Struct, frozen=True, tag_field="type", tag="input_audio"):
    """A sound: refused."""


class Screenshot(msgspec.Struct, frozen=True, tag_field="type", tag="computer_screenshot"):
    """A screenshot: refused."""


class EncryptedContent(msgspec.Struct, frozen=True, tag_field="type", tag="encrypted_content"):
    """What only another service can read: refused."""


Part: TypeAlias = (
    InputText
    | OutputText
    | PlainText
    | Refusal
    | InputImage
    | InputFile
    | InputAudio
    | Screenshot
    | EncryptedContent
)
Content: TypeAlias = str | list[Part]


class MessageItem(msgspec.Struct, frozen=True):
    """A message of anybody."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Content | None = None


class AgentMessageItem(msgspec.Struct, frozen=True):
    """What another agent of the client's says (Codex): to the model it is a user's message."""

    content: Content | None = None


class FunctionCallItem(msgspec.Struct, frozen=True):
    """A call; `arguments` is JSON text, in foreign histories null or empty."""

    call_id: CallId
    name: CallName
    arguments: str | None = None
    namespace: str | None = None
    status: str | None = None


class CustomCallItem(msgspec.Struct, frozen=True):
    """A call of a custom tool; `input` is its raw text."""

    call_id: CallId
    name: CallName
    input: str | None = None
    namespace: str | None = None
    status: str | None = None


class CallOutputItem(msgspec.Struct, frozen=True):
    """What a call gave, of a function or a custom tool."""

    call_id: CallId
    output: Content | None = None


class ReasoningText(msgspec.Struct, frozen=True):
    """A piece of reasoning, or of its summary."""

    text: str = ""


class ReasoningItem(msgspec.Struct, frozen=True):
    """Reasoning: its text, or what `sealed` made of it, or only a summary."""

    content: list[ReasoningText] | None = None
    summary: list[ReasoningText] | None = None
    encrypted_content: str | None = None
    status: str | None = None


class ReferenceItem(msgspec.Struct, frozen=True):
    """An item that was stored, by its name."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]


class AdditionalToolsItem(msgspec.Struct, frozen=True):
    """Tools that are offered beside those of `tools`."""

    tools: Annotated[list[Raw], Meta(max_length=MAX_TOOLS)]
    role: Literal["developer"] = "developer"


Item: TypeAlias = (
    MessageItem
    | AgentMessageItem
    | FunctionCallItem
    | CustomCallItem
    | CallOutputItem
    | ReasoningItem
    | ReferenceItem
    | AdditionalToolsItem
)


Placed: TypeAlias = tuple[Item, str]
"""An item and where it stands in the request."""


class _Kind(msgspec.Struct, frozen=True):
    type: str | None = None
    role: Raw = Raw(b"")
    id: Raw = Raw(b"")


def _decoder(item: type[Item]) -> msgspec.json.Decoder[Item]:
    return msgspec.json.Decoder(item)


_kind: Final = msgspec.json.Decoder(_Kind)
_ITEMS: Final = Kinds(
    "Input items",
    "hosted tools do not run here",
    {
        "message": _decoder(MessageItem),
        "agent_message": _decoder(AgentMessageItem),
        "function_call": _decoder(FunctionCallItem),
        "function_call_output": _decoder(CallOutputItem),
        "custom_tool_call": _decoder(CustomCallItem),
        "custom_tool_call_output": _decoder(CallOutputItem),
        "reasoning": _decoder(ReasoningItem),
        "item_reference": _decoder(ReferenceItem),
        "additional_tools": _decoder(AdditionalToolsItem),
    },
)


_HOSTED: Final = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
"""Items of tools that the hosted API runs itself."""


def read_items(raws: Iterable[tuple[Raw, str]], *, without_hosted: bool) -> list[Placed]:
    """The items, each with its place; those of hosted tools left out where that is wanted.

    Raises:
        CallerError: one is malformed, or of a kind that cannot be shown to a model.
    """
    return [
        (read_item(raw, path), path)
        for raw, path in raws
        if not (without_hosted and decode_at(_kind, raw, path).type in _HOSTED)
    ]


def read_item(raw: Raw, path: str) -> Item:
    """The item in `raw`, which stands at `path`. O(len(raw)).

    Raises:
        CallerError: it is malformed, or of a kind that cannot be shown to a model.
    """
    kind = decode_at(_kind, raw, path)
    name = kind.type
    if name is None:
        name = "message" if kind.role or not kind.id else "item_reference"
    return decode_kind(_ITEMS, name, raw, path)
