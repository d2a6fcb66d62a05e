"""Content blocks of a Messages request, one at a time, by their kind.

Keys that are not read here are ignored: history comes back with citations, callers and whatever
else a service put beside it. Kinds that a model of text cannot be shown are refused by name.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Raw

from toolrail.anthropic.wire import Content
from toolrail.openai.decode import Kinds, decode_at, decode_kind
from toolrail.openai.refusals import refusal, shortened
from toolrail.openai.wire import ABSENT

_Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]


class TextBlock(msgspec.Struct, frozen=True):
    """A piece of text."""

    text: str


class ThinkingBlock(msgspec.Struct, frozen=True):
    """What the model thought. Its signature proves nothing here and is not read."""

    thinking: str = ""


class RedactedBlock(msgspec.Struct, frozen=True):
    """Thinking that only its own service can read: left out."""


class ToolUseBlock(msgspec.Struct, frozen=True):
    """A call in history. `input` is an object."""

    id: _Id
    name: Annotated[str, Meta(min_length=1, max_length=256)]
    input: Raw = ABSENT


class ToolResultBlock(msgspec.Struct, frozen=True):
    """What a call gave: text, or blocks of text."""

    tool_use_id: _Id
    content: Content | None = None
    is_error: bool | None = None


class DocumentBlock(msgspec.Struct, frozen=True):
    """A document, readable where it is plain text."""

    source: Raw = ABSENT
    title: str | None = None
    context: str | None = None


Block: TypeAlias = (
    TextBlock | ThinkingBlock | RedactedBlock | ToolUseBlock | ToolResultBlock | DocumentBlock
)


class _Kind(msgspec.Struct, frozen=True):
    type: str


class _Source(msgspec.Struct, frozen=True):
    type: str
    data: str = ""
    content: Content | None = None


def _decoder(block: type[Block]) -> msgspec.json.Decoder[Block]:
    return msgspec.json.Decoder(block)


_kind: Final = msgspec.json.Decoder(_Kind)
_source: Final = msgspec.json.Decoder(_Source)
_BLOCKS: Final = Kinds(
    "Content blocks",
    "the models served here read text, and no tools run here",
    {
        "text": _decoder(TextBlock),
        "thinking": _decoder(ThinkingBlock),
        "redacted_thinking": _decoder(RedactedBlock),
        "tool_use": _decoder(ToolUseBlock),
        "tool_result": _decoder(ToolResultBlock),
        "document": _decoder(DocumentBlock),
    },
)
_TEXT_SEPARATOR: Final = "\n"
"""Between blocks of text, as between the parts of a message in Chat Completions."""


def read_block(raw: Raw, path: str) -> Block:
    """The block in `raw`, which stands at `path`. O(len(raw)).

    Raises:
        CallerError: it is malformed, or of a kind that cannot be shown to a model.
    """
    kind = decode_at(_kind, raw, path).type
    return decode_kind(_BLOCKS, kind, raw, path)


def texts_of(content: Content | None, path: str) -> list[str]:
    """The texts of content that may hold nothing else.

    Raises:
        CallerError: it holds something else.
    """
    if content is None or isinstance(content, str):
        return [content or ""]
    texts: list[str] = []
    for index, raw in enumerate(content):
        where = f"{path}[{index}]"
        block = read_block(raw, where)
        match block:
            case TextBlock(text):
                texts.append(text)
            case DocumentBlock():
                texts.append(document_text(block, where))
            case _:
                raise refusal(
                    f"Only text can stand in '{path}'.",
                    param=f"{where}.type",
                    code="unsupported_value",
                )
    return texts


def document_text(block: DocumentBlock, path: str) -> str:
    """The text of a document with its title.

    Raises:
        CallerError: it is not plain text.
    """
    where = f"{path}.source"
    source = decode_at(_source, block.source, where)
    if source.type == "text":
        text = source.data
    elif source.type == "content":
        text = joined(texts_of(source.content, f"{where}.content"))
    else:
        raise refusal(
            f"Documents of source '{shortened(source.type)}' are not supported: the models served "
            "here read text. Send their text, with the source 'text'.",
            param=f"{where}.type",
            code="unsupported_value",
        )
    return joined([block.title or "", block.context or "", text])


def joined(texts: list[str]) -> str:
    """The texts as one."""
    return _TEXT_SEPARATOR.join(filter(None, texts))
