"""Where the deltas of runs go, and sending them again: the worker's side of take-over.

A run has one address at a time, the postprocessor that owns its stream. Owners are numbered by
their term: an order of an older one is not obeyed, so that an owner that was taken for dead and
comes back cannot steal a stream, or end it.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from services.worker.kept import Kept
from services.worker.outbox import Outbox
from toolrail.errors import DecodeError
from toolrail.messages import (
    Cancel,
    Done,
    Held,
    Job,
    Resend,
    TokenDelta,
    Want,
    decode_worker_order,
    encode,
)

log: Final = logging.getLogger("toolrail.worker")

QUEUE: Final = "control"
ORDERS_AT_ONCE: Final = 256
MOVED_KEPT: Final = 100_000
"""Re-addressed requests that are remembered; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class _Owner:
    term: int
    address: str
    since_s: float


class Control:
    """Addresses, and what was sent, of all runs of one worker."""

    def __init__(
        self, outbox: Outbox, registry: CollectorRegistry, *, kept_tokens: int, keep_s: float
    ) -> None:
        """`keep_s`: how long what nobody acknowledges is kept, and jobs may still come."""
        self.kept = Kept(limit=kept_tokens, keep_s=keep_s, clock=time.monotonic)
        self._outbox = outbox
        self._keep_s = keep_s
        self._owners: OrderedDict[str, _Owner] = OrderedDict()
        self._holding: set[tuple[str, int]] = set()
        kept = Gauge("toolrail_worker_kept_runs", "Runs that can be sent again.", registry=registry)
        kept.set_function(lambda: len(self.kept))

    def address(self, job: Job) -> str:
        """Where the deltas of `job` go now."""
        owner = self._owners.get(job.request_id)
        return job.reply_subject if owner is None else owner.address

    def term(self, job: Job) -> int:
        """Of the latest owner of its stream that is known here."""
        owner = self._owners.get(job.request_id)
        return 0 if owner is None else owner.term

    def is_outdated(self, job: Job, live: Job) -> bool:
        """Whether `job` comes from a former owner, and the latest one reads what `live` writes.

        One that was cut off, and knows nothing of that, lets its runs begin anew.
        """
        sent = self.kept.get(live.request_id, live.choice)
        mine = self.address(job)
        return job.reply_subject != mine and sent is not None and sent.address == mine

    def hold(self, job: Job) -> None:
        """`job` has a slot here, from now on; what it sends goes through `send`."""
        self._holding.add((job.request_id, job.choice))

    def release(self, job: Job, *, unwanted: bool) -> None:
        """`job` has a slot no more; what it sent is still kept, unless nobody wants it."""
        self._holding.discard((job.request_id, job.choice))
        if unwanted:
            self.kept.drop_choice(job.request_id, job.choice)

    def send(self, job: Job, delta: TokenDelta) -> None:
        """Send the next delta of `job` to whom its stream belongs, and keep it."""
        sent = self.kept.get(job.request_id, job.choice)
        if delta.seq == 0:
            sent = self.kept.begin(job, self.address(job))
        if sent is None:  # it was dropped meanwhile: nobody will want it again
            self._outbox.add(self.address(job), delta)
            return
        self.kept.add(sent, delta)
        if delta.seq == 0 and job.prefix_token_ids and sent.address != job.reply_subject:
            # Its owner did not queue this attempt, and lacks what the ones before have written.
            delta = next(iter(sent.deltas(-1))) if sent.can_send(-1) else _cannot_resume(delta)
        self._outbox.add(sent.address, delta)

    def heeds(self, cancel: Cancel) -> bool:
        """Whether `cancel` comes from the owner of its stream; then nothing of it is kept.

        Unless the answer is complete: its end may still be lost.
        """
        owner = self._owners.get(cancel.request_id)
        if owner is not None and cancel.term < owner.term:
            return False
        if cancel.choice is None and not cancel.complete:
            self.kept.drop(cancel.request_id)
        return True

    async def answer(self, payload: bytes) -> bytes:
        """The answer to an order."""
        try:
            order = decode_worker_order(payload)
        except DecodeError as error:
            log.warning("undecodable order", extra={"reason": str(error)})
            return encode(Held())
        if isinstance(order, Done):
            self._done(order)
            return encode(Held())
        return encode(self.resend(order))

    def _done(self, order: Done) -> None:
        for request_id in order.request_ids:
            if all(sent.address == order.reply_subject for sent in self.kept.of(request_id)):
                self.kept.drop(request_id)

    def resend(self, order: Resend) -> Held:
        """Send what is wanted, as far as it is here; which of it is."""
        wants = enumerate(order.wants)
        return Held(wants=tuple(at for at, want in wants if self._found(want, order.reply_subject)))

    def expire(self, present: Collection[str]) -> None:
        """Forget what nobody can want any more. Called by one slow timer.

        `present`: the addresses of the postprocessors that live.
        """
        self.kept.expire(present)
        now = time.monotonic()
        while self._owners:
            oldest = next(iter(self._owners.values()))
            if len(self._owners) <= MOVED_KEPT and now - oldest.since_s < self._keep_s:
                return
            self._owners.popitem(last=False)

    def _found(self, want: Want, reply_subject: str) -> bool:
        if not self._belongs(want, reply_subject):
            if (owner := self._owners.get(want.request_id)) is not None:
                self._outbox.add(reply_subject, _outranked(want, owner.term))
            return False
        sent = self.kept.get(want.request_id, want.choice)
        if sent is None:
            held = (want.request_id, want.choice) in self._holding
            if not held and want.attempt >= 0:
                self._outbox.add(reply_subject, _unknown(want))
            return held
        if not sent.can_send(want.from_seq):
            return False
        for delta in sent.deltas(want.from_seq):
            self._outbox.add(reply_subject, delta)
        return True

    def _belongs(self, want: Want, reply_subject: str) -> bool:
        """Whether the stream is `reply_subject`'s; it is from now on if its term is the newest."""
        owner = self._owners.get(want.request_id)
        if want.term > (0 if owner is None else owner.term):
            self._owners.pop(want.request_id, None)
            self._owners[want.request_id] = _Owner(want.term, reply_subject, time.monotonic())
            for sent in self.kept.of(want.request_id):
                sent.address = reply_subject
            return True
        if owner is not None:
            return owner.address == reply_subject
        sent = self.kept.get(want.request_id, want.choice)
        return sent is None or sent.address == reply_subject


def _outranked(want: Want, term: int) -> TokenDelta:
    """What makes who asked let go of the stream. It was cut off when it was told so before."""
    return TokenDelta(want.request_id, want.choice, -1, 0, outranked=term)


def _unknown(want: Want) -> TokenDelta:
    """What its owner would wait for in vain."""
    return TokenDelta(
        want.request_id,
        want.choice,
        want.attempt,
        max(0, want.from_seq),
        finish="error",
        error="the worker does not know this run any more",
        error_code="lost",
    )


def _cannot_resume(delta: TokenDelta) -> TokenDelta:
    return TokenDelta(
        delta.request_id,
        delta.choice,
        delta.epoch,
        delta.seq,
        finish="error",
        error="what earlier attempts had written is not known any more",
        error_code="lost",
    )
