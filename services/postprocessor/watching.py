"""Metrics and traces of streams, seen from outside: the core does not know of them.

What the spans say is in `tracing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from services.postprocessor.batch import Batch, Happening
from services.postprocessor.checking import Verdict
from services.postprocessor.choice import Step
from services.postprocessor.metrics import CallState, PostprocessorMetrics
from services.postprocessor.stream import Outcome, RequestStream
from services.postprocessor.tracing import StreamTrace, refused
from toolrail.messages import OWNER_STOPPING, Stream
from toolrail.telemetry import Telemetry


@dataclass(slots=True)
class _Watch:
    trace: StreamTrace
    model: str
    family: str
    tool_choice: str
    unjudged: int = 0
    over: bool = False


class Watching:
    """What is known of every open stream for metrics and traces."""

    def __init__(self, metrics: PostprocessorMetrics, telemetry: Telemetry) -> None:
        self._metrics = metrics
        self._telemetry = telemetry
        self._watches: dict[str, _Watch] = {}
        self._unjudged: dict[str, _Watch] = {}

    def begin(self, stream: Stream, family: str) -> None:
        """Watch `stream`."""
        trace = StreamTrace(
            self._telemetry.start_span("stream"), stream, family, self._telemetry.content
        )
        self._watches[stream.request_id] = _Watch(
            trace, stream.model, family, stream.parse.tool_choice
        )
        self._metrics.meet(stream.model, family)
        self._metrics.open_streams.set(len(self._watches))

    def inside(self, request_id: str) -> AbstractContextManager[None]:
        """Work inside the stream's span; when traces are off, inside the caller's."""
        span = self._watches[request_id].trace.span
        headers = self._telemetry.headers(span) or self._telemetry.headers()
        return self._telemetry.attached(headers)

    def refuse(self, request_id: str, code: str) -> None:
        """A hand-over was not taken, perhaps after `begin`."""
        self._metrics.refused.labels(code).inc()
        refused(code)
        if (watch := self._watches.pop(request_id, None)) is not None:
            self._close(watch, code)

    def taken_over(self) -> None:
        """A stream came here that had another owner before."""
        self._metrics.taken_over.inc()

    def release(self, request_id: str) -> None:
        """A stream has a later owner."""
        if (watch := self._watches.pop(request_id, None)) is not None:
            watch.trace.released()
            self._metrics.streams.labels("taken_over").inc()
            self._close(watch, None)

    def observe(self, batch: Batch) -> None:
        """Count what happened."""
        for happening in batch.happenings:
            watch = self._watches.get(happening.stream.request_id)
            if watch is not None:
                self._observe(watch, happening)
        for reason in batch.dropped:
            self._metrics.dropped.labels(reason).inc()

    def _observe(self, watch: _Watch, happening: Happening) -> None:
        step, stream = happening.outcome.step, happening.stream
        watch.trace.observe(happening.outcome)
        self._moves(happening.outcome)
        if step is not None:
            self._step(watch, step)
        self._verdicts(watch, happening.outcome.verdicts)
        if happening.outcome.checks and not stream.fails:
            watch.unjudged += 1
            self._unjudged[stream.request_id] = watch
        if happening.bug is not None:
            self._metrics.parse_errors.labels(watch.family).inc()
        if stream.over and stream.dead is not None:
            self._metrics.dead_letters.labels(stream.dead).inc()
        if stream.over:
            del self._watches[stream.request_id]
            self._end(watch, stream)

    def _moves(self, outcome: Outcome) -> None:
        if (moved := outcome.migration) is not None:
            self._metrics.migrations.labels(moved.cause).inc()
        if outcome.resumed_s is not None:
            self._metrics.without_worker.observe(outcome.resumed_s)

    def judged(self, request_id: str, verdicts: Sequence[Verdict]) -> None:
        """Checks that a stream did not wait for are made; it may have ended."""
        watch = self._unjudged.get(request_id)
        if watch is None:
            return  # of a stream that was here twice
        watch.trace.checked(verdicts)
        self._verdicts(watch, verdicts)
        watch.unjudged -= 1
        if not watch.unjudged:
            del self._unjudged[request_id]
            if watch.over:
                watch.trace.span.end()

    def _verdicts(self, watch: _Watch, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            self._metrics.checks.labels(watch.family, verdict.result).inc()
            if verdict.tool:
                self._call(watch, "empty" if verdict.is_empty else verdict.result)

    def _step(self, watch: _Watch, step: Step) -> None:
        for call in step.calls:
            if not call.checked:  # else its verdict says what became of it
                self._call(watch, "valid" if call.outcome == "complete" else call.outcome)
        if step.markers_in_text:
            markers = self._metrics.markers_in_text.labels(watch.family, watch.tool_choice)
            markers.inc(step.markers_in_text)
        for kind in step.recoveries:
            self._metrics.recoveries.labels(watch.family, kind).inc()

    def _call(self, watch: _Watch, outcome: CallState) -> None:
        self._metrics.calls.labels(watch.model, watch.family, outcome).inc()

    def _end(self, watch: _Watch, stream: RequestStream) -> None:
        watch.trace.end(stream.usage())
        failed = stream.failed
        self._metrics.streams.labels("completed" if failed is None else failed.code).inc()
        if failed is None:
            self._close(watch, None)
        elif failed.error_code == OWNER_STOPPING:
            watch.trace.released()
            self._close(watch, None)
        else:
            self._close(watch, failed.code)

    def _close(self, watch: _Watch, code: str | None) -> None:
        if code is not None:
            watch.trace.fail(code)
        watch.over = True
        if not watch.unjudged:
            watch.trace.span.end()
        self._metrics.open_streams.set(len(self._watches))
