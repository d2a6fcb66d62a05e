"""From an exception to the failure that travels: whose fault, which status, again or not."""

from __future__ import annotations

from typing import Final, cast

from toolrail.errors import CallerError, FaultError
from toolrail.messages import STATUS, Failed, FailureCode, error_type

_RETRY_AFTER_S: Final = 1


def caller_failed(request_id: str, error: CallerError) -> Failed:
    """A request at fault."""
    return Failed(
        request_id=request_id,
        code="not_found" if error.status == 404 else "invalid_request",
        message=error.message,
        status=error.status,
        error_type="invalid_request_error",
        error_code=error.code,
        param=error.param,
    )


def fault_failed(request_id: str, error: FaultError) -> Failed:
    """A fault of ours or of a peer."""
    code = cast("FailureCode", error.code) if error.code in STATUS else "internal"
    status = STATUS[code]
    return Failed(
        request_id=request_id,
        code=code,
        message=str(error),
        status=status,
        error_type=error_type(status),
        retryable=error.retryable,
        retry_after_s=_RETRY_AFTER_S if status in (429, 503) else None,
    )


def bug_failed(request_id: str) -> Failed:
    """A bug: the log has more."""
    return Failed(request_id=request_id, code="internal", message="internal error")
