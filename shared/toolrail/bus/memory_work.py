"""The work queue of the in-memory bus: at least once, deduplicated, bounded, pulled by credit."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from toolrail.bus import hops, subjects
from toolrail.bus.port import WorkItem, WorkPull
from toolrail.errors import QueueFullError
from toolrail.telemetry import Telemetry

_DUPLICATE_WINDOW: Final = 100_000
_DEAD_KEPT: Final = 1000


@dataclass(slots=True, eq=False)
class _Job:
    number: int
    payload: bytes
    headers: dict[str, str]
    queued_s: float
    deliveries: int = 0
    timer: asyncio.TimerHandle | None = None
    expiry: asyncio.TimerHandle | None = None
    done: bool = False


@dataclass(slots=True, eq=False)
class _Line:
    """One model's jobs that wait, and who pulls them."""

    waiting: deque[_Job] = field(default_factory=deque[_Job])
    pulls: deque[_Pull] = field(default_factory=deque["_Pull"])
    scheduled: bool = False


class Lines:
    """All models' lines, with one bound over all jobs that are not acknowledged.

    Attributes:
        buried: records of jobs that could not be run, by model; the last ones.
    """

    def __init__(self, ack_wait_s: float, max_jobs: int, max_bytes: int) -> None:
        self.buried: deque[tuple[str, bytes]] = deque(maxlen=_DEAD_KEPT)
        self._ack_wait_s = ack_wait_s
        self._max_jobs = max_jobs
        self._max_bytes = max_bytes
        self._jobs = 0
        self._bytes = 0
        self._lines: dict[str, _Line] = {}
        self._seen: dict[str, _Job] = {}
        self._open: dict[int, _Job] = {}
        self._numbers = 0

    def __len__(self) -> int:
        """Jobs that are not acknowledged."""
        return self._jobs

    def accept(
        self,
        model: str,
        payload: bytes,
        message_id: str,
        headers: dict[str, str],
        ttl_s: float | None = None,
    ) -> int:
        """Queue a job, once per `message_id`; its number. Raises QueueFullError."""
        if (known := self._seen.get(message_id)) is not None:
            return known.number
        if self._jobs >= self._max_jobs or self._bytes + len(payload) > self._max_bytes:
            raise QueueFullError("the work queue is full")
        self._numbers += 1
        job = self._seen[message_id] = self._open[self._numbers] = _Job(
            self._numbers, payload, headers, time.time()
        )
        if ttl_s is not None:
            job.expiry = asyncio.get_running_loop().call_later(ttl_s, self.settle, job)
        if len(self._seen) > _DUPLICATE_WINDOW:
            del self._seen[next(iter(self._seen))]
        self._jobs += 1
        self._bytes += len(payload)
        line = self.line(model)
        line.waiting.append(job)
        self.resume(line)
        return job.number

    def withdraw(self, number: int) -> None:
        """Forget the job of that number, if it is still there."""
        if (job := self._open.get(number)) is not None:
            self.settle(job)

    def __contains__(self, number: int) -> bool:
        """Whether the job of that number is here, also with a worker that has not settled it."""
        return number in self._open

    def line(self, model: str) -> _Line:
        """The line of `model`."""
        return self._lines.setdefault(subjects.model_token(model), _Line())

    def resume(self, line: _Line) -> None:
        """Hand out what waits, in the next turn of the loop."""
        if not line.scheduled:
            line.scheduled = True
            asyncio.get_running_loop().call_soon(self._hand_out, line)

    def settle(self, job: _Job) -> None:
        """Forget `job`: it was acknowledged, withdrawn, or its time is over."""
        if not job.done:
            job.done = True
            self._stop_clock(job)
            if job.expiry is not None:
                job.expiry.cancel()
            del self._open[job.number]
            self._jobs -= 1
            self._bytes -= len(job.payload)

    def give_back(self, line: _Line, job: _Job, delay_s: float = 0.0) -> None:
        """Deliver `job` again after `delay_s`."""
        if not job.done:
            self._stop_clock(job)
            loop = asyncio.get_running_loop()
            job.timer = loop.call_later(delay_s, self._requeue, line, job)

    def start_clock(self, line: _Line, job: _Job) -> None:
        """Deliver `job` again unless it is settled before the wait for it is over."""
        if not job.done:
            self.give_back(line, job, self._ack_wait_s)

    def _stop_clock(self, job: _Job) -> None:
        if job.timer is not None:
            job.timer.cancel()
            job.timer = None

    def _requeue(self, line: _Line, job: _Job) -> None:
        job.timer = None
        line.waiting.appendleft(job)
        self.resume(line)

    def _hand_out(self, line: _Line) -> None:
        line.scheduled = False
        idle = 0
        while line.waiting and idle < len(line.pulls):
            if line.waiting[0].done:
                line.waiting.popleft()
                continue
            pull = line.pulls[0]
            line.pulls.rotate(-1)
            if pull.credit <= 0:
                idle += 1
                continue
            idle = 0
            job = line.waiting.popleft()
            job.deliveries += 1
            pull.credit -= 1
            self.start_clock(line, job)
            pull.handler(_Item(self, line, job, job.deliveries))


class _Item:
    """A `WorkItem`. Settling an old delivery of a job settles the job, as on a server."""

    def __init__(self, lines: Lines, line: _Line, job: _Job, deliveries: int) -> None:
        self._lines = lines
        self._line = line
        self._job = job
        self._deliveries = deliveries

    @property
    def payload(self) -> bytes:
        """The job's bytes."""
        return self._job.payload

    @property
    def deliveries(self) -> int:
        """How often it was delivered, this time included."""
        return self._deliveries

    @property
    def queued_s(self) -> float:
        """When the queue took it."""
        return self._job.queued_s

    @property
    def trace_headers(self) -> dict[str, str]:
        """W3C trace context of the sender."""
        return self._job.headers

    async def ack(self) -> None:
        """Done with it: never again."""
        self._lines.settle(self._job)

    async def nak(self, delay_s: float = 0.0) -> None:
        """Give it back for another worker."""
        self._lines.give_back(self._line, self._job, delay_s)

    async def in_progress(self) -> None:
        """Restart the redelivery clock."""
        self._lines.start_clock(self._line, self._job)


class _Pull:
    """A `WorkPull`."""

    def __init__(self, lines: Lines, line: _Line, handler: Callable[[WorkItem], None]) -> None:
        self.handler = handler
        self.credit = 0
        self._lines = lines
        self._line = line

    def grant(self, credit: int) -> None:
        """Allow `credit` further items to be delivered."""
        self.credit += credit
        self._lines.resume(self._line)

    async def stop(self) -> None:
        """Withdraw the pull; undelivered items stay queued."""
        self.cut()

    def cut(self) -> None:
        """Withdraw the pull."""
        if self in self._line.pulls:
            self._line.pulls.remove(self)


class MemoryWorkQueue:
    """One connection's view of the lines."""

    def __init__(
        self,
        lines: Lines,
        telemetry: Telemetry,
        check: Callable[[int], None],
        on_close: list[Callable[[], None]],
    ) -> None:
        self._lines = lines
        self._telemetry = telemetry
        self._check = check
        self._on_close = on_close

    async def put(
        self,
        model: str,
        payload: bytes,
        *,
        message_id: str,
        timeout_s: float,
        ttl_s: float | None = None,
    ) -> str:
        """Accept a job; `timeout_s` is met trivially here."""
        self._check(len(payload))
        with hops.send_span(self._telemetry, subjects.work(model), len(payload), message_id):
            number = self._lines.accept(
                model, payload, message_id, self._telemetry.headers(), ttl_s
            )
        return str(number)

    async def withdraw(self, receipt: str) -> None:
        """Remove the job of this receipt, if it is still there."""
        self._check(0)
        self._lines.withdraw(int(receipt))

    async def gone(self, model: str, receipts: Collection[str]) -> set[str]:
        """Those that are not in the queue any more."""
        del model
        self._check(0)
        return {receipt for receipt in receipts if int(receipt) not in self._lines}

    async def bury(self, model: str, record: bytes) -> None:
        """Keep a record of a job that could not be run."""
        self._check(len(record))
        self._lines.buried.append((model, record))

    async def pull(self, model: str, handler: Callable[[WorkItem], None]) -> WorkPull:
        """Deliver jobs of `model` to `handler`, never more than the credit granted."""
        self._check(0)
        line = self._lines.line(model)
        pull = _Pull(self._lines, line, handler)
        line.pulls.append(pull)
        self._on_close.append(pull.cut)
        return pull
