"""The way out for spans: batched in a background thread, bounded, every loss counted."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import (
    ReadableSpan,
    Span,
    SpanLimits,
    SpanProcessor,
    TracerProvider,
)
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from toolrail.telemetry import semconv

_MAX_QUEUE: Final = 4096
_MAX_BATCH: Final = 512
_BATCH_DELAY_MS: Final = 500
_EXPORT_TIMEOUT_S: Final = 5.0
_TELL_AGAIN_S: Final = 60.0

_LIMITS: Final = SpanLimits(
    max_span_attributes=64,
    max_events=256,
    max_event_attributes=32,
    max_links=128,
    max_link_attributes=8,
)
"""Of any one span. What a stream has many of is bounded before (`MAX_EVENTS_OF_A_KIND`)."""

log: Final = logging.getLogger("toolrail.telemetry")


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
    # It says so with every batch that is not taken; `CountedExporter` does once a minute.
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
    exporter = CountedExporter(
        OTLPSpanExporter(
            endpoint=f"{otlp_endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_TIMEOUT_S
        )
    )
    made = TracerProvider(
        resource=resource,
        sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
        span_limits=_LIMITS,
        shutdown_on_exit=False,  # `Telemetry.close` does it, with a deadline
    )
    made.add_span_processor(_Bounded(exporter))
    return made, exporter


class CountedExporter(SpanExporter):
    """An exporter that knows what waits for it and what was lost. Used from two threads."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._queued = 0
        self._lost = 0
        self._told_s = -_TELL_AGAIN_S
        self._given_up = False

    @property
    def lost(self) -> int:
        """Spans that were refused or could not be sent."""
        return self._lost

    def accept(self) -> bool:
        """Whether there is room for one more span; otherwise it is lost.

        In a process that was forked there is none: lock and connection are its parent's.
        """
        if os.getpid() != self._process:
            return False
        with self._lock:
            room = self._queued < _MAX_QUEUE
            self._queued += room
            self._lost += not room
        if not room:
            self._tell()
        return room

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; it blocks the exporting thread until the receiver has it or time is up."""
        with self._lock:
            self._queued -= len(spans)
        result = SpanExportResult.FAILURE if self._given_up else self._exporter.export(spans)
        taken = result is SpanExportResult.SUCCESS
        with self._lock:
            self._lost += len(spans) * (not taken)
        if not taken and not self._given_up:
            self._tell()
        return result

    def _tell(self) -> None:
        with self._lock:
            now_s = time.monotonic()
            if now_s - self._told_s < _TELL_AGAIN_S:
                return
            self._told_s = now_s
        log.warning("spans are lost: the receiver is away or slow", extra={"lost": self._lost})

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
