"""The response object: what the request said, repeated, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec

from services.gateway import ids
from services.gateway.answer import Head
from services.gateway.objects import to_json
from services.gateway.sse import json_string
from toolrail.messages import Accepted, Failed, FailureCode, Usage

Status: TypeAlias = Literal[
    "in_progress", "queued", "completed", "incomplete", "failed", "cancelled"
]

_NOT_REPEATED: Final = frozenset({"include", "model", "stream", "input"})
_LEFT_OUT_WHERE_NULL: Final = frozenset(
    {"prompt_cache_key", "safety_identifier", "user", "conversation", "prompt"}
)
"""Fields that the published schema lets be absent, but not be null."""

_REQUIRED: Final = {
    "instructions": b"null",
    "metadata": b"{}",
    "parallel_tool_calls": b"true",
    "temperature": b"1.0",
    "tool_choice": b'"auto"',
    "tools": b"[]",
    "top_p": b"1.0",
}
"""What the schema requires of the fields that repeat the request."""

_ERROR_CODES: Final[dict[FailureCode, bytes]] = {
    "overloaded": b"rate_limit_exceeded",
    "invalid_request": b"invalid_prompt",
}
"""The closed set of the published schema has little to say; all else is `server_error`."""

_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_strings: Final = msgspec.json.Decoder(list[str])


class Echo:
    """The fields of a request that its response objects repeat.

    Attributes:
        include: what the request wants beside the usual.
    """

    def __init__(self, echo: bytes) -> None:
        fields = {name: bytes(raw) for name, raw in _decoder.decode(echo or b"{}").items()}
        include = fields.get("include", b"null")
        self.include = frozenset(() if include == b"null" else _strings.decode(include))
        self.json = b",".join(
            json_string(name) + b":" + raw
            for name, raw in (_REQUIRED | fields).items()
            if name not in _NOT_REPEATED and not (raw == b"null" and name in _LEFT_OUT_WHERE_NULL)
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """What a response must know of its request.

    Attributes:
        namespaces: of the members of namespaces, by the name that the model knows.
    """

    request_id: str
    echo: Echo
    new_call_id: Callable[[], str]
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])


def asked(accepted: Accepted) -> Asked:
    """What the preprocessor said of the request."""
    return Asked(accepted.request_id, Echo(accepted.echo), ids.new_call_id, accepted.namespaces)


class ResponseBody:
    """Makes the objects of one response; only what became of it differs between them."""

    def __init__(self, head: Head, echo: Echo) -> None:
        self._open = b'{"id":%b,"object":"response","created_at":%d,"model":%b,%b' % (
            json_string(head.id),
            head.created,
            json_string(head.model),
            echo.json,
        )

    def json(
        self,
        status: Status,
        items: Sequence[bytes] = (),
        *,
        reason: str = "",
        failed: Failed | None = None,
        usage: Usage | None = None,
    ) -> bytes:
        """The object now. `reason`: why it is incomplete, where the API has a word for it."""
        details = b"null"
        if status == "incomplete":
            details = b'{"reason":"%b"}' % reason.encode() if reason else b"{}"
        parts = [
            self._open,
            b',"status":"%b","completed_at":%b' % (status.encode(), _completed_at(status)),
            b',"error":',
            b"null" if failed is None else _error(failed),
            b',"incomplete_details":',
            details,
            b',"output":[',
            b",".join(items),
            b"]",
        ]
        if usage is not None:
            parts += (b',"usage":', to_json(_usage(usage)))
        parts.append(b"}")
        return b"".join(parts)


class _Cached(msgspec.Struct, frozen=True):
    """`cache_write_tokens`: newer than the document; openai-python 3.57 requires it."""

    cached_tokens: int
    cache_write_tokens: int = 0


class _Reasoned(msgspec.Struct, frozen=True):
    reasoning_tokens: int


class _Usage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int
    input_tokens_details: _Cached
    output_tokens: int
    output_tokens_details: _Reasoned
    total_tokens: int


def _usage(counts: Usage) -> _Usage:
    return _Usage(
        input_tokens=counts.prompt_tokens,
        input_tokens_details=_Cached(counts.cached_tokens),
        output_tokens=counts.completion_tokens,
        output_tokens_details=_Reasoned(counts.reasoning_tokens),
        total_tokens=counts.prompt_tokens + counts.completion_tokens,
    )


def _completed_at(status: Status) -> bytes:
    return b"%d" % int(time.time()) if status == "completed" else b"null"


def _error(failed: Failed) -> bytes:
    code = _ERROR_CODES.get(failed.code, b"server_error")
    return b'{"code":"%b","message":%b}' % (code, json_string(failed.message))
