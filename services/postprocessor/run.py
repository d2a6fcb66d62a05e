"""One choice's run: which worker writes it, what has come of it, and how it goes on elsewhere.

A run that loses its worker is queued again as the next *attempt*, with the ids that have come so
far. The worker that takes it writes on where they end, under the new attempt's number; what the old
one may still send is told apart by its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec

from services.postprocessor.choice import Choice, Step
from toolrail.messages import Cancel, Job, TokenDelta, Want

Drop: TypeAlias = Literal[
    "duplicate", "old_epoch", "other_worker", "ended", "unknown_stream", "gap"
]
"""Why a delta of the worker was not used."""

Cause: TypeAlias = Literal["dead", "failed", "aborted", "silent", "gap"]
"""Why a run leaves its worker: it died; it said that it cannot go on; it gave the run up; nothing
came of it for too long; a part of what it wrote is missing."""

LOST: Final[Mapping[Cause, str]] = {
    "dead": "the worker died in the middle of the answer",
    "failed": "the worker could not go on with the answer",
    "aborted": "the worker stopped before the answer was complete",
    "silent": "the worker fell silent in the middle of the answer",
    "gap": "part of the answer was lost on its way from the worker",
}
"""What a client is told of a run that may not move once more."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds of silence a stream may have.

    Attributes:
        idle_s: between two deltas of a choice that has begun.
        unstarted_s: before a choice's first delta, when the request has no deadline.
        resend_s: before the worker is asked for what may be missing.
        inherited_s: before a choice of which no worker is known is sent again, or must begin again.
        max_resends: questions about one gap.
        kept_s: after its end, before its workers forget what they sent.
    """

    idle_s: float
    unstarted_s: float
    resend_s: float = 2.0
    inherited_s: float = 10.0
    max_resends: int = 3
    kept_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Migration:
    """A run that is to go on elsewhere.

    Attributes:
        job: to be queued.
        worker: which it left; "" if none had begun it.
        silent_s: since its last ids came.
    """

    job: Job
    cause: Cause
    worker: str
    silent_s: float


@dataclass(slots=True)
class Run:
    """One choice's run on workers, one after another.

    Attributes:
        job: the first attempt.
        epoch: number of the attempt whose deltas count.
        next_seq: what its next delta is numbered.
        worker: who writes; None before the attempt's first delta.
        token_ids: all that came, of all attempts.
        left: the worker of the attempt before.
        receipt: of the attempt's place in the work queue, while it waits there.
        lost_s: when the attempt before lost its worker; None once this one has begun.
        inherited: another postprocessor had its jobs queued; all it wrote must be sent again.
        in_gap: deltas are missing before those that come.
        asked: how often its worker was asked for those.
        asked_s: when it was last asked for anything.
        trace: the trace context of the attempt that came last, "" where it is not traced.
        waits: its job is held back, see `room`.
        unheard: a worker took its job, nothing came of it, and all are asked for it.
    """

    choice: Choice
    job: Job
    last_s: float
    epoch: int = 0
    next_seq: int = 0
    worker: str | None = None
    over: bool = False
    token_ids: array[int] = field(default_factory=lambda: array("L"))
    left: str = ""
    receipt: str = ""
    lost_s: float | None = None
    inherited: bool = False
    in_gap: bool = False
    asked: int = 0
    asked_s: float = 0.0
    trace: str = ""
    waits: bool = False
    unheard: bool = False
    held: Step | None = None
    """What may not leave before its checks are made,"""
    parked: list[TokenDelta] = field(default_factory=list[TokenDelta])
    """and what came since: at most what the engine writes within the timeout of a check."""

    def stale(self, delta: TokenDelta, worker: str) -> Drop | None:
        """Why `delta` says nothing new, if it does not."""
        if self.over:
            return "ended"
        if delta.epoch != self.epoch:
            return "old_epoch" if delta.epoch < self.epoch else None
        if self.worker not in (None, worker):
            # A redelivered job may run twice; two samples must never be mixed into one text.
            return "other_worker"
        return "duplicate" if delta.seq < self.next_seq else None

    def take(self, delta: TokenDelta, worker: str, now_s: float) -> float | None:
        """Count `delta`, which is the next one. O(ids).

        Seconds since the attempt before lost its worker, if this is the first of a new attempt.
        """
        self.epoch = delta.epoch
        self.last_s = now_s
        self.next_seq += 1
        self.worker = worker
        if delta.finish not in ("error", "abort"):
            self.token_ids.extend(delta.token_ids)
            self.inherited = False
        if delta.trace:
            self.trace = delta.trace
        self.receipt = ""
        self.in_gap = self.unheard = False
        self.asked = 0
        lost_s, self.lost_s = self.lost_s, None
        return None if lost_s is None else now_s - lost_s

    def miss(self, delta: TokenDelta, worker: str) -> None:
        """Something is missing before `delta`, the first that comes after it."""
        self.epoch = delta.epoch
        self.worker = worker
        self.receipt = ""
        self.in_gap = True
        self.unheard = False

    def want(self, now_s: float) -> Want:
        """What to ask its worker for."""
        self.asked_s = now_s
        if self.in_gap:
            self.asked += 1
        request_id, choice = self.job.request_id, self.job.choice
        if self.inherited:
            return Want(request_id, choice, -1)
        if self.unheard:
            return Want(request_id, choice, self.next_seq)
        return Want(request_id, choice, self.next_seq, attempt=self.epoch)

    def take_unheard(self, now_s: float) -> None:
        """Its job has left the queue, so a worker began it; its silence counts from now on."""
        self.unheard = True
        self.receipt = ""
        self.last_s = now_s

    def given_up(self, now_s: float, timeouts: Timeouts) -> Cause | None:
        """Why to wait no longer for its worker, if there is a reason."""
        silence_s = now_s - self.last_s
        if self.worker is not None and silence_s >= timeouts.idle_s:
            return "silent"
        if self.worker is None and silence_s >= timeouts.inherited_s:
            if self.inherited and not self.waits:
                # Its worker died with its owner, or it waits in the queue: it may begin again,
                # unless somebody has heard of it.
                return "dead"
            if self.unheard:
                return "gap"
        asked_too_often = self.in_gap and self.asked >= timeouts.max_resends
        since_s = now_s - max(self.last_s, self.asked_s)
        return "gap" if asked_too_often and since_s >= timeouts.resend_s else None

    def leave(self, cause: Cause, now_s: float) -> Migration:
        """Go on as the next attempt, on whatever worker takes it. O(ids so far)."""
        worker, silent_s = self.worker or "", now_s - self.last_s
        if self.lost_s is None:
            self.lost_s = self.last_s
        self.epoch += 1
        self.next_seq = 0
        self.left, self.worker = worker, None
        self.last_s = now_s
        self.receipt = ""
        self.inherited = self.in_gap = self.unheard = False
        self.asked = 0
        job = msgspec.structs.replace(
            self.job,
            attempt=self.epoch,
            prefix_token_ids=tuple(self.token_ids),
            follows=self.trace,
        )
        return Migration(job, cause, worker, silent_s)

    def cancel_older(self) -> Cancel:
        """For the model's workers: the attempts before this one are not wanted any more."""
        return Cancel(
            request_id=self.job.request_id,
            choice=self.job.choice,
            reason="the run goes on elsewhere",
            attempt=self.epoch - 1,
        )
