"""Responses that are generated without a client: the table of this process's, and their events.

A run belongs to the process that took it. What another gateway has to tell it (cancel) comes over
the bus, to the process by name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice

import anyio
from anyio.abc import TaskGroup

from services.gateway import ids
from toolrail.bus import subjects
from toolrail.bus.port import Bus
from toolrail.errors import DecodeError, QueueFullError
from toolrail.messages import Failed, decode_cancel
from toolrail.openai.responses.ids import response_id

_ORDERS_AT_ONCE = 64


class Run:
    """One background response while it is generated.

    Attributes:
        response_id: its name.
        streamed: whether all its events are kept, to be streamed again.
        queued: the object when it was taken, as its client is told.
        response: the object as it is now.
        refused: why it did not begin.
        cancelled: its client asked for that.
        over: set when it has ended and what became of it is kept.
        scope: cancelling it ends the run.
        events: of its stream, so far; where they became too many, the last of them.
    """

    def __init__(self, *, streamed: bool, max_event_bytes: int) -> None:
        self.request_id = ids.new_request_id()
        self.response_id = response_id(self.request_id)
        self.streamed = self._followed = streamed
        self.queued = b""
        self.response = b""
        self.refused: Failed | None = None
        self.cancelled = False
        self.over = anyio.Event()
        self.scope = anyio.CancelScope()
        self.events: deque[bytes] = deque()
        self._gone = 0
        self._room = max_event_bytes
        self._news = anyio.Event()

    @property
    def told(self) -> int:
        """How many events there were so far."""
        return self._gone + len(self.events)

    def tell(self, data: bytes) -> None:
        """More events; where they become too many to be held, the oldest go."""
        if not self._followed:
            return
        self.events += [event + b"\n\n" for event in data.split(b"\n\n") if event]
        self._room -= len(data)
        while self._room < 0 and self.events:
            self._room += len(self.events.popleft())
            self._gone += 1
            self.streamed = False
        self._wake()

    def finish(self) -> None:
        """It is over: whoever waits for that, or for more events, goes on."""
        self.over.set()
        self._wake()

    async def more(self, after: int, timeout_s: float) -> list[bytes] | None:
        """The events from number `after` on; waits for one; none when none came in time.

        None: they are gone. O(events returned).
        """
        if self.told <= after and not self.over.is_set():
            with anyio.move_on_after(timeout_s):
                await self._news.wait()
        if after < self._gone:
            return None
        newest_first = islice(reversed(self.events), max(0, self.told - after))
        return list(newest_first)[::-1]

    async def cancel(self) -> None:
        """End it, and wait until that is kept."""
        self.cancelled = True
        self.scope.cancel()
        await self.over.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()


class Runs:
    """All runs of this process."""

    def __init__(self, bus: Bus, instance: str, limit: int) -> None:
        self._bus = bus
        self._instance = instance
        self._limit = limit
        self._runs: dict[str, Run] = {}
        self._tasks: TaskGroup | None = None
        self._idle = anyio.Event()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._runs)

    def get(self, response_id: str) -> Run | None:
        """The run of that response, if it is here."""
        return self._runs.get(response_id)

    def start(self, run: Run, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work of a run beside everything else. Raises QueueFullError."""
        if self._tasks is None or len(self._runs) >= self._limit:
            raise QueueFullError("too many background responses at once, try again later")
        if not self._runs:
            self._idle = anyio.Event()
        self._runs[run.response_id] = run
        self._tasks.start_soon(self._keep_in_table, run, work)

    async def serve(self) -> None:
        """Let runs begin, and hear what they are told. Runs until cancelled, which ends all."""
        orders = await self._bus.serve(
            subjects.control(self._instance),
            self._instance,
            self._order,
            max_in_flight=_ORDERS_AT_ONCE,
        )
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                await anyio.sleep_forever()
        finally:
            self._tasks = None
            with anyio.CancelScope(shield=True):
                await orders.stop()

    async def idle(self) -> None:
        """Return when no run is left."""
        if self._runs:
            await self._idle.wait()

    async def _keep_in_table(self, run: Run, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            del self._runs[run.response_id]
            run.finish()
            if not self._runs:
                self._idle.set()

    async def _order(self, payload: bytes) -> bytes:
        """Cancel a run; answered when that is kept, or when there is none."""
        try:
            run = self._runs.get(response_id(decode_cancel(payload).request_id))
        except DecodeError:
            return b""
        if run is not None:
            await run.cancel()
        return b""
