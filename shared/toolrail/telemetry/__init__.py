"""Traces: W3C context across processes, spans, and their export over OTLP/HTTP.

Off by default; then a span costs a shared no-op object and a context from outside still passes
through, so that a caller's trace reaches the engine. On, spans leave through a background thread
with a bounded queue: when it is full, or the receiver is away, spans are dropped and counted, and
no request waits.

Spans carry names, sizes and counts. Prompt text, model text and exception messages never go in,
unless a deployment wants the first two (`content`); a failed span has the type of its exception.
What is said of a span costs nothing where none is recorded: ask `span.is_recording()` before
anything is gathered for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio
import anyio.to_thread
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from toolrail.telemetry import semconv
from toolrail.telemetry.content import Content

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from toolrail.telemetry.export import CountedExporter

Kind: TypeAlias = Literal["internal", "server", "client", "producer", "consumer"]
Attributes: TypeAlias = Mapping[str, str | bool | int | float | Sequence[str]]

_KINDS: Final[Mapping[Kind, SpanKind]] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}
_FLUSH_TIMEOUT_S: Final = 5.0

MAX_EVENTS_OF_A_KIND: Final = 64
"""Events of one kind on one span; what comes after them is in the span's counts alone."""

_MAX_NAME: Final = 64
"""Characters of a name that the caller gave: as long as OpenAI lets a function's name be."""

_propagator: Final = TraceContextTextMapPropagator()


def headers(span: Span | None = None) -> dict[str, str]:
    """W3C headers (`traceparent`, `tracestate`) of `span`, else of the current context.

    Empty when there is no trace.
    """
    carrier: dict[str, str] = {}
    context = trace.set_span_in_context(span) if span is not None else None
    _propagator.inject(carrier, context)
    return carrier


@contextmanager
def attached(trace_headers: Mapping[str, str] | None) -> Generator[None]:
    """Work inside the trace that `trace_headers` name; inside none when they name none."""
    empty = otel_context.Context()
    found = _propagator.extract(trace_headers, empty) if trace_headers else empty
    token = otel_context.attach(found)
    try:
        yield
    finally:
        otel_context.detach(token)


def current_trace_id() -> str:
    """Hexadecimal id of the current trace; empty when there is none."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""


def recorded() -> Span | None:
    """The current span, if it is recorded: nothing that is only for it need be made otherwise."""
    span = trace.get_current_span()
    return span if span.is_recording() else None


def event(name: str, attributes: Attributes | None = None) -> None:
    """A point in time on the current span."""
    trace.get_current_span().add_event(name, attributes)


def traceparent(span: Span) -> str:
    """The context of `span` for `link`, in another process perhaps; "" when it is not recorded."""
    return headers(span)["traceparent"] if span.is_recording() else ""


def link(span: Span, target: str, attributes: Attributes | None = None) -> None:
    """Link `span` to the one whose context `target` is (see `traceparent`); nothing where none."""
    if not (target and span.is_recording()):
        return
    found = _propagator.extract({"traceparent": target}, otel_context.Context())
    context = trace.get_current_span(found).get_span_context()
    if context.is_valid:
        span.add_link(context, attributes)


def fail(span: Span, code: str, *, ours: bool) -> None:
    """Say in `span` what it failed by; it counts as an error where the fault is `ours`."""
    span.set_attribute(semconv.ERROR_TYPE, code)
    if ours:
        span.set_status(StatusCode.ERROR)


def shortened(name: str) -> str:
    """A name that the caller gave, such as a tool's, as far as a span holds it."""
    return name[:_MAX_NAME]


def tag_hash(structural_tag: str) -> str:
    """A short name of a structural tag: equal tags, equal names, in every process. O(tag)."""
    data = structural_tag.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def exemplar(span: Span | None = None) -> dict[str, str] | None:
    """What leads from a measurement to the trace of `span`, or of the current one, if recorded."""
    span = span or trace.get_current_span()
    if not span.is_recording():
        return None
    context = span.get_span_context()
    return {
        "trace_id": trace.format_trace_id(context.trace_id),
        "span_id": trace.format_span_id(context.span_id),
    }


class Telemetry:
    """One process's spans.

    Attributes:
        enabled: whether spans are recorded at all.
        content: what they hold of prompts and answers.
    """

    def __init__(
        self,
        provider: TracerProvider | None = None,
        exporter: CountedExporter | None = None,
        content: Content | None = None,
    ) -> None:
        """Telemetry over `provider`; without one it is off. See `exporting`."""
        self.content = content or Content()
        self._provider = provider
        self._tracer = provider.get_tracer("toolrail") if provider is not None else None
        self._off: AbstractContextManager[Span] = nullcontext(INVALID_SPAN)
        self._exporter = exporter
        self.enabled = provider is not None

    @property
    def dropped_spans(self) -> int:
        """Spans lost so far: the queue was full, or the receiver away."""
        return self._exporter.lost if self._exporter is not None else 0

    def span(
        self, name: str, *, kind: Kind = "internal", attributes: Attributes | None = None
    ) -> AbstractContextManager[Span]:
        """A span around a block, child of the current one. An exception marks it as failed."""
        if self._tracer is None:
            return self._off
        return self._recorded(self._tracer, name, kind, attributes)

    def start_span(
        self,
        name: str,
        *,
        kind: Kind = "internal",
        attributes: Attributes | None = None,
        parent: Mapping[str, str] | None = None,
    ) -> Span:
        """A span that outlives the call; its owner calls `end()` once.

        Its parent is the context in `parent` (W3C headers) if given, else the current one.
        """
        if self._tracer is None:
            return INVALID_SPAN
        context = _propagator.extract(parent) if parent else None
        return self._tracer.start_span(
            name, context=context, kind=_KINDS[kind], attributes=attributes
        )

    def event(self, name: str, attributes: Attributes | None = None) -> None:
        """A point in time on the current span."""
        event(name, attributes)

    def lend(self) -> None:
        """What libraries in this process trace leaves by the same way from now on.

        Not what processes do that it forks: they must leave its connections alone.
        """
        if self._provider is not None:
            trace.set_tracer_provider(self._provider)

    def headers(self, span: Span | None = None) -> dict[str, str]:
        """W3C headers of `span`, else of the current context; also when telemetry is off."""
        return headers(span)

    def attached(self, trace_headers: Mapping[str, str] | None) -> AbstractContextManager[None]:
        """Work inside the trace that `trace_headers` name."""
        return attached(trace_headers)

    async def close(self, timeout_s: float = _FLUSH_TIMEOUT_S) -> None:
        """Send what is queued, for at most `timeout_s`; the rest is lost."""
        if self._provider is None:
            return
        with anyio.move_on_after(timeout_s) as scope:
            await anyio.to_thread.run_sync(self._provider.shutdown, abandon_on_cancel=True)
        if scope.cancelled_caught and self._exporter is not None:
            self._exporter.give_up()

    @contextmanager
    def _recorded(
        self, tracer: trace.Tracer, name: str, kind: Kind, attributes: Attributes | None
    ) -> Generator[Span]:
        with tracer.start_as_current_span(
            name,
            kind=_KINDS[kind],
            attributes=attributes,
            record_exception=False,  # its message may quote the request
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute(semconv.ERROR_TYPE, type(error).__qualname__)
                span.set_status(StatusCode.ERROR)
                raise


def exporting(
    service: str,
    instance: str,
    *,
    otlp_endpoint: str,
    sample_ratio: float = 1.0,
    content: Content | None = None,
) -> Telemetry:
    """Telemetry that sends to the OTLP/HTTP receiver at `otlp_endpoint`; off when that is empty.

    `sample_ratio` decides for traces that begin here; others follow their caller's decision.
    """
    if not otlp_endpoint:
        return Telemetry()
    # The SDK and its HTTP client cost 0.2 s of start, for a feature that is off by default.
    from toolrail.telemetry.export import provider  # noqa: PLC0415

    return Telemetry(*provider(service, instance, otlp_endpoint, sample_ratio), content)
