"""The library's exceptions: whose fault it was, and whether one may try again.

Three kinds answer the first question by type: `CallerError` (the request), `ModelError` (what the
model wrote; a parser never raises it, policies above it may) and `FaultError` (ours or a peer's).
Over the bus a failure travels as `messages.Failed`, never as an exception.
"""

from __future__ import annotations


class ToolrailError(Exception):
    """Root of everything this library raises on purpose."""


class CallerError(ToolrailError):
    """The request is at fault: an HTTP 4xx with the path of the field and what to do.

    Attributes:
        status: HTTP status, 400 to 499.
        param: path of the offending field in the request (`tools[0].function.name`), or None.
        code: machine-readable reason, snake_case.
        retry_after_s: when the same request may pass, if that is known.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status
        self.retry_after_s = retry_after_s


class ConfigError(ToolrailError):
    """A setting, flag or parser name that cannot work; raised at start, names what can.

    Attributes:
        field: the flag or variable at fault.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class FaultError(ToolrailError):
    """Ours or a peer's fault: an HTTP 5xx.

    Attributes:
        code: one of the codes of `messages.FailureCode`.
        retryable: True when the same request may succeed elsewhere or later.
    """

    code = "internal"
    retryable = False


class NoRespondersError(FaultError):
    """Nobody serves the subject of a request: the next hop is missing."""

    code = "unavailable"
    retryable = True


class DeadlineError(FaultError):
    """The answer did not come before the deadline."""

    code = "deadline"
    retryable = False


class QueueFullError(FaultError):
    """A bounded queue refused the work; try again after a while."""

    code = "overloaded"
    retryable = True


class BusClosedError(FaultError):
    """The connection to the bus is gone and will not come back in time."""

    code = "unavailable"
    retryable = True


class DecodeError(FaultError):
    """A message could not be decoded, or carries a schema version this build does not know."""

    code = "internal"
    retryable = False
