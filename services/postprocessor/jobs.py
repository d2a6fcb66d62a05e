"""The way of jobs into the work queue and out of it, and the records of those that found nobody.

A hand-over waits for its jobs to be queued. A run that moves to another worker was accepted long
before, so its next attempt is put again and again, for a while, where the queue is full or away.
What is only tidying up (jobs that nobody waits for, dead letters) is done beside, bounded.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias, cast

import anyio
import msgspec

from services.postprocessor.batch import Batch
from services.postprocessor.clock import Clock
from services.postprocessor.stream import RequestStream
from services.postprocessor.streams import Streams
from services.postprocessor.watching import Watching
from toolrail.errors import FaultError
from toolrail.messages import (
    DeadLetter,
    FailureCode,
    Job,
    encode,
    encode_dead_letter,
    encode_token_ids,
)
from toolrail.service import Runtime
from toolrail.settings import PostprocessorSettings

log: Final = logging.getLogger(__name__)

_AT_ONCE: Final = 32
_CHORES_AT_ONCE: Final = 4
_MAX_CHORES: Final = 10_000
_AGAIN_S: Final = 0.25

_Chore: TypeAlias = Callable[[], Awaitable[None]]


class Jobs:
    """Puts, moves, withdraws and buries jobs. `send` takes what comes of one that cannot be put."""

    def __init__(
        self,
        runtime: Runtime[PostprocessorSettings],
        streams: Streams,
        watching: Watching,
        clock: Clock,
        send: Callable[[Batch], None],
    ) -> None:
        self._bus = runtime.bus
        self._settings = runtime.settings
        self._streams = streams
        self._watching = watching
        self._clock = clock
        self._send = send
        self._moves: deque[Job] = deque()
        self._chores: deque[_Chore] = deque()
        self._more = anyio.Event()
        self._limit = anyio.CapacityLimiter(_AT_ONCE)

    async def put(self, job: Job, *, timeout_s: float) -> None:
        """Queue `job`, inside its stream's span. Raises FaultError."""
        payload = encode(job)
        if len(payload) > self._bus.max_payload_bytes and not job.prompt_blob:
            job = await self._with_blob(job)
            payload = encode(job)
        if len(payload) > self._bus.max_payload_bytes:
            raise FaultError("a job is too large for a message")
        stream = self._streams.get(job.request_id)
        receipt = await self._bus.work.put(
            job.model,
            payload,
            message_id=_message_id(job, 0 if stream is None else stream.term),
            timeout_s=timeout_s,
            ttl_s=self._left_s(job),
        )
        if stream is None or not stream.queued(job, receipt):
            self.withdraw([receipt])

    def move(self, job: Job) -> None:
        """Queue the next attempt of a run that lost its worker, or a job that has waited."""
        self._moves.append(job)
        self._more.set()

    def withdraw(self, receipts: Iterable[str]) -> None:
        """Take jobs off the queue that nobody waits for any more."""
        for receipt in receipts:
            self._chore(lambda receipt=receipt: self._bus.work.withdraw(receipt))

    def bury(self, stream: RequestStream) -> None:
        """Keep a record of a stream that nobody could run."""
        record = encode_dead_letter(self._letter(stream))
        self._chore(lambda: self._bus.work.bury(stream.model, record))

    async def serve(self) -> None:
        """Do all that, until cancelled."""
        async with anyio.create_task_group() as tasks:
            for _ in range(_CHORES_AT_ONCE):
                tasks.start_soon(self._do_chores)
            while True:
                while self._moves:
                    tasks.start_soon(self._move, self._moves.popleft())
                await self._wait()

    async def look_after(self) -> None:
        """Find jobs that left the queue without a word of their worker's, until cancelled.

        Their ids were lost on the way, all of them; one question for each model that has any.
        """
        silence_s = self._settings.resend_s
        while True:
            await anyio.sleep(silence_s)
            overdue = self._streams.queued(self._clock.seconds(), silence_s)
            for model, jobs in overdue.items():
                try:
                    gone = await self._bus.work.gone(model, jobs.keys())
                except FaultError as error:
                    log.info("queue not looked at", extra={"code": error.code})
                    continue
                if gone:
                    lost = {receipt: jobs[receipt] for receipt in gone}
                    self._send(self._streams.miss(lost, self._clock.seconds()))

    async def _move(self, job: Job) -> None:
        code: FailureCode = "unavailable"
        with anyio.move_on_after(self._settings.migration_timeout_s):
            while self._streams.expects(job):
                try:
                    async with self._limit:
                        if not self._streams.expects(job):
                            return
                        with self._watching.inside(job.request_id):
                            await self.put(job, timeout_s=self._settings.hand_over_timeout_s)
                except FaultError as error:
                    code = cast("FailureCode", error.code)
                    log.warning("a run waits for the queue", extra={"code": code})
                    await anyio.sleep(_AGAIN_S)
                else:
                    return
        self._send(self._streams.give_up(job, code, self._clock.seconds()))

    async def _with_blob(self, job: Job) -> Job:
        """The prompt travels apart: with the ids so far the job is too large for a message."""
        name = f"prompt.{job.request_id}"
        ids = encode_token_ids(job.prompt_token_ids)
        ttl_s = self._left_s(job) or self._settings.job_max_age_s
        await self._bus.blobs.put(name, ids, ttl_s=ttl_s)
        return msgspec.structs.replace(job, prompt_token_ids=(), prompt_blob=name)

    def _left_s(self, job: Job) -> float | None:
        if not job.deadline_ms:
            return None
        return max(0.0, (job.deadline_ms - self._clock.unix_ms()) / 1000)

    def _letter(self, stream: RequestStream) -> DeadLetter:
        runs = stream.runs
        prompt = runs[0].job.prompt_token_ids if self._settings.dead_letter_prompts else ()
        return DeadLetter(
            reason=stream.dead or "",
            message=stream.failed.message if stream.failed is not None else "",
            request_id=stream.request_id,
            model=stream.model,
            failed_ms=self._clock.unix_ms(),
            deadline_ms=stream.deadline_ms,
            prompt_tokens=stream.prompt_tokens,
            tokens=tuple(len(run.token_ids) for run in runs),
            attempts=tuple(run.epoch for run in runs),
            workers=tuple(run.worker or run.left for run in runs),
            prompt_token_ids=prompt,
        )

    # What is done beside.

    def _chore(self, chore: _Chore) -> None:
        if len(self._chores) >= _MAX_CHORES:
            log.warning("too much to tidy up: left to expire")
            return
        self._chores.append(chore)
        self._more.set()

    async def _do_chores(self) -> None:
        while True:
            while self._chores:
                try:
                    await self._chores.popleft()()
                except FaultError as error:  # it expires by itself
                    log.info("not tidied up", extra={"code": error.code})
            await self._wait()

    async def _wait(self) -> None:
        if self._more.is_set():
            self._more = anyio.Event()
        await self._more.wait()


def _message_id(job: Job, term: int) -> str:
    """What the queue knows repetitions by.

    Of a first attempt whoever hands it over repeats it. Later ones each owner of the stream numbers
    for itself: without its term, one that a former owner had run, and lost, would seem to be
    repeated and never be run again.
    """
    own = f":{term}" if job.attempt and term else ""
    return f"{job.request_id}:{job.choice}:{job.attempt}{own}"
