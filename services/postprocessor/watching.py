"""Metrics and traces of streams, seen from outside: the core does not know of them.

A stream has one span, from its hand-over to its last word, with an event for its first token, each
call and its end. Names and counts only: neither text nor arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from opentelemetry.trace import Span, StatusCode

from services.postprocessor.checking import Verdict
from services.postprocessor.choice import Step
from services.postprocessor.metrics import CallState, PostprocessorMetrics
from services.postprocessor.stream import Outcome, RequestStream
from services.postprocessor.streams import Batch, Happening
from toolrail.messages import Stream
from toolrail.telemetry import Telemetry, semconv

_MAX_CALL_EVENTS: Final = 64
"""Calls of one stream that get an event of their own; the counts stay exact."""


@dataclass(slots=True)
class _Watch:
    span: Span
    model: str
    family: str
    tool_choice: str
    begun: bool = False
    calls: int = 0
    checked: int = 0
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
        span = self._telemetry.start_span(
            "stream",
            kind="consumer",
            attributes={
                semconv.GEN_AI_REQUEST_MODEL: stream.model,
                semconv.GEN_AI_REQUEST_CHOICE_COUNT: stream.num_choices,
                "toolrail.family": family,
                "toolrail.tool_choice": stream.parse.tool_choice,
                "toolrail.tools": len(stream.parse.tools),
            },
        )
        self._watches[stream.request_id] = _Watch(
            span, stream.model, family, stream.parse.tool_choice
        )
        self._metrics.meet(stream.model, family)
        self._metrics.open_streams.set(len(self._watches))

    def inside(self, request_id: str) -> AbstractContextManager[None]:
        """Work inside the stream's span; when traces are off, inside the caller's."""
        span = self._watches[request_id].span
        headers = self._telemetry.headers(span) or self._telemetry.headers()
        return self._telemetry.attached(headers)

    def refuse(self, request_id: str, code: str) -> None:
        """A hand-over was not taken, perhaps after `begin`."""
        self._metrics.refused.labels(code).inc()
        if (watch := self._watches.pop(request_id, None)) is not None:
            self._close(watch, code)

    def taken_over(self) -> None:
        """A stream came here that had another owner before."""
        self._metrics.taken_over.inc()

    def release(self, request_id: str) -> None:
        """A stream has a later owner."""
        if (watch := self._watches.pop(request_id, None)) is not None:
            watch.span.add_event("taken over by another")
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
        self._moves(watch, happening.outcome)
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

    def _moves(self, watch: _Watch, outcome: Outcome) -> None:
        if (moved := outcome.migration) is not None:
            self._metrics.migrations.labels(moved.cause).inc()
            facts = {
                "choice": moved.job.choice,
                "attempt": moved.job.attempt,
                "cause": moved.cause,
                "worker": moved.worker,
                "tokens": len(moved.job.prefix_token_ids),
                "silent_s": moved.silent_s,
            }
            watch.span.add_event("migrated", facts)
        if outcome.resumed_s is not None:
            self._metrics.without_worker.observe(outcome.resumed_s)
            watch.span.add_event("resumed", {"without_worker_s": outcome.resumed_s})

    def judged(self, request_id: str, verdicts: Sequence[Verdict]) -> None:
        """Checks that a stream did not wait for are made; it may have ended."""
        watch = self._unjudged.get(request_id)
        if watch is None:
            return  # of a stream that was here twice
        self._verdicts(watch, verdicts)
        watch.unjudged -= 1
        if not watch.unjudged:
            del self._unjudged[request_id]
            if watch.over:
                watch.span.end()

    def _verdicts(self, watch: _Watch, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            watch.checked += 1
            self._metrics.checks.labels(watch.family, verdict.result).inc()
            if verdict.tool:
                self._call(watch, "empty" if verdict.is_empty else verdict.result)
            if watch.checked <= _MAX_CALL_EVENTS:
                facts = {"result": verdict.result, "tool": verdict.tool, "broken": verdict.broken}
                watch.span.add_event("check", facts)

    def _step(self, watch: _Watch, step: Step) -> None:
        if not watch.begun:
            watch.begun = True
            watch.span.add_event("first token")
        for call in step.calls:
            watch.calls += 1
            if not call.checked:  # else its verdict says what became of it
                self._call(watch, "valid" if call.outcome == "complete" else call.outcome)
            if watch.calls <= _MAX_CALL_EVENTS:
                # A name that was not offered is the model's own text.
                name = call.name if call.outcome != "unknown_tool" else ""
                watch.span.add_event("call", {"tool": name, "outcome": call.outcome})
        if step.markers_in_text:
            markers = self._metrics.markers_in_text.labels(watch.family, watch.tool_choice)
            markers.inc(step.markers_in_text)
        for kind in step.recoveries:
            self._metrics.recoveries.labels(watch.family, kind).inc()
        if step.end is not None:
            watch.span.add_event("choice ended", {"finish": step.end.finish})

    def _call(self, watch: _Watch, outcome: CallState) -> None:
        self._metrics.calls.labels(watch.model, watch.family, outcome).inc()

    def _end(self, watch: _Watch, stream: RequestStream) -> None:
        usage = stream.usage()
        watch.span.set_attributes(
            {
                semconv.GEN_AI_USAGE_INPUT_TOKENS: usage.prompt_tokens,
                semconv.GEN_AI_USAGE_OUTPUT_TOKENS: usage.completion_tokens,
                semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: usage.cached_tokens,
                semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: usage.reasoning_tokens,
                "toolrail.calls": watch.calls,
            }
        )
        code = stream.failed.code if stream.failed is not None else None
        self._metrics.streams.labels(code or "completed").inc()
        self._close(watch, code)

    def _close(self, watch: _Watch, code: str | None) -> None:
        if code is not None:
            watch.span.set_attribute(semconv.ERROR_TYPE, code)
            watch.span.set_status(StatusCode.ERROR)
        watch.over = True
        if not watch.unjudged:
            watch.span.end()
        self._metrics.open_streams.set(len(self._watches))
