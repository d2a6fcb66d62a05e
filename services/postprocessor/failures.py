"""From a failure to its message: who is at fault, which status, whether to try again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolrail.messages import Failed, FailureCode

_STATUS: Final[Mapping[FailureCode, int]] = {
    "invalid_request": 400,
    "not_found": 404,
    "unavailable": 503,
    "overloaded": 429,
    "deadline": 504,
    "model_output": 502,
    "engine": 500,
    "lost": 502,
    "cancelled": 499,
    "internal": 500,
}
_RETRYABLE: Final = frozenset({"unavailable", "overloaded", "lost"})
_RETRY_AFTER_S: Final = 1


def failure(
    request_id: str, code: FailureCode, message: str, *, param: str | None = None
) -> Failed:
    """A failure of `request_id`; `message` reaches the client."""
    status = _STATUS[code]
    return Failed(
        request_id=request_id,
        code=code,
        message=message,
        status=status,
        error_type=_error_type(status),
        retryable=code in _RETRYABLE,
        retry_after_s=_RETRY_AFTER_S if status in (429, 503) else None,
    )


def _error_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"
