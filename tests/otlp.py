"""An OTLP/HTTP receiver inside the test process."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


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


@dataclass
class Receiver:
    """Collects spans; `until` waits for those a test is about."""

    url: str
    spans: list[Received] = field(default_factory=list[Received])
    _news: threading.Condition = field(default_factory=threading.Condition)

    def add(self, spans: list[Received]) -> None:
        with self._news:
            self.spans += spans
            self._news.notify_all()

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
            received.add(list(_spans(ExportTraceServiceRequest.FromString(body))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

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
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {p.key: getattr(p.value, p.value.WhichOneof("value")) for p in pairs}
