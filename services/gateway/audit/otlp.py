"""Records as OTLP logs, over HTTP: the body is the record, its attributes are for a search."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Final

import anyio
import anyio.to_thread
import requests
from google.protobuf.message import DecodeError
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
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
from services.gateway.audit.sink import RefusedError, SinkError
from services.gateway.audit.writing import Line
from toolrail.telemetry import semconv

_MAX_REQUEST_BYTES: Final = 4 << 20
"""Of one export: an OpenTelemetry collector takes 20 MiB, some receivers 5."""
_REFUSALS: Final = (400, 413, 422)
"""What says of the records that they will never be taken. Others, such as 401 and 404, say that the
receiver is not as it should be, which somebody may put right."""
_EVENT: Final = "toolrail.audit"
_SCOPE: Final = InstrumentationScope(_EVENT, SCHEMA.partition("/")[2])


class _Answers(threading.local):
    """What the receiver answered last to this thread: the exporter keeps that to itself."""

    last: requests.Response | None = None

    def note(self, response: requests.Response, *_: object, **__: object) -> None:
        self.last = response


class OtlpSink:
    """A receiver of OTLP logs at `<endpoint>/v1/logs`."""

    max_record_bytes: int = _MAX_REQUEST_BYTES

    def __init__(self, endpoint: str, instance: str, timeout_s: float) -> None:
        # It says so with every batch that is not taken; the auditor does once.
        logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
        self._answers = _Answers()
        self._place = f"{endpoint.rstrip('/')}/v1/logs"
        self._exporter = OTLPLogExporter(
            endpoint=self._place,
            timeout=timeout_s,
            max_request_size=0,
            session=_session(self._answers),
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
        faults: list[RefusedError] = []
        for part in _parts(lines):
            fault = await anyio.to_thread.run_sync(self._send, part, abandon_on_cancel=True)
            if isinstance(fault, SinkError):
                raise fault
            if fault is not None:
                faults.append(fault)
        if faults:
            refused = [line for fault in faults for line in fault.lines]
            lost = sum(fault.lost for fault in faults)
            raise RefusedError(str(faults[0]), refused, lost=lost)

    def _send(self, part: Sequence[Line]) -> SinkError | RefusedError | None:
        """Send them in one request; what is wrong, if anything is."""
        self._answers.last = None
        result = self._exporter.export([self._log(line) for line in part])
        answer = self._answers.last
        if answer is None:
            kept = result is LogRecordExportResult.SUCCESS
            return None if kept else SinkError(f"{self._place} does not take them")
        said = f"{self._place} answers {answer.status_code}"
        if answer.status_code in _REFUSALS:
            return RefusedError(said, part)
        # A redirection is none: the exporter takes it for a success, and does not follow it.
        if result is not LogRecordExportResult.SUCCESS or answer.status_code >= 300:
            return SinkError(said)
        rejected = _rejected(answer)
        if not rejected:
            return None
        said = f"{self._place} takes all but {rejected} of {len(part)}"
        if rejected >= len(part):
            return RefusedError(said, part)
        return RefusedError(said, (), lost=rejected)  # to send any again the protocol forbids

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


def _session(answers: _Answers) -> requests.Session | None:
    """A session whose answers are noted; None where the environment names who provides sessions."""
    provider = ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_", "_CREDENTIAL_PROVIDER")
    if any(name.startswith(provider[0]) and name.endswith(provider[1]) for name in os.environ):
        return None
    session = requests.Session()
    session.hooks["response"].append(answers.note)
    return session


def _rejected(answer: requests.Response) -> int:
    """How many records of a request the receiver did not take, though it took the request."""
    try:
        said = ExportLogsServiceResponse.FromString(answer.content)
    except DecodeError:  # another encoding, of which we sent none
        return 0
    return said.partial_success.rejected_log_records


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
