"""An OTLP/HTTP receiver inside the test process."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class Received:
    """One span as it arrived."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    events: tuple[str, ...]
    text: str
    """Everything of it as text, to look for what must not be there."""

    facts: tuple[dict[str, Any], ...] = ()
    """The attributes of its events."""

    links: tuple[tuple[str, dict[str, Any]], ...] = ()
    """The spans it is linked to, with what is said of each link."""

    failed: bool = False

    def event(self, name: str) -> dict[str, Any]:
        """What its one event of that name says."""
        (found,) = (f for n, f in zip(self.events, self.facts, strict=True) if n == name)
        return found


@dataclass(frozen=True)
class ReceivedLog:
    """One log record as it arrived."""

    service: str
    event: str
    trace_id: str
    severity: str
    attributes: dict[str, Any]
    body: str


@dataclass
class Receiver:
    """Collects spans and logs; `until` waits for those a test is about.

    `status`: what it answers; it keeps nothing while that is no success.
    """

    url: str
    spans: list[Received] = field(default_factory=list[Received])
    bodies: list[bytes] = field(default_factory=list[bytes])
    """All bytes that came."""

    logs: list[ReceivedLog] = field(default_factory=list[ReceivedLog])
    status: int = 200
    refusals: int = 0
    refuses: str = ""
    """Logs that come with one that has this in its body are answered 400."""

    rejected: int = 0
    """So many of each export of logs are not taken, it says; it keeps the others."""

    _news: threading.Condition = field(default_factory=threading.Condition)

    def add(self, spans: list[Received]) -> None:
        with self._news:
            self.spans += spans
            self._news.notify_all()

    def add_logs(self, logs: list[ReceivedLog]) -> None:
        with self._news:
            self.logs += logs
            self._news.notify_all()

    def refuse(self) -> None:
        with self._news:
            self.refusals += 1
            self._news.notify_all()

    def until_logs(self, count: int, timeout_s: float = 30) -> list[ReceivedLog]:
        with self._news:
            assert self._news.wait_for(lambda: len(self.logs) >= count, timeout_s), self.logs
            return list(self.logs)

    def until_refused(self, timeout_s: float = 30) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.refusals > 0, timeout_s)

    def until(self, enough: Callable[[list[Received]], bool], timeout_s: float = 30) -> None:
        with self._news:
            arrived = self._news.wait_for(lambda: enough(self.spans), timeout_s)
        assert arrived, sorted((span.service, span.name) for span in self.spans)


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A receiver on a free port; `url` is what `--otlp-endpoint` takes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if received.status != 200:
                received.refuse()
            elif self.path == "/v1/logs":
                self.take_logs(list(_logs(ExportLogsServiceRequest.FromString(body))))
                return
            else:
                received.bodies.append(body)
                received.add(list(_spans(ExportTraceServiceRequest.FromString(body))))
            self.answer(received.status)

        def take_logs(self, logs: list[ReceivedLog]) -> None:
            if received.refuses and any(received.refuses in log.body for log in logs):
                received.refuse()
                self.answer(400)
                return
            received.add_logs(logs[received.rejected :])
            said = ExportLogsServiceResponse()
            said.partial_success.rejected_log_records = received.rejected
            self.answer(200, said.SerializeToString() if received.rejected else b"")

        def answer(self, status: int, content: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received = Receiver(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


def _spans(request: ExportTraceServiceRequest) -> Iterator[Received]:
    for resource in request.resource_spans:
        about = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Received(
                    service=about["service.name"],
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    attributes=_attributes(span.attributes),
                    events=tuple(event.name for event in span.events),
                    text=str(span),
                    facts=tuple(_attributes(event.attributes) for event in span.events),
                    links=tuple(
                        (link.span_id.hex(), _attributes(link.attributes)) for link in span.links
                    ),
                    failed=span.status.code == Status.STATUS_CODE_ERROR,
                )


def _logs(request: ExportLogsServiceRequest) -> Iterator[ReceivedLog]:
    for resource in request.resource_logs:
        about = _attributes(resource.resource.attributes)
        for scope in resource.scope_logs:
            for record in scope.log_records:
                yield ReceivedLog(
                    service=about["service.name"],
                    event=record.event_name,
                    trace_id=record.trace_id.hex(),
                    severity=record.severity_text,
                    attributes=_attributes(record.attributes),
                    body=record.body.string_value,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
