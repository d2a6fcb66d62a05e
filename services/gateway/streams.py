"""The streams of this process: one subscription, told apart by request id.

A frame is decoded once and its deltas go, inside the bus's callback, into the bounded buffer of
their stream; the stream's reader is woken once, however many came. What a reader sees is already
in order: duplicates are dropped here, and a gap, a foreign end or a dead peer arrives as a delta
that failed. Whoever closes a stream before its end cancels it at the postprocessor.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec
from opentelemetry.trace import INVALID_SPAN, Span

from services.gateway.failures import failure
from services.gateway.heard import Heard
from toolrail.bus import subjects
from toolrail.bus.port import Bus, Subscription
from toolrail.errors import DecodeError
from toolrail.messages import (
    OWNER_STOPPING,
    TERM_STEP,
    Cancel,
    EventDelta,
    Failed,
    Position,
    Positions,
    decode_event_frame,
    encode,
)

log: Final = logging.getLogger(__name__)

_ASKED_AT_ONCE: Final = 1000

_LEFT_KEPT: Final = 256
_LEFT_S: Final = 10.0
"""How long the owner of a cancelled stream is watched: it hears of it at once, or has died."""

_CANCELLED_KEPT: Final = 4096
_CANCEL_AGAIN_S: Final = 1.0
"""A cancelled stream that still sends is told again after this long: cancels may be lost."""


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


class Streams:
    """All open streams of this process, by request id.

    Attributes:
        on_lost: what becomes of a stream that lost its owner or a part; by default it fails.
    """

    def __init__(
        self, bus: Bus, instance: str, *, capacity: int, on_bad_frame: Callable[[], None]
    ) -> None:
        self.reply_subject = subjects.events(instance)
        self._bus = bus
        self._capacity = capacity
        self._on_bad_frame = on_bad_frame
        self._open: dict[str, Stream] = {}
        self.on_lost: Callable[[Stream, Failed], None] = Stream.fail
        self._cancelled: OrderedDict[str, float] = OrderedDict()
        self._left: OrderedDict[str, tuple[float, Stream]] = OrderedDict()
        self._subscription: Subscription | None = None

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    async def start(self) -> None:
        """Listen; before this no request may be handed over."""
        self._subscription = await self._bus.subscribe(self.reply_subject, self._on_frame)

    async def stop(self) -> None:
        """Listen no more."""
        if self._subscription is not None:
            await self._subscription.stop()

    def open(self, request_id: str, on_overflow: Callable[[], None]) -> Stream:
        """A stream that takes deltas from now on; open it before its request is handed over."""
        stream = Stream(
            request_id,
            self._capacity,
            on_overflow,
            self.on_lost,
        )
        self._open[request_id] = stream
        return stream

    def close(self, stream: Stream, reason: str) -> None:
        """Forget it; if its postprocessor may still be at work, cancel it there.

        Should that one die before it hears of it, its next owner is to end what nobody reads: so
        the stream is remembered until its last word.
        """
        self._open.pop(stream.request_id, None)
        stream.closed = True
        stream.abandon()
        if stream.ended:
            return
        for subject in stream.control_subjects:
            self._cancel(stream.request_id, stream.term, subject, reason)
        if stream.handed is not None:
            self._left[stream.request_id] = asyncio.get_running_loop().time(), stream
            self._forget_left()

    def _forget_left(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._left:
            left_s, oldest = next(iter(self._left.values()))
            if len(self._left) <= _LEFT_KEPT and now - left_s < _LEFT_S:
                return
            del self._left[oldest.request_id]

    def cancel(self, stream: Stream, postprocessor: str, reason: str) -> None:
        """Cancel it at `postprocessor`; one that is not its owner any more just lets go of it."""
        self._cancel(stream.request_id, stream.term, subjects.control(postprocessor), reason)

    def owners(self) -> set[str]:
        """Instances of all postprocessors that own open streams, or are to end one."""
        left = (stream for _, stream in self._left.values())
        return {stream.owner for stream in (*self._open.values(), *left) if stream.owner}

    async def ask_owners(self, silence_s: float) -> None:
        """Ask what may be missing of streams that are silent for so long, until cancelled.

        What is lost in the middle of a stream shows by the next number; its end does not.
        """
        while True:
            await asyncio.sleep(silence_s / 2)
            self.ask(asyncio.get_running_loop().time(), silence_s)

    def ask(self, now_s: float, silence_s: float) -> None:
        """Ask the owners of all streams that were silent for so long. O(streams)."""
        silent: dict[str, list[Position]] = {}
        for stream in self._open.values():
            if now_s - stream.heard_s < silence_s or stream.over:
                continue
            stream.heard_s = now_s
            for subject in stream.whom_to_ask():
                silent.setdefault(subject, []).append(stream.position())
        for subject, positions in silent.items():
            for start in range(0, len(positions), _ASKED_AT_ONCE):
                some = tuple(positions[start : start + _ASKED_AT_ONCE])
                order = Positions(reply_subject=self.reply_subject, streams=some)
                self._bus.publish_soon(subject, encode(order))

    def fail_all(self, failed: Failed) -> None:
        """End all of them with a failure."""
        for stream in self._open.values():
            stream.fail(failed)

    def lose(self, dead: Collection[str]) -> None:
        """The streams that instances among the `dead` own go on elsewhere, or fail."""
        self._forget_left()
        reading = [stream for stream in self._open.values() if not stream.over]
        for stream in (*reading, *(stream for _, stream in self._left.values())):
            if stream.owner in dead:
                text = "a service died with the answer"
                self.on_lost(stream, failure("lost", text, retryable=True))

    def _on_frame(self, payload: bytes) -> None:
        try:
            frame = decode_event_frame(payload)
        except DecodeError as error:
            log.error("undecodable frame", extra={"reason": str(error)})
            self._on_bad_frame()
            return
        now_s = asyncio.get_running_loop().time()
        for delta in frame.deltas:
            stream = self._open.get(delta.request_id)
            if stream is not None:
                stream.heard_s = now_s
                stream.push(delta, frame.postprocessor)
            elif delta.usage is None and delta.failed is None:
                self._cancel_orphan(delta.request_id, delta.term, frame.postprocessor)
            else:
                self._left.pop(delta.request_id, None)

    def _cancel_orphan(self, request_id: str, term: int, postprocessor: str) -> None:
        """Stop a stream that nobody here reads: its cancel was lost, or no answer named its owner.

        At most once a second and stream.
        """
        now = asyncio.get_running_loop().time()
        told = self._cancelled.get(request_id)
        if told is None or now - told >= _CANCEL_AGAIN_S:
            subject = subjects.control(postprocessor)
            self._cancel(request_id, term, subject, "nobody reads it")

    def _cancel(self, request_id: str, term: int, subject: str, reason: str) -> None:
        self._cancelled[request_id] = asyncio.get_running_loop().time()
        self._cancelled.move_to_end(request_id)
        if len(self._cancelled) > _CANCELLED_KEPT:
            self._cancelled.popitem(last=False)
        cancel = Cancel(request_id=request_id, reason=reason, term=term)
        self._bus.publish_soon(subject, encode(cancel))
