"""The way out for spans: batched in a background thread, bounded, every loss counted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
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
) -> tuple[TracerProvider, CountedExporter]:
    """A provider (never the global one) that sends to `<otlp_endpoint>/v1/traces`, and its exit."""
    resource = Resource.create(
        {
            semconv.SERVICE_NAMESPACE: "toolrail",
            semconv.SERVICE_NAME: service,
            semconv.SERVICE_INSTANCE_ID: instance,
            semconv.SERVICE_VERSION: version("toolrail"),
        }
    )
    exporter = CountedExporter(
        OTLPSpanExporter(
            endpoint=f"{otlp_endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_TIMEOUT_S
        )
    )
    made = TracerProvider(
        resource=resource,
        sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
        shutdown_on_exit=False,  # `Telemetry.close` does it, with a deadline
    )
    made.add_span_processor(_Bounded(exporter))
    return made, exporter


class CountedExporter(SpanExporter):
    """An exporter that knows what waits for it and what was lost. Used from two threads."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._lock = threading.Lock()
        self._queued = 0
        self._lost = 0
        self._given_up = False

    @property
    def lost(self) -> int:
        """Spans that were refused or could not be sent."""
        return self._lost

    def accept(self) -> bool:
        """Whether there is room for one more span; otherwise it is lost."""
        with self._lock:
            room = self._queued < _MAX_QUEUE
            self._queued += room
            self._lost += not room
            return room

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; it blocks the exporting thread until the receiver has it or time is up."""
        with self._lock:
            self._queued -= len(spans)
        result = SpanExportResult.FAILURE if self._given_up else self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            with self._lock:
                self._lost += len(spans)
        return result

    def give_up(self) -> None:
        """Lose what is left, so that a shutdown which waits for it ends."""
        self._given_up = True
        self._exporter.shutdown()

    def shutdown(self) -> None:
        """Close the connection to the receiver."""
        self._exporter.shutdown()


class _Bounded(SpanProcessor):
    """A BatchSpanProcessor with a queue whose losses are known.

    The SDK's own drops the oldest span of a full queue, with a log line a span; this one refuses
    the newest before it gets there.
    """

    def __init__(self, exporter: CountedExporter) -> None:
        self._exporter = exporter
        self._batches = BatchSpanProcessor(
            exporter,
            max_queue_size=_MAX_QUEUE,
            max_export_batch_size=_MAX_BATCH,
            schedule_delay_millis=_BATCH_DELAY_MS,
        )

    def on_start(self, span: Span, parent_context: object = None) -> None:
        pass

    def on_end(self, span: ReadableSpan) -> None:
        sampled = span.context is not None and span.context.trace_flags.sampled
        if sampled and self._exporter.accept():
            self._batches.on_end(span)

    def shutdown(self) -> None:
        self._batches.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._batches.force_flush(timeout_millis)
