"""Input items as they are kept and listed: each whole, with an id, in the published shape.

What a request may leave out (`type`, ids, the list around a text) is filled in; references are
replaced by what they refer to. The request was read before: nothing is checked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw

from toolrail.openai.responses.ids import Prefix, input_item_id
from toolrail.openai.wire import ABSENT


class _Body(msgspec.Struct, frozen=True):
    input: str | list[dict[str, Raw]] | None = None


_body: Final = msgspec.json.Decoder(_Body)
_members: Final = msgspec.json.Decoder(dict[str, Raw])
_word: Final = msgspec.json.Decoder(str | None)
_content: Final = msgspec.json.Decoder(str | list[dict[str, Raw]] | None)
_encoder: Final = msgspec.json.Encoder()

_PREFIXES: Final[Mapping[str, Prefix]] = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "additional_tools": "at",
}
_FILLED: Final[Mapping[str, Mapping[str, object]]] = {
    "message": {"status": "completed"},
    "function_call": {"status": "completed"},
    "function_call_output": {"status": "completed"},
    "custom_tool_call_output": {"status": "completed"},
    "reasoning": {"summary": []},
    "additional_tools": {"role": "developer"},
}


def references(raw: bytes) -> tuple[str, ...]:
    """Names of the items that the request in `raw` refers to. O(len(raw))."""
    found = _body.decode(raw).input
    if not isinstance(found, list):
        return ()
    named = (item for item in found if _kind(item) == "item_reference")
    return tuple(name for item in named if (name := _word.decode(item["id"])) is not None)


def kept_items(raw: bytes, response_id: str, named: Mapping[str, Raw]) -> bytes:
    """The input items of the request in `raw` as a JSON array; `named` are those referred to."""
    found = _body.decode(raw).input
    if isinstance(found, str):
        found = [{"role": Raw(b'"user"'), "content": Raw(_encoder.encode(found))}]
    items = (_resolved(item, named) for item in found or ())
    return _encoder.encode(
        [_whole(item, response_id, position) for position, item in enumerate(items)]
    )


def _resolved(item: dict[str, Raw], named: Mapping[str, Raw]) -> dict[str, Raw]:
    if _kind(item) != "item_reference":
        return item
    name = _word.decode(item["id"]) or ""
    return _members.decode(named[name]) if name in named else item


def _kind(item: Mapping[str, Raw]) -> str:
    said = _word.decode(item["type"]) if "type" in item else None
    return said or ("message" if "role" in item else "item_reference")


def _whole(item: Mapping[str, Raw], response_id: str, position: int) -> dict[str, object]:
    kind = _kind(item)
    given = {name: value for name, value in item.items() if bytes(value) != b"null"}
    if kind == "agent_message":  # another agent's words: to the model, and here, a user's
        kind = "message"
        given = {"role": Raw(b'"user"'), "content": given.get("content", Raw(b'""'))}
    whole: dict[str, object] = {**_FILLED.get(kind, {}), **given, "type": kind}
    if kind == "message":
        whole["content"] = _parts(given)
    if "id" not in given:
        whole["id"] = input_item_id(_PREFIXES.get(kind, "msg"), response_id, position)
    return whole


def _parts(message: Mapping[str, Raw]) -> list[dict[str, object]]:
    """The content as a list of parts, each of the kind that its role has."""
    wrote = bytes(message.get("role", ABSENT)) == b'"assistant"'
    content = _content.decode(message["content"]) if "content" in message else None
    if isinstance(content, list):
        return [_part(part, wrote) for part in content]
    if not content:
        return []
    return [_part({"text": Raw(_encoder.encode(content))}, wrote)]


def _part(part: Mapping[str, Raw], wrote: bool) -> dict[str, object]:
    if "text" not in part:
        return dict(part)
    if not wrote:
        return {"type": "input_text", "text": part["text"]}
    return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
