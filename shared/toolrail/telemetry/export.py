"""The way out for spans: batched in a background thread, bounded, every loss counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from toolrail.telemetry import semconv

_MAX_QUEUE: Final = 4096
_MAX_BATCH: Final = 512
_BATCH_DELAY_MS: Final = 500
_EXPORT_TIMEOUT_S: Final = 5.0


def provider(
    service: str,
    instance: str,
    otlp_endpoint: str,
    sample_ratio: float,
    on_drop: Callable[[int], None],
) -> TracerProvider:
    """A provider of its own (never the global one) that sends to `<otlp_endpoint>/v1/traces`."""
    resource = Resource.create(
        {
            semconv.SERVICE_NAMESPACE: "toolrail",
            semconv.SERVICE_NAME: service,
            semconv.SERVICE_INSTANCE_ID: instance,
            semconv.SERVICE_VERSION: version("toolrail"),
        }
    )
    exporter = OTLPSpanExporter(
        endpoint=f"{otlp_endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_TIMEOUT_S
    )
    made = TracerProvider(
        resource=resource,
        sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
        shutdown_on_exit=False,  # `Telemetry.close` does it, with a deadline
    )
    made.add_span_processor(_Counted(exporter, on_drop))
    return made


class _Counted(SpanProcessor):
    """A BatchSpanProcessor that knows what it lost.

    The SDK's own drops the oldest span of a full queue with a log line a span; this one refuses the
    newest before it gets there, and counts.
    """

    def __init__(self, exporter: SpanExporter, on_drop: Callable[[int], None]) -> None:
        self._queued = 0
        self._lock = threading.Lock()
        self._on_drop = on_drop
        self._batches = BatchSpanProcessor(
            _CountedExporter(exporter, self._taken, on_drop),
            max_queue_size=_MAX_QUEUE,
            max_export_batch_size=_MAX_BATCH,
            schedule_delay_millis=_BATCH_DELAY_MS,
        )

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._lock:
            full = self._queued >= _MAX_QUEUE
            self._queued += not full
        if full:
            self._on_drop(1)
        else:
            self._batches.on_end(span)

    def on_start(self, span: Span, parent_context: object = None) -> None:
        pass

    def shutdown(self) -> None:
        self._batches.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._batches.force_flush(timeout_millis)

    def _taken(self, count: int) -> None:
        with self._lock:
            self._queued -= count


class _CountedExporter(SpanExporter):
    def __init__(
        self,
        exporter: SpanExporter,
        taken: Callable[[int], None],
        on_drop: Callable[[int], None],
    ) -> None:
        self._exporter = exporter
        self._taken = taken
        self._on_drop = on_drop

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._taken(len(spans))
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._on_drop(len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
