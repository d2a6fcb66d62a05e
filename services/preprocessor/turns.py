"""So many requests at once, and a bounded line of those that wait for their turn.

Without it they would wait in the bus's client, where nobody can tell them to come again, and be
prepared long after their gateway gave them up.
"""

from __future__ import annotations

from typing import Final

import anyio

from services.preprocessor.failures import fault_failed
from services.preprocessor.metrics import PreprocessorMetrics
from toolrail.bus.port import RequestHandler
from toolrail.errors import FaultError, QueueFullError
from toolrail.messages import decode_prepare, encode

_FULL: Final = "too many requests are being prepared, try again shortly"


class Turns:
    """Gives requests to a handler, so many at once.

    Attributes:
        waiting: how many wait.
    """

    def __init__(
        self,
        handler: RequestHandler,
        metrics: PreprocessorMetrics,
        *,
        at_once: int,
        max_waiting: int,
        timeout_s: float,
    ) -> None:
        """`timeout_s`: after so long in line nobody hears the answer any more."""
        self.waiting = 0
        self._handler = handler
        self._metrics = metrics
        self._turns = anyio.Semaphore(at_once, fast_acquire=True)
        self._max_waiting = max_waiting
        self._timeout_s = timeout_s

    async def answer(self, payload: bytes) -> bytes:
        """What the handler answers to an encoded `Prepare`, or that there is no turn for it."""
        try:
            await self._wait()
        except QueueFullError as error:
            self._metrics.requests.labels(error.code).inc()
            return encode(fault_failed(_request_id(payload), error))
        try:
            return await self._handler(payload)
        finally:
            self._turns.release()

    async def _wait(self) -> None:
        try:
            self._turns.acquire_nowait()
        except anyio.WouldBlock:
            if self.waiting >= self._max_waiting:
                raise QueueFullError(_FULL) from None
            self.waiting += 1
            try:
                with anyio.fail_after(self._timeout_s):
                    await self._turns.acquire()
            except TimeoutError:
                raise QueueFullError(_FULL) from None
            finally:
                self.waiting -= 1


def _request_id(payload: bytes) -> str:
    try:
        return decode_prepare(payload).request_id
    except FaultError:
        return ""
