"""Failures in the words of the Messages API.

Its status 529 is what a full queue of ours is; 429 is the limit of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from services.gateway.failures import http_status
from services.gateway.objects import to_json
from services.gateway.sse import named_event
from toolrail.messages import Failed

OVERLOADED: Final = 529

_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}


_TOLD_CODES: Final = frozenset({"thread_unsupported_request"})
"""Codes that clients of this API act on by themselves."""


class _Details(msgspec.Struct, frozen=True):
    error_code: str


class _Error(msgspec.Struct, frozen=True):
    type: str
    message: str
    details: _Details | UnsetType = UNSET


class _Body(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    error: _Error
    request_id: str | None = None


def error_status(failed: Failed) -> int:
    """The status of a failure that comes before any output."""
    return OVERLOADED if failed.code == "overloaded" else http_status(failed)


def error_body(failed: Failed) -> bytes:
    """The error object as JSON: a whole body, or the data of an event."""
    status = error_status(failed)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    code = failed.error_code
    details = _Details(code) if code in _TOLD_CODES else UNSET
    error = _Error(kind, failed.message, details)
    return to_json(_Body(error=error, request_id=failed.request_id or None))


def error_event(failed: Failed) -> bytes:
    """The error as the last event of a stream."""
    return named_event(b"error", error_body(failed))
