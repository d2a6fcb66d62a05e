"""The audit record as it is written: one JSON object, whose version rises when a field changes.

New fields may come without a new version. Every field is always there; null says that it does not
apply, or that it is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from services.gateway.objects import FinishReason, Usage
from toolrail.messages import Api
from toolrail.redaction import ContentMode

SCHEMA: Final = "toolrail.audit/1"


class Caller(msgspec.Struct, frozen=True):
    """The API key that was shown: never the key itself."""

    id: str
    name: str
    owner: str


class Client(msgspec.Struct, frozen=True):
    """Where a request came from; what a proxy forwarded is what it, or the client, said."""

    address: str | None
    forwarded_for: str | None


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What the client was told. `message` is content: it may quote the request."""

    code: str
    param: str | None
    message: str | None


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The request's body.

    `body`: its JSON, or its text where it is none. `head`: the beginning of its text instead, where
    it is longer than a record may hold; `cut` says so, also where nothing of it could be held.
    """

    bytes: int
    body: object
    head: str | None
    cut: bool


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What the model wrote, put together: `choices` as in `writing.choices_of`."""

    choices: object
    cut: bool


class Calls(msgspec.Struct, frozen=True):
    """Tool calls that were delivered, and those that were cut or malformed."""

    complete: int
    incomplete: int


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One request, or one background response.

    Attributes:
        id: of this record, the same when it is written twice.
        kind: `request`, or `background` for what was generated after its request was answered.
        time: when it came.
        status: of the answer; 499: the client left before it. Null: background.
        left: what the client left: `hand_over`, `wait`, `stream`, `slow`.
        hand_overs: postprocessors that had the stream.
        content: what is kept of bodies, answers and messages.
        redacted: how often each rule found something.
    """

    schema: Literal["toolrail.audit/1"] = SCHEMA
    id: str
    kind: Literal["request", "background"]
    time: str
    duration_ms: float
    first_event_ms: float | None
    instance: str
    request_id: str
    response_id: str | None
    trace_id: str | None
    key: Caller | None
    client: Client | None
    method: str
    route: str
    api: Api | None
    model: str | None
    stream: bool
    status: int | None
    left: str | None
    error: Fault | None
    content: ContentMode
    request: Asked
    enforcement: object
    response: Answered | None
    finish_reasons: Sequence[FinishReason]
    calls: Calls
    usage: Usage | None
    hand_overs: int
    redacted: Mapping[str, int]
