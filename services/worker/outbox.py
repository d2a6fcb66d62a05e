"""Joins what one engine step produced into one TokenFrame for each destination.

The runs of a step are woken together, so their deltas arrive within one turn of the event loop; the
frame leaves at the end of that turn. No timer: nothing waits when there is little to send, and a
first token leaves at once.
"""

from __future__ import annotations

import asyncio

from toolrail.bus.port import Bus
from toolrail.messages import SCHEMA_VERSION, TokenDelta, TokenFrame, encode


class Outbox:
    """Collects deltas by the subject they must go to. Counts the frames it has sent."""

    def __init__(self, bus: Bus, worker: str) -> None:
        self._bus = bus
        self._worker = worker
        self._pending: dict[str, list[TokenDelta]] = {}
        self.frames = 0
        self._step = 0

    def add(self, subject: str, delta: TokenDelta) -> None:
        """Send `delta` with this turn's frame for `subject`."""
        if not self._pending:
            asyncio.get_running_loop().call_soon(self.flush)
        deltas = self._pending.get(subject)
        if deltas is None:
            self._pending[subject] = [delta]
        else:
            deltas.append(delta)

    def flush(self) -> None:
        """Send what is pending now."""
        pending, self._pending = self._pending, {}
        if pending:
            self._step += 1
        for subject, deltas in pending.items():
            self._send(subject, tuple(deltas))

    def _send(self, subject: str, deltas: tuple[TokenDelta, ...]) -> None:
        payload = encode(TokenFrame(SCHEMA_VERSION, self._worker, self._step, deltas))
        if len(payload) > self._bus.max_payload_bytes and len(deltas) > 1:
            # Only logprobs of many streams get here; halves keep the order of every stream.
            middle = len(deltas) // 2
            self._send(subject, deltas[:middle])
            self._send(subject, deltas[middle:])
            return
        self._bus.publish_soon(subject, payload)
        self.frames += 1
