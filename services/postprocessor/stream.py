"""One request: its choices, its numbering, its end. Pure; the clock comes in as seconds.

Frames of the worker are numbered per choice and attempt: a repeated one is dropped, a missing one
asked for; where it does not come, or the worker is gone, the run goes on as the next attempt on
another worker, from the ids that have come, as often as the limit allows. What leaves is numbered
per request.

A stream may have had another owner before. Then its jobs are under way already and what they wrote
is sent again, from the start; the gateway knows what of it it has heard.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from services.postprocessor.checking import Check, Verdict, judged
from services.postprocessor.choice import Choice, Step
from services.postprocessor.failures import failure
from services.postprocessor.joining import portions
from services.postprocessor.run import LOST, Cause, Drop, Migration, Run, Timeouts
from toolrail.messages import (
    OWNER_STOPPING,
    Cancel,
    ChoiceEnd,
    EventDelta,
    Failed,
    FailureCode,
    Job,
    TokenDelta,
    Usage,
    Want,
)

Dead: TypeAlias = Literal["expired", "unstarted", "no_worker", "migrations"]
"""Why nobody could run a request: its deadline passed in the queue; no worker began it; none was
there; it lost more workers than it may, or the queue had no room for it any more."""


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
        choice: whose it all is.
        run: choice, attempt, worker and trace context of a run that begins with this delta.
        migration: a run that is to go on elsewhere.
        resumed_s: seconds without a worker that ended with this delta of a new attempt.
        want: what is asked of `want_of`, or of all workers of the model when that is empty.
        turn: a run began or ended.
    """

    deltas: list[EventDelta] = field(default_factory=list[EventDelta])
    step: Step | None = None
    cancel: Cancel | None = None
    dropped: Drop | None = None
    verdicts: Sequence[Verdict] = ()
    checks: Sequence[Check] = ()
    choice: int = 0
    run: tuple[int, int, str, str] | None = None
    migration: Migration | None = None
    resumed_s: float | None = None
    want: Want | None = None
    want_of: str = ""
    turn: bool = False


@dataclass(slots=True)
class RequestStream:
    """The state of one request.

    Attributes:
        model: served name, whose workers hear its cancels.
        reply_subject: where its events go.
        over: its last word was said.
        failed: how, when that was a failure.
        fails: a bad verdict ends it, and what is checked leaves after its verdict.
        migration_limit: how often each of its choices may move to another worker.
        dead: why nobody could run it, when that is how it failed.
        owner: whom it acts for; "" where that is not known.
        weight: its owner's share of the workers, as this request says it.
        in_line: no worker has begun any of it yet.
        queued_any: one of its jobs was put on the work queue.
        term: number of this ownership of it; see `messages.Stream`.
        begun: choices of which its gateway has had output from a former owner.
        runs: of its choices.
    """

    request_id: str
    model: str
    reply_subject: str
    prompt_tokens: int
    deadline_ms: int
    over: bool = False
    failed: Failed | None = None
    fails: bool = False
    migration_limit: int = 0
    dead: Dead | None = None
    owner: str = ""
    weight: int = 1
    in_line: bool = True
    queued_any: bool = False
    term: int = 0
    begun: Collection[int] = ()
    cached_tokens: int = 0
    runs: list[Run] = field(default_factory=list[Run])
    _seq: int = 0

    def begin(self, choices: Sequence[Choice], jobs: Sequence[Job], now_s: float) -> None:
        """Own `choices`, whose `jobs` are about to be queued."""
        self.runs = [Run(choice, job, now_s) for choice, job in zip(choices, jobs, strict=True)]

    def inherit(self, begun: Collection[int], now_s: float) -> Sequence[Want]:
        """Its jobs were queued by another owner; what to ask all workers for."""
        self.begun = begun
        for run in self.runs:
            run.inherited = True
        return [self._want(run, now_s) for run in self.runs]

    @property
    def completion_tokens(self) -> int:
        """Ids of all choices so far."""
        return sum(run.choice.completion_tokens for run in self.runs)

    def usage(self) -> Usage:
        """Tokens of the request so far."""
        return Usage(
            self.prompt_tokens,
            self.completion_tokens,
            min(self.cached_tokens, self.prompt_tokens),
            sum(run.choice.reasoning_tokens for run in self.runs),
        )

    def take(self, delta: TokenDelta, worker: str, now_s: float) -> Outcome:
        """What new ids of a choice come to."""
        if not 0 <= delta.choice < len(self.runs):
            return self.fail("internal", "the worker sent a choice that nobody asked for")
        run = self.runs[delta.choice]
        if (reason := run.stale(delta, worker)) is not None:
            return Outcome(dropped=reason)
        if delta.epoch > run.epoch and run.token_ids:
            return self._begun_anew(elsewhere=worker != run.worker)
        if delta.seq > run.next_seq:
            return self._miss(run, delta, worker, now_s)
        if delta.choice == 0 and delta.cached_tokens is not None and not run.token_ids:
            self.cached_tokens = delta.cached_tokens
        begins = run.worker is None
        resumed_s = run.take(delta, worker, now_s)
        if delta.finish == "abort":
            outcome = self.migrate(run, "aborted", now_s)
        elif delta.finish == "error" and delta.error_code == "lost":  # another may do better
            outcome = self.migrate(run, "failed", now_s)
        elif run.held is not None:
            run.parked.append(delta)
            outcome = Outcome()
        else:
            outcome = self._step(run, delta)
        outcome.resumed_s, outcome.choice = resumed_s, delta.choice
        if delta.trace:
            outcome.run = (delta.choice, delta.epoch, worker, delta.trace)
        outcome.turn = outcome.turn or begins
        return outcome

    def _begun_anew(self, *, elsewhere: bool) -> Outcome:
        if elsewhere:  # by order of a former owner, that was cut off and knows of no other
            return Outcome(dropped="other_worker")
        return self._break_off("lost", "the run of this answer began anew on its worker")

    def _miss(self, run: Run, delta: TokenDelta, worker: str, now_s: float) -> Outcome:
        if run.in_gap:
            return Outcome(dropped="gap")
        run.miss(delta, worker)
        return self._ask(run, now_s)

    def _ask(self, run: Run, now_s: float) -> Outcome:
        return Outcome(want=self._want(run, now_s), want_of=run.worker or "")

    def _want(self, run: Run, now_s: float) -> Want:
        want = run.want(now_s)
        return want if not self.term else msgspec.structs.replace(want, term=self.term)

    def _failed(self, run: Run, delta: TokenDelta) -> Outcome:
        """The engine gave up: what it wrote until then leaves, also what was held back, unended."""
        message = delta.error or "the engine failed this request"
        code = delta.error_code or "engine"
        if not (delta.token_ids or run.choice.completion_tokens):
            return self.fail(code, message, param=delta.error_param)
        step = run.choice.break_off(delta)
        is_held = self.fails and bool(step.checks)
        said = self._deltas(delta.choice, step) if step.says and not is_held else []
        outcome = self.fail(code, message)
        outcome.deltas, outcome.step = said + outcome.deltas, step
        return outcome

    def _break_off(self, code: FailureCode, message: str, *, dead: Dead | None = None) -> Outcome:
        """End the stream with a failure that no choice is at fault for.

        All that its choices had written leaves, also what was held back. Not of one that came
        from a former owner: its gateway may have heard more of it.
        """
        said: list[EventDelta] = []
        for number, run in enumerate(self.runs):
            if run.over or number in self.begun or run.held is not None or not run.token_ids:
                continue
            last = TokenDelta(self.request_id, number, run.epoch, run.next_seq)
            step = run.choice.break_off(last)
            if step.says and not (self.fails and step.checks):
                said += self._deltas(number, step)
        outcome = self.fail(code, message, dead=dead)
        outcome.deltas = said + outcome.deltas
        return outcome

    def migrate(self, run: Run, cause: Cause, now_s: float) -> Outcome:
        """Let `run` go on with another worker, or fail when it has moved too often."""
        if run.epoch >= self.migration_limit or (run.inherited and run.job.choice in self.begun):
            return self._break_off("lost", LOST[cause], dead="migrations")
        migration = run.leave(cause, now_s)
        return Outcome(migration=migration, cancel=run.cancel_older())

    def _step(self, run: Run, delta: TokenDelta) -> Outcome:
        if delta.finish == "error":
            return self._failed(run, delta)
        step = run.choice.feed(delta)
        if not step.checks:
            return self._pass(run, delta.choice, step, ())
        verdicts, later = judged(step.checks)
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
        run = self.runs[choice]
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
                yield self._step(run, delta)

    def _pass(self, run: Run, choice: int, step: Step, verdicts: Sequence[Verdict]) -> Outcome:
        """Let a step go, unless the stream fails by a verdict."""
        bad = next((verdict for verdict in verdicts if verdict.is_bad), None)
        if bad is not None and self.fails:
            outcome = self.fail("model_output", bad.message)
            outcome.step, outcome.verdicts = step, verdicts
            return outcome
        outcome = Outcome(step=step, verdicts=verdicts, choice=choice)
        if step.end is not None:
            run.over = outcome.turn = True
            self.over = all(other.over for other in self.runs)
        if step.engine_runs_on:
            outcome.cancel = Cancel(
                request_id=self.request_id,
                choice=choice,
                reason="the choice has ended",
                attempt=run.epoch,
                complete=True,
            )
        if step.says:
            outcome.deltas = self._deltas(choice, step)
        return outcome

    def _deltas(self, choice: int, step: Step) -> list[EventDelta]:
        *before, last = portions(step.events)
        end, moved = step.end, self.runs[choice].epoch
        if end is not None and moved:
            end = msgspec.structs.replace(end, migrations=moved)
        deltas = [
            EventDelta(self.request_id, self._number(), choice, tuple(events), term=self.term)
            for events in before
        ]
        deltas.append(
            EventDelta(
                self.request_id,
                self._number(),
                choice,
                tuple(last),
                step.logprobs or None,
                end,
                self.usage() if self.over else None,
                term=self.term,
            )
        )
        return deltas

    def fail(
        self,
        code: FailureCode,
        message: str,
        *,
        dead: Dead | None = None,
        param: str | None = None,
    ) -> Outcome:
        """End the stream with a failure, and whatever still runs for it."""
        self.over = True
        self.dead = dead
        self.failed = failure(self.request_id, code, message, param=param)
        return Outcome(
            [EventDelta(self.request_id, self._number(), 0, failed=self.failed, term=self.term)],
            cancel=Cancel(request_id=self.request_id, reason=code),
        )

    def let_go(self) -> Outcome:
        """End it here, while its runs go on: its gateway will find another owner."""
        self.over = True
        stopping = failure(self.request_id, "unavailable", "the service is shutting down")
        self.failed = msgspec.structs.replace(
            stopping, error_code=OWNER_STOPPING, unqueued=not self.queued_any
        )
        number = self._number()
        return Outcome([EventDelta(self.request_id, number, 0, failed=self.failed, term=self.term)])

    def cancel(self, choice: int | None, reason: str) -> Outcome:
        """Somebody wants the request, or one choice of it, to stop."""
        if choice is None:
            return self.fail("cancelled", reason or "the request was cancelled")
        if not 0 <= choice < len(self.runs) or self.runs[choice].over:
            return Outcome()
        self.runs[choice].over = True
        self.over = all(run.over for run in self.runs)
        usage = self.usage() if self.over else None
        end = ChoiceEnd("abort")
        return Outcome(
            [
                EventDelta(
                    self.request_id, self._number(), choice, end=end, usage=usage, term=self.term
                )
            ],
            cancel=Cancel(request_id=self.request_id, choice=choice, reason=reason),
            turn=True,
        )

    def expire(self, now_s: float, now_ms: int, timeouts: Timeouts) -> Iterator[Outcome]:
        """What comes of a stream whose time, or that of one of its runs, is up."""
        if self.deadline_ms and now_ms >= self.deadline_ms:
            dead = "expired" if any(self.waiting()) else None
            text = "the request did not end before its deadline"
            yield self._break_off("deadline", text, dead=dead)
            return
        for run in self.runs:
            if self.over:
                return
            if not run.over and (outcome := self._see_to(run, now_s, timeouts)) is not None:
                yield outcome

    def _see_to(self, run: Run, now_s: float, timeouts: Timeouts) -> Outcome | None:
        """What comes of a run that has been silent, or lacks something, for long."""
        silence_s = now_s - run.last_s
        if run.worker is None and not self.deadline_ms and silence_s >= timeouts.unstarted_s:
            text = f"no worker began within {timeouts.unstarted_s:g} s"
            return self.fail("lost", text, dead="unstarted")
        if (cause := run.given_up(now_s, timeouts)) is not None:
            return self.migrate(run, cause, now_s)
        if now_s - max(run.last_s, run.asked_s) < timeouts.resend_s:
            return None
        known = run.worker is not None or run.inherited or run.unheard
        return self._ask(run, now_s) if known else None

    def lose(
        self, dead_workers: Collection[str], silence_s: float, now_s: float
    ) -> Iterator[Outcome]:
        """What comes of the runs that one of `dead_workers` was writing."""
        for run in self.runs:
            if self.over:
                return
            if not run.over and run.worker in dead_workers and now_s - run.last_s >= silence_s:
                yield self.migrate(run, "dead", now_s)

    def miss(self, receipts: Collection[str], now_s: float) -> Iterator[Outcome]:
        """Jobs of these `receipts` have left the queue: what to ask all workers for.

        Of one that has begun, nothing: its first ids came while that was found out.
        """
        for run in self.runs:
            if run.receipt in receipts and not (self.over or run.over):
                run.take_unheard(now_s)
                yield self._ask(run, now_s)

    def remind(self, next_seq: int, term: int) -> EventDelta | None:
        """An empty entry for a gateway that has not heard all up to here.

        Numbered like any other, so it is of no matter where the rest is still on its way.
        """
        if term == self.term and next_seq >= self._seq:
            return None
        return EventDelta(self.request_id, self._number(), 0, term=self.term)

    def waiting(self) -> Iterator[Run]:
        """Its runs that no worker has begun, or gone on with."""
        return (run for run in self.runs if not run.over and run.worker is None)

    def queued(self, job: Job, receipt: str) -> bool:
        """`job` has its place in the queue. False: it is not wanted there any more.

        A worker may have begun it, even ended it, before the queue says that it has it.
        """
        run = self.runs[job.choice]
        if run.worker is not None or run.epoch != job.attempt:
            return True
        if self.over or run.over:
            return False
        run.receipt = receipt
        return True

    def unwanted(self, choice: int | None) -> list[str]:
        """Receipts of the jobs of `choice` (None: of all) that wait in the queue, told once."""
        found: list[str] = []
        for position, run in enumerate(self.runs):
            if choice in (None, position) and run.receipt:
                found.append(run.receipt)
                run.receipt = ""
        return found

    def expects(self, job: Job) -> bool:
        """Whether `job` is still to be queued: nothing came of it and nothing overtook it."""
        run = self.runs[job.choice]
        return not (self.over or run.over) and run.epoch == job.attempt and run.worker is None

    def _number(self) -> int:
        self._seq += 1
        return self._seq - 1
