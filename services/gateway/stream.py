"""One request's deltas, as its gateway hears them: in order, whoever says them, or not at all.

Duplicates are dropped here; a gap, a foreign end or a dead peer arrives as a delta that failed,
unless another owner can say the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

import msgspec
from opentelemetry.trace import INVALID_SPAN, Span

from services.gateway.failures import failure
from services.gateway.heard import Heard
from toolrail.bus import subjects
from toolrail.messages import OWNER_STOPPING, TERM_STEP, EventDelta, Failed, Position


class Stream:
    """One request's deltas: pushed by the bus's callback, taken by one reader.

    Attributes:
        term: number of the owner that is heard; see `messages.Stream`.
        owner: instance of the postprocessor that owns it; empty while that is not known.
        handed: the hand-over, encoded, to repeat it elsewhere; None: that cannot be.
        unqueued: its owner, who ends, has put none of its jobs on the work queue.
        trace_headers: of the request's trace, in which that happens.
        span: of the request, where it is told.
        ended: the postprocessor said the last word: nothing is left to cancel.
        closed: nobody reads it any more.
        answered: its hand-over was: what it takes to hand it on is known now, if ever.
        lost: why it is to be handed on, once that is known.
        heard_s: when its owner was last heard, or asked whether something is missing.
    """

    __slots__ = (
        "_buffer",
        "_capacity",
        "_deaf",
        "_heard",
        "_loop",
        "_next_seq",
        "_on_lost",
        "_on_overflow",
        "_size",
        "_timer",
        "_until",
        "_waiter",
        "answered",
        "choices_ended",
        "closed",
        "control_subjects",
        "ended",
        "handed",
        "heard_s",
        "lost",
        "overflowed",
        "owner",
        "request_id",
        "span",
        "term",
        "trace_headers",
        "unqueued",
    )

    def __init__(
        self,
        request_id: str,
        capacity: int,
        on_overflow: Callable[[], None],
        on_lost: Callable[[Stream, Failed], None],
    ) -> None:
        """`on_lost` is called where the rest must come from another owner, or the stream fail."""
        self.request_id = request_id
        self.term = 0
        self.owner = ""
        self.handed: bytes | None = None
        self.trace_headers: Mapping[str, str] = {}
        self.span: Span = INVALID_SPAN
        self.control_subjects: set[str] = set()
        self.ended = False
        self.closed = False
        self.unqueued = False
        self.answered = False
        self.lost: Failed | None = None
        self.overflowed = False
        self.choices_ended = 0
        self._deaf = False
        self._heard: list[Heard] = []
        self._buffer: list[EventDelta] = []
        self._size = 0
        self._capacity = capacity
        self._on_overflow = on_overflow
        self._on_lost = on_lost
        self._next_seq = 0
        self._loop = asyncio.get_running_loop()
        self.heard_s = self._loop.time()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0

    def push(self, delta: EventDelta, postprocessor: str) -> None:
        """Take a delta from the bus. O(events); never blocks and never raises."""
        if self._deaf or self.ended or delta.term < self.term:
            return
        if delta.term > self.term:  # the preprocessor had to find another owner
            self._listen_to(delta.term)
        if not self.owner:
            self.taken_by(postprocessor)
        elif postprocessor != self.owner:
            # A hand-over was repeated and a second postprocessor owns the request as well: the one
            # that was heard first has the job, this one waits for nothing.
            return
        if delta.seq != self._next_seq:
            if delta.seq > self._next_seq:
                self._lost("part of the answer was lost")
            return
        self._next_seq += 1
        if delta.failed is not None and delta.failed.error_code == OWNER_STOPPING:
            self.unqueued = delta.failed.unqueued
            self._on_lost(self, delta.failed)
            return
        self._take(delta)

    def _take(self, delta: EventDelta) -> None:
        while len(self._heard) <= delta.choice:
            self._heard.append(Heard())
        heard = self._heard[delta.choice]
        delta = heard.take(delta)
        if delta.end is not None:
            self.choices_ended += 1
            if delta.failed is None and delta.end.finish not in ("stop", "length"):
                self.fail(failure("engine", "the engine did not finish the answer"))
                return
            if heard.behind:
                self.fail(failure("lost", "part of the answer was lost", retryable=True))
                return
        self.ended = delta.usage is not None or delta.failed is not None
        if delta.events or delta.logprobs or delta.end or self.ended:
            self._append(delta, len(delta.events) + 1)

    def taken_by(self, postprocessor: str) -> None:
        """`postprocessor` owns it, as far as this term goes; the first to be known as such does."""
        if not self.owner:
            self.owner = postprocessor
            self.unqueued = False
        self.control_subjects.add(subjects.control(postprocessor))

    def accepted(
        self, postprocessor: str, handed: bytes | None, trace_headers: Mapping[str, str]
    ) -> None:
        """Its hand-over was answered; `handed` as in Accepted."""
        self.handed = handed
        self.trace_headers = trace_headers
        self.answered = True
        if handed is not None:  # else whose instance this is, is not certain
            self.taken_by(postprocessor)
        lost, self.lost = self.lost, None
        if lost is not None:
            self._on_lost(self, lost)

    def next_term(self) -> int:
        """Listen to the next owner only, whoever that will be; its term."""
        self._listen_to((self.term // TERM_STEP + 1) * TERM_STEP)
        return self.term

    def _listen_to(self, term: int) -> None:
        self.term = term
        self.owner = ""
        self.lost = None
        self._next_seq = 0
        for heard in self._heard:
            heard.start_again()

    def started(self) -> tuple[int, ...] | None:
        """The choices of which something was heard; None: its jobs are still to be queued."""
        if self.unqueued:
            return None
        return tuple(choice for choice, heard in enumerate(self._heard) if heard.anything)

    @property
    def over(self) -> bool:
        """Whether nothing more is to come."""
        return self._deaf or self.ended or self.closed

    def position(self) -> Position:
        """How far it was heard."""
        return Position(self.request_id, self._next_seq, self.term)

    def whom_to_ask(self) -> Collection[str]:
        """Control subjects of those who may have said more; none while an owner is looked for."""
        if not self.answered:
            return ()
        if self.owner:
            return (subjects.control(self.owner),)
        return () if self.handed is not None else self.control_subjects

    def _lost(self, message: str) -> None:
        self._on_lost(self, failure("lost", message, retryable=True))

    def fail(self, failed: Failed) -> None:
        """End it here with a failure. The postprocessor does not know: closing will cancel."""
        if not (self._deaf or self.ended):
            failed = msgspec.structs.replace(failed, request_id=self.request_id)
            self._append(EventDelta(self.request_id, self._next_seq, 0, failed=failed), 1)
            self._deaf = True

    def abandon(self) -> None:
        """Nobody reads on: free the buffer and ignore what still comes."""
        self._deaf = True
        self._buffer.clear()
        self._size = 0
        self._stop_timer()

    async def take(self, until: float) -> list[EventDelta]:
        """All deltas since the last call, waiting for one; empty when none came by `until`.

        `until` is on the loop's clock. One timer serves many waits: it is moved only when it
        fires, so that a wait costs a future and no timer.
        """
        if not self._buffer:
            await self._wait(until)
        taken, self._buffer = self._buffer, []
        self._size = 0
        return taken

    async def _wait(self, until: float) -> None:
        self._until = until
        if self._timer is None or self._timer.when() > until:
            self._stop_timer()
            self._timer = self._loop.call_at(until, self._on_timer)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _on_timer(self) -> None:
        self._timer = None
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._on_timer)
        else:
            self._wake()

    def _append(self, delta: EventDelta, size: int) -> None:
        self._size += size
        if self._size > self._capacity:
            self.overflowed = True
            self.abandon()
            self._on_overflow()
            return
        self._buffer.append(delta)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
