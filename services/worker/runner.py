"""Jobs off the queue, through the engine, out as frames.

A job is acknowledged with its first token, right behind it on the same connection: until then the
queue would give it to another worker should this one die, after that its stream is the
postprocessor's to save. Not before it: a worker killed between the two would leave a job that
nobody has and that nobody knows to be lost. Credit on the queue equals the free slots, so nothing
waits here that another worker could run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from typing import Final

import anyio
from anyio.abc import TaskGroup

from services.worker import control, tracing
from services.worker.accounting import account
from services.worker.burying import Reason, bury, letter, unreadable
from services.worker.cancels import Cancels, means
from services.worker.engine import (
    Engine,
    EngineDeadError,
    EngineFailedError,
    RefusedError,
    Step,
)
from services.worker.metrics import WorkerMetrics
from services.worker.outbox import Outbox
from services.worker.prompts import with_prompt
from services.worker.runs import (
    ABORTED,
    CUT,
    TOO_LATE,
    UNDELIVERABLE,
    End,
    Ending,
    Run,
    failed,
)
from toolrail.bus import subjects
from toolrail.bus.port import WorkItem, WorkPull
from toolrail.errors import DecodeError, FaultError
from toolrail.messages import (
    FailureCode,
    Job,
    TokenDelta,
    decode_cancel,
    decode_job,
)
from toolrail.service import Runtime
from toolrail.settings import WorkerSettings
from toolrail.telemetry import exemplar, traceparent

log: Final = logging.getLogger("toolrail.worker")

CANCELS_KEPT: Final = 10_000
ABORT_TIMEOUT_S: Final = 5.0
"""How long aborted runs have to end; an engine does it within a step."""

DRAIN_SHARE: Final = 0.8
"""Part of the drain in which runs may finish; the rest is for saying so and for the engine."""


class Runner:
    """Runs the jobs of one model on one engine until told to stop."""

    def __init__(
        self, runtime: Runtime[WorkerSettings], engine: Engine, model: str, metrics: WorkerMetrics
    ) -> None:
        self._stop = runtime.stopping
        self._bus = runtime.bus
        self._directory = runtime.directory
        self._settings = runtime.settings
        self._telemetry = runtime.telemetry
        self._engine = engine
        self._model = model
        self._metrics = metrics
        self._outbox = Outbox(runtime.bus, runtime.instance)
        self._instance = runtime.instance
        self._control = control.Control(
            self._outbox,
            runtime.metrics,
            kept_tokens=runtime.settings.kept_tokens,
            keep_s=runtime.settings.job_max_age_s,
        )
        self._cancels = Cancels(
            keep_s=runtime.settings.job_max_age_s, limit=CANCELS_KEPT, clock=time.monotonic
        )
        self._runs: dict[str, Run] = {}
        self._dead: EngineDeadError | None = None
        self._ended = anyio.Event()
        self._stopping = False
        self._tasks: TaskGroup
        self._pull: WorkPull

    async def run(self) -> None:
        """Serve until the service must stop, then drain.

        Raises:
            EngineDeadError: the engine died; its runs have been failed or given back.
        """
        self._metrics.slots.set(self._engine.slots)
        async with anyio.create_task_group() as self._tasks:
            cancels = await self._bus.subscribe(subjects.cancel(self._model), self._on_cancel)
            orders = await self._bus.serve(
                subjects.control(self._instance),
                control.QUEUE,
                self._control.answer,
                max_in_flight=control.ORDERS_AT_ONCE,
            )
            self._pull = await self._bus.work.pull(self._model, self._on_item)
            self._pull.grant(self._engine.slots)
            self._tasks.start_soon(self._watch)
            self._tasks.start_soon(self._keep_unstarted)
            self._tasks.start_soon(self._end_when_told)
            await self._ended.wait()
            await self._drain()
            await cancels.stop()
            await orders.stop()
            self._outbox.flush()
            self._tasks.cancel_scope.cancel()
        if self._dead is not None:
            raise self._dead

    # Deliveries.

    def _on_item(self, item: WorkItem) -> None:
        self._tasks.start_soon(self._take, item)

    def _on_cancel(self, payload: bytes) -> None:
        try:
            cancel = decode_cancel(payload)
        except DecodeError:
            log.warning("undecodable cancel")
            return
        if cancel.worker not in ("", self._instance) or not self._control.heeds(cancel):
            return
        self._cancels.add(cancel)
        for run in self._runs.values():
            if means(cancel, run.job):
                self._end_run(run, "complete" if cancel.complete else "cancelled")

    async def _take(self, item: WorkItem) -> None:
        """One delivery, from the credit it took to the credit it gives back."""
        self._metrics.running.inc()
        job: Job | None = None
        try:
            job = await self._decoded(item)
            if job is not None:
                run = Run(item, job, time.monotonic())
                self._metrics.took(run)
                await self._admit(run)
        except FaultError as error:
            about = {"request_id": job.request_id if job else "", "reason": str(error)}
            with self._telemetry.attached(item.trace_headers):
                log.warning("lost touch with a run", extra=about)
        finally:
            self._metrics.running.dec()
            if not self._stopping:
                self._pull.grant(1)

    async def _decoded(self, item: WorkItem) -> Job | None:
        """The job; None where this build cannot read it, of which a record is kept."""
        try:
            return decode_job(item.payload)
        except DecodeError:
            job = unreadable(item.payload, self._model)
            with self._telemetry.attached(item.trace_headers):
                log.exception("undecodable job dropped", extra={"request_id": job.request_id})
            await self._bury(item, job, "undecodable", "this build cannot read the job")
            await item.ack()  # nobody will ever read it
            return None

    async def _bury(self, item: WorkItem, job: Job, reason: Reason, why: str) -> None:
        self._metrics.dead_letters.labels(reason).inc()
        await bury(self._bus.work, self._model, letter(item, job, self._instance, reason, why))

    async def _admit(self, run: Run) -> None:
        if self._stopping:
            await run.item.nak()
            return
        live = self._runs.get(run.name)
        if live is not None and not await self._replaces(run, live):
            self._metrics.runs.labels("duplicate").inc()
            return
        self._runs[run.name] = run
        self._control.hold(run.job)
        if self._control.address(run.job) in self._postprocessors():
            run.wanted_s = run.taken_s
        try:
            await self._perform(run)
        finally:
            del self._runs[run.name]
            unwanted = run.ending in ("cancelled", "orphaned")
            self._control.release(run.job, unwanted=unwanted)
            run.over.set()

    async def _replaces(self, run: Run, live: Run) -> bool:
        """Whether a second delivery of a live choice is to run: only a newer attempt is."""
        if run.job.attempt == live.job.attempt and not live.acked:
            live.item = run.item  # the queue took us for dead: the new delivery is the one to ack
            return False
        if run.job.attempt <= live.job.attempt or self._control.is_outdated(run.job, live.job):
            await run.item.ack()
            return False
        self._end_run(live, "superseded")
        with anyio.move_on_after(ABORT_TIMEOUT_S):
            await live.over.wait()
        if run.name not in self._runs:
            return True
        await run.item.nak(ABORT_TIMEOUT_S)
        return False

    # One run.

    async def _perform(self, run: Run) -> None:
        job = run.job
        left_s = job.deadline_ms / 1000 - time.time() if job.deadline_ms else None
        too_late = None
        if left_s is not None:
            loop = asyncio.get_running_loop()
            too_late = loop.call_later(max(left_s, 0), self._end_run, run, "deadline")
        try:
            with (
                self._telemetry.attached(run.item.trace_headers),
                self._telemetry.span("generate", kind="consumer") as span,
            ):
                tracing.begin(span, run)
                if left_s is not None and left_s <= 0:
                    end = TOO_LATE
                elif run.item.deliveries > self._settings.max_deliveries:
                    end = UNDELIVERABLE
                    await self._bury(run.item, job, "undeliverable", end.step.error or "")
                else:
                    end = await self._outcome(run)
                await self._conclude(run, end)
        finally:
            if too_late is not None:
                too_late.cancel()

    async def _outcome(self, run: Run) -> End:
        """How the run ended. The one place where a bug becomes a failure."""
        try:
            return await self._generate(run)
        except RefusedError as error:
            return failed("invalid_request", str(error), error.param)
        except EngineFailedError as error:
            return failed("engine", str(error))
        except EngineDeadError as error:
            self._died(error)
            if not run.acked:
                run.ending = "released"  # another engine may still run it
            return failed("lost", "the engine died")
        except FaultError as error:
            return failed("internal", str(error))
        except Exception:
            log.exception("run failed", extra={"request_id": run.job.request_id})
            return failed("internal", "internal error of the worker")

    async def _generate(self, run: Run) -> End:
        if self._cancels.hit(run.job, self._control.term(run.job)):
            run.ending = "cancelled"
        timeout_s = self._settings.hand_over_timeout_s
        job = await with_prompt(run.job, self._bus.blobs, timeout_s=timeout_s)
        if run.ending is not None:
            return ABORTED
        steps = self._engine.generate(
            job,
            trace_headers=self._telemetry.headers(),
            redelivered=run.item.deliveries > 1,
        )
        async with aclosing(steps):
            async for step in steps:
                if step.finish is not None:
                    return End(step, "engine" if step.finish == "error" else None)
                if run.ending is None:
                    self._send(run, step)
                    if not run.acked:
                        self._start(run, step)
        return failed("engine", "the engine ended the run without saying why")

    def _start(self, run: Run, step: Step) -> None:
        """The first token of `run` is on its way; the acknowledgement follows this turn's frame."""
        run.acked = True
        run.first_token_s = time.monotonic()
        self._metrics.first_token.observe(run.first_token_s - run.taken_s, exemplar())
        tracing.first_token(run, step)
        self._tasks.start_soon(self._acknowledge, run)

    async def _acknowledge(self, run: Run) -> None:
        try:
            await run.item.ack()
        except FaultError as error:  # it will be delivered again, and is known to run then
            about = {"request_id": run.job.request_id, "reason": str(error)}
            log.warning("could not acknowledge a job", extra=about)
        finally:
            run.settled.set()

    def _send(
        self,
        run: Run,
        step: Step,
        error_code: FailureCode | None = None,
        error_param: str | None = None,
    ) -> None:
        job = run.job
        delta = TokenDelta(
            job.request_id,
            job.choice,
            job.attempt,
            run.seq,
            step.token_ids,
            step.finish,
            step.stop_token_id,
            step.logprobs,
            step.cached_tokens,
            step.error,
            error_code,
            error_param,
            (traceparent(run.span) or None) if run.seq == 0 else None,
        )
        run.seq += 1
        run.tokens += len(step.token_ids)
        self._control.send(job, delta)

    async def _conclude(self, run: Run, end: End) -> None:
        """Settle the job with the queue and tell its postprocessor."""
        if run.ending == "released" and not run.acked:
            self._metrics.runs.labels("released").inc()
            tracing.given_back(run)
            await run.item.nak()
            return
        if run.ending is not None and end.step.finish not in ("stop", "length"):
            end = CUT.get(run.ending, end)
        if run.ending != "superseded":
            self._send(run, end.step, end.error_code, end.error_param)
        if not run.acked:
            self._start(run, end.step)
        await run.settled.wait()
        account(self._metrics, run, end)
        tracing.finish(run, end)

    def _end_run(self, run: Run, ending: Ending) -> None:
        """Make `run` end; its own task says so to whom it concerns."""
        if run.ending is None:
            run.ending = ending
            tracing.aborted(run)
            self._tasks.start_soon(self._abort, run)

    async def _abort(self, run: Run) -> None:
        try:
            await self._engine.abort(run.name)
        except EngineDeadError as error:
            self._died(error)

    # The worker as a whole.

    async def _end_when_told(self) -> None:
        await self._stop.wait()
        self._ended.set()

    def _died(self, error: EngineDeadError) -> None:
        if self._dead is None:
            log.error("the engine died: %s", error)
            self._dead = error
            self._stopping = True  # what is still given to us goes on to others at once
            self._ended.set()

    async def _watch(self) -> None:
        while self._dead is None:
            try:
                await self._engine.health()
            except EngineDeadError as error:
                self._died(error)
            self._end_orphans()
            self._control.expire(self._postprocessors())
            await anyio.sleep(self._settings.heartbeat_s)

    def _postprocessors(self) -> set[str]:
        """Addresses of the postprocessors that are registered."""
        known = self._directory.instances("postprocessor")
        return {subjects.tokens(one.instance) for one in known}

    def _end_orphans(self) -> None:
        """End the runs whose postprocessor was there and has been gone for long: nobody reads them.

        A registration lives on for a while after its process, and a restarted server forgets all of
        them for a moment, hence not at once.
        """
        now = time.monotonic()
        present = self._postprocessors()
        for run in self._runs.values():
            if self._control.address(run.job) in present:
                run.wanted_s = now
            elif run.wanted_s and now - run.wanted_s > self._settings.registration_ttl_s:
                self._end_run(run, "orphaned")

    async def _keep_unstarted(self) -> None:
        """Tell the queue that jobs without a first token are still on their way to one."""
        while True:
            await anyio.sleep(self._settings.ack_wait_s / 3)
            for run in list(self._runs.values()):
                if not run.acked:
                    try:
                        await run.item.in_progress()
                    except FaultError as error:
                        about = {"request_id": run.job.request_id, "reason": str(error)}
                        with self._telemetry.attached(run.item.trace_headers):
                            log.warning("could not renew a job", extra=about)

    async def _drain(self) -> None:
        self._stopping = True
        await self._pull.stop()
        for run in self._runs.values():
            if not run.acked:
                self._end_run(run, "released")
        await self._all_over(self._settings.drain_s * DRAIN_SHARE)
        for run in self._runs.values():
            self._end_run(run, "stopped")
        await self._all_over(ABORT_TIMEOUT_S)

    async def _all_over(self, timeout_s: float) -> None:
        with anyio.move_on_after(timeout_s):
            for run in list(self._runs.values()):
                await run.over.wait()
