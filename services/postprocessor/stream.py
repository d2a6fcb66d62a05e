"""One request: its choices, its numbering, its end. Pure; the clock comes in as seconds.

Frames of the worker are numbered per choice and run: a repeated one is dropped, a missing one fails
the request, since its text can no longer be right. What leaves is numbered per request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from services.postprocessor.checking import Check, Verdict
from services.postprocessor.choice import Choice, Step
from services.postprocessor.failures import failure
from services.postprocessor.joining import portions
from toolrail.messages import (
    Cancel,
    ChoiceEnd,
    EventDelta,
    Failed,
    FailureCode,
    TokenDelta,
    Usage,
)

Drop: TypeAlias = Literal["duplicate", "old_epoch", "other_worker", "ended", "unknown_stream"]
"""Why a delta of the worker was not used."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds of silence a stream may have.

    Attributes:
        idle_s: between two deltas of a choice that has begun.
        unstarted_s: before a choice's first delta, when the request has no deadline.
    """

    idle_s: float
    unstarted_s: float


@dataclass(slots=True)
class _Run:
    """One choice's run on a worker."""

    choice: Choice
    last_s: float
    epoch: int = 0
    next_seq: int = 0
    worker: str | None = None
    over: bool = False
    held: Step | None = None
    """What may not leave before its checks are made,"""
    parked: list[TokenDelta] = field(default_factory=list[TokenDelta])
    """and what came since: at most what the engine writes within the timeout of a check."""


@dataclass(slots=True)
class Outcome:
    """What the stream has to say after something happened to it.

    Attributes:
        deltas: for the gateway.
        step: what came of the ids, for metrics and traces.
        cancel: for the model's workers: nobody reads the rest of a run.
        dropped: why the delta was not used.
        verdicts: of the checks that were made.
        checks: those that are still to be made, off the event loop, for `judged`.
        choice: whose they are.
    """

    deltas: list[EventDelta] = field(default_factory=list[EventDelta])
    step: Step | None = None
    cancel: Cancel | None = None
    dropped: Drop | None = None
    verdicts: Sequence[Verdict] = ()
    checks: Sequence[Check] = ()
    choice: int = 0


@dataclass(slots=True)
class RequestStream:
    """The state of one request.

    Attributes:
        model: served name, whose workers hear its cancels.
        reply_subject: where its events go.
        over: its last word was said.
        failed: how, when that was a failure.
        fails: a bad verdict ends it, and what is checked leaves after its verdict.
    """

    request_id: str
    model: str
    reply_subject: str
    prompt_tokens: int
    deadline_ms: int
    over: bool = False
    failed: Failed | None = None
    fails: bool = False
    cached_tokens: int = 0
    _runs: list[_Run] = field(default_factory=list[_Run])
    _seq: int = 0

    def begin(self, choices: Sequence[Choice], now_s: float) -> None:
        """Own `choices`, whose jobs are about to be queued."""
        self._runs = [_Run(choice, now_s) for choice in choices]

    @property
    def completion_tokens(self) -> int:
        """Ids of all choices so far."""
        return sum(run.choice.completion_tokens for run in self._runs)

    def usage(self) -> Usage:
        """Tokens of the request so far."""
        return Usage(
            self.prompt_tokens,
            self.completion_tokens,
            min(self.cached_tokens, self.prompt_tokens),
            sum(run.choice.reasoning_tokens for run in self._runs),
        )

    def take(self, delta: TokenDelta, worker: str, now_s: float) -> Outcome:
        """What new ids of a choice come to."""
        if not 0 <= delta.choice < len(self._runs):
            return self.fail("internal", "the worker sent a choice that nobody asked for")
        run = self._runs[delta.choice]
        if (reason := _stale(run, delta, worker)) is not None:
            return Outcome(dropped=reason)
        if (message := _loss(run, delta)) is not None:
            return self.fail("lost", message)
        run.epoch = delta.epoch
        run.last_s = now_s
        run.next_seq += 1
        run.worker = worker
        if delta.choice == 0 and delta.cached_tokens is not None:
            self.cached_tokens = delta.cached_tokens
        if run.held is not None:
            run.parked.append(delta)
            return Outcome()
        return self._use(run, delta)

    def _use(self, run: _Run, delta: TokenDelta) -> Outcome:
        if delta.finish == "error":
            return self.fail(
                delta.error_code or "engine", delta.error or "the engine failed this request"
            )
        if delta.finish == "abort":
            return self.fail("lost", "the worker stopped before the answer was complete")
        return self._step(run, delta)

    def _step(self, run: _Run, delta: TokenDelta) -> Outcome:
        step = run.choice.feed(delta)
        if not step.checks:
            return self._pass(run, delta.choice, step, ())
        verdicts, later = _judged(step.checks)
        if not self.fails:
            outcome = self._pass(run, delta.choice, step, verdicts)
            outcome.checks, outcome.choice = later, delta.choice
            return outcome
        if later and not any(verdict.is_bad for verdict in verdicts):
            run.held = step
            return Outcome(verdicts=verdicts, checks=later, choice=delta.choice)
        return self._pass(run, delta.choice, step, verdicts)

    def judged(self, choice: int, verdicts: Sequence[Verdict]) -> Iterator[Outcome]:
        """What comes of the step whose checks are made now, and of what came since."""
        run = self._runs[choice]
        step, run.held = run.held, None
        if step is None or run.over or self.over:
            return
        yield self._pass(run, choice, step, verdicts)
        waiting, run.parked = run.parked, []
        for delta in waiting:
            if self.over or run.over:
                return
            if run.held is not None:
                run.parked.append(delta)
            else:
                yield self._use(run, delta)

    def _pass(self, run: _Run, choice: int, step: Step, verdicts: Sequence[Verdict]) -> Outcome:
        """Let a step go, unless the stream fails by a verdict."""
        bad = next((verdict for verdict in verdicts if verdict.is_bad), None)
        if bad is not None and self.fails:
            outcome = self.fail("model_output", bad.message)
            outcome.step, outcome.verdicts = step, verdicts
            return outcome
        outcome = Outcome(step=step, verdicts=verdicts)
        if step.end is not None:
            run.over = True
            self.over = all(other.over for other in self._runs)
        if step.engine_runs_on:
            outcome.cancel = Cancel(
                request_id=self.request_id, choice=choice, reason="the choice has ended"
            )
        if step.events or step.logprobs or step.end is not None:
            outcome.deltas = self._deltas(choice, step)
        return outcome

    def _deltas(self, choice: int, step: Step) -> list[EventDelta]:
        *before, last = portions(step.events)
        deltas = [
            EventDelta(self.request_id, self._number(), choice, tuple(events)) for events in before
        ]
        deltas.append(
            EventDelta(
                self.request_id,
                self._number(),
                choice,
                tuple(last),
                step.logprobs or None,
                step.end,
                self.usage() if self.over else None,
            )
        )
        return deltas

    def fail(self, code: FailureCode, message: str) -> Outcome:
        """End the stream with a failure, and whatever still runs for it."""
        self.over = True
        self.failed = failure(self.request_id, code, message)
        return Outcome(
            [EventDelta(self.request_id, self._number(), 0, failed=self.failed)],
            cancel=Cancel(request_id=self.request_id, reason=code),
        )

    def cancel(self, choice: int | None, reason: str) -> Outcome:
        """Somebody wants the request, or one choice of it, to stop."""
        if choice is None:
            return self.fail("cancelled", reason or "the request was cancelled")
        if not 0 <= choice < len(self._runs) or self._runs[choice].over:
            return Outcome()
        self._runs[choice].over = True
        self.over = all(run.over for run in self._runs)
        usage = self.usage() if self.over else None
        end = ChoiceEnd("abort")
        return Outcome(
            [EventDelta(self.request_id, self._number(), choice, end=end, usage=usage)],
            cancel=Cancel(request_id=self.request_id, choice=choice, reason=reason),
        )

    def expire(self, now_s: float, now_ms: int, timeouts: Timeouts) -> Outcome | None:
        """The failure of a stream whose time is up; None while it is not."""
        if self.deadline_ms and now_ms >= self.deadline_ms:
            return self.fail("deadline", "the request did not end before its deadline")
        for run in self._runs:
            if run.over:
                continue
            silence_s = now_s - run.last_s
            if run.worker is not None and silence_s >= timeouts.idle_s:
                return self.fail("lost", f"no output for {timeouts.idle_s:g} s")
            if run.worker is None and not self.deadline_ms and silence_s >= timeouts.unstarted_s:
                return self.fail("lost", f"no worker began within {timeouts.unstarted_s:g} s")
        return None

    def lose(self, dead_workers: Collection[str], silence_s: float, now_s: float) -> Outcome | None:
        """The failure of a stream that one of `dead_workers` was writing."""
        for run in self._runs:
            if not run.over and run.worker in dead_workers and now_s - run.last_s >= silence_s:
                return self.fail("lost", "the worker died in the middle of the answer")
        return None

    def _number(self) -> int:
        self._seq += 1
        return self._seq - 1


def _judged(checks: Iterable[Check]) -> tuple[list[Verdict], list[Check]]:
    """The verdicts that take no time, and the checks that do."""
    verdicts: list[Verdict] = []
    later: list[Check] = []
    for check in checks:
        if (verdict := check.at_once()) is not None:
            verdicts.append(verdict)
        else:
            later.append(check)
    return verdicts, later


def _stale(run: _Run, delta: TokenDelta, worker: str) -> Drop | None:
    """Why `delta` says nothing new, if it does not."""
    if run.over:
        return "ended"
    if delta.epoch != run.epoch:
        return "old_epoch" if delta.epoch < run.epoch else None
    if run.worker not in (None, worker):
        # A redelivered job may run twice; two samples must never be mixed into one text.
        return "other_worker"
    return "duplicate" if delta.seq < run.next_seq else None


def _loss(run: _Run, delta: TokenDelta) -> str | None:
    """What is missing before `delta`, if something is."""
    if delta.epoch > run.epoch and run.next_seq:
        return "the run of this answer began anew on another worker"
    if delta.seq > run.next_seq:
        return "part of the answer was lost on its way from the worker"
    return None
