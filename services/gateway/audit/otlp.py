"""Records as OTLP logs, over HTTP: the body is the record, its attributes are for a search."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Final

import anyio
import anyio.to_thread
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    INVALID_SPAN_ID,
    NonRecordingSpan,
    SpanContext,
    set_span_in_context,
)

from services.gateway.audit.record import SCHEMA
from services.gateway.audit.sink import SinkError
from services.gateway.audit.writing import Line
from toolrail.telemetry import semconv

_MAX_REQUEST_BYTES: Final = 4 << 20
"""Of one export: an OpenTelemetry collector takes 20 MiB, some receivers 5."""
_EVENT: Final = "toolrail.audit"
_SCOPE: Final = InstrumentationScope(_EVENT, SCHEMA.partition("/")[2])


class OtlpSink:
    """A receiver of OTLP logs at `<endpoint>/v1/logs`."""

    max_record_bytes: int = _MAX_REQUEST_BYTES

    def __init__(self, endpoint: str, instance: str, timeout_s: float) -> None:
        # It says so with every batch that is not taken; the auditor does once.
        logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
        self._place = f"{endpoint.rstrip('/')}/v1/logs"
        self._exporter = OTLPLogExporter(
            endpoint=self._place, timeout=timeout_s, max_request_size=0
        )
        self._resource = Resource.create(
            {
                semconv.SERVICE_NAMESPACE: "toolrail",
                semconv.SERVICE_NAME: "gateway",
                semconv.SERVICE_INSTANCE_ID: instance,
                semconv.SERVICE_VERSION: version("toolrail"),
            }
        )

    async def open(self) -> None:
        """Nothing to do: receivers come and go."""

    async def write(self, lines: Sequence[Line]) -> None:
        """Send them, in as many requests as their size asks for."""
        for part in _parts(lines):
            result = await anyio.to_thread.run_sync(
                self._exporter.export, [self._log(line) for line in part], abandon_on_cancel=True
            )
            if result is not LogRecordExportResult.SUCCESS:
                raise SinkError(f"{self._place} does not take them")

    async def close(self) -> None:
        """End the connection."""
        await anyio.to_thread.run_sync(self._exporter.shutdown)

    def _log(self, line: Line) -> ReadableLogRecord:
        record = LogRecord(
            timestamp=int(line.received_s * 1e9),
            observed_timestamp=time.time_ns(),
            context=_context(line.trace_id),
            severity_number=SeverityNumber.WARN if line.failed else SeverityNumber.INFO,
            severity_text="WARN" if line.failed else "INFO",
            body=line.data.decode(),
            attributes={"toolrail.audit.id": line.id, "toolrail.audit.schema": SCHEMA},
            event_name=_EVENT,
        )
        return ReadableLogRecord(record, self._resource, _SCOPE)


def _context(trace_id: str) -> Context:
    """A context of that trace, and of no span in it."""
    if not trace_id:
        return Context()
    place = SpanContext(int(trace_id, 16), INVALID_SPAN_ID, is_remote=False)
    return set_span_in_context(NonRecordingSpan(place), Context())


def _parts(lines: Sequence[Line]) -> Iterator[list[Line]]:
    part: list[Line] = []
    size = 0
    for line in lines:
        if part and size + len(line.data) > _MAX_REQUEST_BYTES:
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line.data)
    if part:
        yield part
