"""From a failure to its message: who is at fault, which status, whether to try again."""

from __future__ import annotations

from typing import Final

from toolrail.messages import STATUS, Failed, FailureCode, error_type

_RETRYABLE: Final = frozenset({"unavailable", "overloaded", "lost"})
_RETRY_AFTER_S: Final = 1


def failure(
    request_id: str, code: FailureCode, message: str, *, param: str | None = None
) -> Failed:
    """A failure of `request_id`; `message` reaches the client."""
    status = STATUS[code]
    return Failed(
        request_id=request_id,
        code=code,
        message=message,
        status=status,
        error_type=error_type(status),
        error_code="invalid_value" if param is not None else None,
        param=param,
        retryable=code in _RETRYABLE,
        retry_after_s=_RETRY_AFTER_S if status in (429, 503) else None,
    )
