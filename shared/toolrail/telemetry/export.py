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
    service: str, instance: str, otlp_endpoint: str, sample_ratio: float
) -> tuple[TracerProvider, Callable[[], int]]:
    """A provider (never the global one) that sends to `<otlp_endpoint>/v1/traces`.

    With it comes the count of spans that were lost.
    """
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
    losses = _Losses()
    made.add_span_processor(_Bounded(exporter, losses))
    return made, losses.count


class _Losses:
    """Spans that wait in the queue, and those that were lost. Used from two threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queued = 0
        self._lost = 0

    def count(self) -> int:
        return self._lost

    def queue_one(self) -> bool:
        """Whether there was room for one more; otherwise it is lost."""
        with self._lock:
            room = self._queued < _MAX_QUEUE
            self._queued += room
            self._lost += not room
            return room

    def take(self, count: int) -> None:
        with self._lock:
            self._queued -= count

    def lose(self, count: int) -> None:
        with self._lock:
            self._lost += count


class _Bounded(SpanProcessor):
    """A BatchSpanProcessor that knows what it lost.

    The SDK's own drops the oldest span of a full queue, with a log line a span; this one refuses
    the newest before it gets there, and counts.
    """

    def __init__(self, exporter: SpanExporter, losses: _Losses) -> None:
        self._losses = losses
        self._batches = BatchSpanProcessor(
            _Counted(exporter, losses),
            max_queue_size=_MAX_QUEUE,
            max_export_batch_size=_MAX_BATCH,
            schedule_delay_millis=_BATCH_DELAY_MS,
        )

    def on_start(self, span: Span, parent_context: object = None) -> None:
        pass

    def on_end(self, span: ReadableSpan) -> None:
        sampled = span.context is not None and span.context.trace_flags.sampled
        if sampled and self._losses.queue_one():
            self._batches.on_end(span)

    def shutdown(self) -> None:
        self._batches.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._batches.force_flush(timeout_millis)


class _Counted(SpanExporter):
    """An exporter whose failures are counted."""

    def __init__(self, exporter: SpanExporter, losses: _Losses) -> None:
        self._exporter = exporter
        self._losses = losses

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._losses.take(len(spans))
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._losses.lose(len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
