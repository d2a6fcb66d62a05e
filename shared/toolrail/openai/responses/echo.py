"""What a Response object repeats of its request.

The client's own JSON where it gave some: tools, choice, format and metadata go back as they came,
with null where the published object demands a member that may be left out of a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw

from toolrail.openai.responses.wire import ResponsesBody
from toolrail.openai.wire import ABSENT, given


class _Said(msgspec.Struct, frozen=True):
    """The fields that are repeated byte for byte."""

    tools: list[Raw] | None = None
    tool_choice: Raw = ABSENT
    metadata: Raw = ABSENT
    text: _SaidText | None = None


class _SaidText(msgspec.Struct, frozen=True):
    format: Raw = ABSENT


_said: Final = msgspec.json.Decoder(_Said)
_members: Final = msgspec.json.Decoder(dict[str, Raw])
_encoder: Final = msgspec.json.Encoder()

_NULL: Final = Raw(b"null")
_DEMANDED: Final[Mapping[str, Mapping[str, Raw]]] = {
    "function": {"parameters": _NULL, "strict": _NULL},
    "json_schema": {"strict": _NULL},
}
"""Members that the published object demands, by the type of what they belong to."""


def echo(raw: bytes, body: ResponsesBody) -> dict[str, object]:
    """The fields of the Response object that come from the request. O(len(raw)).

    `temperature` and `top_p` are as the request says them, None where it leaves them to the model.
    """
    said = _said.decode(raw)
    reasoning = body.reasoning
    text = body.text
    format_ = said.text.format if said.text is not None else ABSENT
    return {
        "background": body.background is True,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": said.metadata if given(said.metadata) else {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {
            "effort": reasoning.effort if reasoning else None,
            "summary": (reasoning.summary or reasoning.generate_summary) if reasoning else None,
        },
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": body.store is not False,
        "temperature": body.temperature,
        "text": {
            "format": _completed(format_) if given(format_) else {"type": "text"},
            "verbosity": text.verbosity or "medium" if text else "medium",
        },
        "tool_choice": said.tool_choice if given(said.tool_choice) else "auto",
        "tools": [_completed(tool) for tool in said.tools or ()],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": body.top_p,
        "truncation": body.truncation or "disabled",
        **({"user": body.user} if body.user is not None else {}),
        "include": body.include or [],
    }


def encoded(fields: Mapping[str, object], *, temperature: float, top_p: float) -> bytes:
    """The fields as JSON, with what the model's defaults made of the sampling."""
    sampling = {"temperature": temperature, "top_p": top_p}
    filled = {name: value for name, value in sampling.items() if fields.get(name) is None}
    return _encoder.encode({**fields, **filled})


def _completed(raw: Raw) -> dict[str, Raw]:
    """The object, with null for members that it lacks and that are demanded."""
    members = _members.decode(raw)
    kind: object = msgspec.json.decode(members["type"])
    return {**_DEMANDED.get(str(kind), {}), **members}
