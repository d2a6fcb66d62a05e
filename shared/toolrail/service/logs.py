"""Log records as one line each, for people (`console`) or machines (`json`).

A record carries service, instance, trace id and the fields given in `extra`, `request_id` among
them. Of an exception it shows type and places, not its message: that may quote a request. The
message appears at level DEBUG only.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from types import TracebackType
from typing import Final, Literal

from toolrail.telemetry import current_trace_id

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MAX_FRAMES: Final = 12

_INDISCREET: Final = ("opentelemetry.trace.span",)
"""Loggers that warn in a caller's own words: of each `tracestate` that cannot be read."""


def configure(service: str, instance: str, style: Literal["console", "json"], level: str) -> None:
    """Send all log records of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(service, instance, style, messages=level == "DEBUG"))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for name in _INDISCREET:
        logging.getLogger(name).setLevel(logging.ERROR)


class OneLine(logging.Formatter):
    """Formats a record as one line."""

    def __init__(
        self, service: str, instance: str, style: Literal["console", "json"], *, messages: bool
    ) -> None:
        super().__init__()
        self._service = service
        self._instance = instance
        self._json = style == "json"
        self._messages = messages

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        fields = self._fields(record)
        head = {
            "time": _timestamp(record.created),
            "level": record.levelname,
            "service": self._service,
            "instance": self._instance,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._json:
            return json.dumps(head | fields, default=str)
        shown = "".join(f" {name}={_shown(value)}" for name, value in fields.items())
        line = (
            f"{head['time']} {record.levelname:<7} {self._instance} {record.name}:"
            f" {head['message']}{shown}"
        )
        return _one_line(line)

    def _fields(self, record: logging.LogRecord) -> dict[str, object]:
        fields: dict[str, object] = {}
        if trace_id := current_trace_id():
            fields["trace_id"] = trace_id
        fields |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info and (error := record.exc_info[1]) is not None:
            fields["error"] = type(error).__qualname__
            fields["at"] = _places(error.__traceback__)
            if self._messages:
                fields["error_message"] = str(error)
        return fields


def _timestamp(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"


def _shown(value: object) -> str:
    text = str(value)
    return text if text and " " not in text and text.isprintable() else json.dumps(text)


def _one_line(text: str) -> str:
    """`text` without anything that a terminal or a reader of lines would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _places(traceback: TracebackType | None) -> str:
    """The innermost frames of a traceback, innermost first."""
    places: list[str] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        name = "/".join(code.co_filename.rsplit("/", 2)[-2:])
        places.append(f"{name}:{traceback.tb_lineno}:{code.co_name}")
        traceback = traceback.tb_next
    return " < ".join(reversed(places[-_MAX_FRAMES:]))
