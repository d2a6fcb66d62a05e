"""Checks that would hold the event loop up: a bounded queue, and threads that take from it.

The threads share the interpreter with the event loop, which goes on at some milliseconds' notice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import anyio
import anyio.to_thread

from services.postprocessor.checking import Check, Verdict
from services.postprocessor.stream import Outcome, RequestStream

AT_ONCE: Final = 2

Done: TypeAlias = Callable[[RequestStream, Outcome, Sequence[Verdict]], None]


class Later:
    """Makes the checks of outcomes and tells `done` of their verdicts, whatever happens to them."""

    def __init__(self, done: Done, *, max_waiting: int, timeout_s: float) -> None:
        self._done = done
        self._max_waiting = max_waiting
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[RequestStream, Outcome]] = deque()
        self._more = anyio.Event()

    def put(self, stream: RequestStream, outcome: Outcome) -> None:
        """Make the checks of `outcome`; where too many wait, they are given up at once."""
        if len(self._waiting) >= self._max_waiting:
            self._done(stream, outcome, _given_up(outcome.checks))
            return
        self._waiting.append((stream, outcome))
        self._more.set()

    async def serve(self) -> None:
        """Make checks, `AT_ONCE` at a time, until cancelled."""
        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(self._serve)

    async def _serve(self) -> None:
        while True:
            while not self._waiting:
                if self._more.is_set():
                    self._more = anyio.Event()
                await self._more.wait()
            stream, outcome = self._waiting.popleft()
            verdicts = _given_up(outcome.checks)
            with anyio.move_on_after(self._timeout_s):
                verdicts = await anyio.to_thread.run_sync(
                    _made, outcome.checks, abandon_on_cancel=True
                )
            self._done(stream, outcome, verdicts)


def _made(checks: Sequence[Check]) -> list[Verdict]:
    return [check.in_full() for check in checks]


def _given_up(checks: Sequence[Check]) -> list[Verdict]:
    return [check.given_up() for check in checks]
