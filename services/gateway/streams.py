"""The streams of this process: one subscription, told apart by request id.

A frame is decoded once and its deltas go, inside the bus's callback, into the bounded buffer of
their stream; the stream's reader is woken once, however many came. What a reader sees is already
in order. Whoever closes a stream before its end cancels it at the postprocessor.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final

from services.gateway.failures import failure
from services.gateway.stream import Stream
from toolrail.bus import subjects
from toolrail.bus.port import Bus, Subscription
from toolrail.errors import DecodeError
from toolrail.messages import (
    Cancel,
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
