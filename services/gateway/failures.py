"""From a failure to what the client sees of it: a status, an error object, Retry-After.

`messages.Failed` is the one record of a failure in this service, whether a peer sent it or it was
found here.
"""

from __future__ import annotations

from typing import Final, cast

from services.gateway.objects import Error, ErrorBody, to_json
from services.gateway.sse import data_event
from toolrail.errors import CallerError, FaultError, ToolrailError
from toolrail.messages import STATUS, Failed, FailureCode, error_type

_UNSAID_STATUS: Final = 500  # the default of `Failed.status`: the code says more
_UNSAID_TYPE: Final = "server_error"  # likewise of `Failed.error_type`

DEFAULT_RETRY_AFTER_S: Final = 1
"""For a failure that says "try again" and not when: the local stack restarts a service in that."""


def failure(
    code: FailureCode, message: str, *, request_id: str = "", retryable: bool = False
) -> Failed:
    """A failure found in this process."""
    return Failed(
        request_id=request_id,
        code=code,
        message=message,
        status=STATUS[code],
        error_type=error_type(STATUS[code]),
        retryable=retryable,
    )


def failure_of(error: ToolrailError, *, request_id: str = "") -> Failed:
    """The failure that an exception amounts to. Its text reaches the client."""
    match error:
        case CallerError():
            return Failed(
                request_id=request_id,
                code="not_found" if error.status == 404 else "invalid_request",
                message=error.message,
                status=error.status,
                error_type=error_type(error.status),
                error_code=error.code,
                param=error.param,
                retryable=error.retry_after_s is not None,
                retry_after_s=error.retry_after_s,
            )
        case FaultError():
            code = cast("FailureCode", error.code) if error.code in STATUS else "internal"
            return failure(code, str(error), request_id=request_id, retryable=error.retryable)
        case _:
            return failure("internal", "internal error", request_id=request_id)


def http_status(failed: Failed) -> int:
    """The status of a failure that comes before any output."""
    if failed.status == _UNSAID_STATUS or not 400 <= failed.status <= 599:
        return STATUS[failed.code]
    return failed.status


def retry_after_s(failed: Failed) -> int | None:
    """Seconds for the Retry-After header, or None where trying again is not the answer."""
    if http_status(failed) not in (429, 503):
        return None
    return DEFAULT_RETRY_AFTER_S if failed.retry_after_s is None else failed.retry_after_s


def error_body(failed: Failed) -> bytes:
    """The error object as JSON: a whole body, or the data of an event."""
    status = http_status(failed)
    kind = failed.error_type
    if kind == _UNSAID_TYPE:
        kind = error_type(status)
    code = failed.error_code
    if code is None and failed.code not in ("invalid_request", "not_found"):
        code = failed.code
    return to_json(
        ErrorBody(Error(message=failed.message, type=kind, param=failed.param, code=code))
    )


def error_event(failed: Failed) -> bytes:
    """The error object as the last event of a stream."""
    return data_event(error_body(failed))
