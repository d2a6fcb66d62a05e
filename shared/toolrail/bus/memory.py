"""The bus inside one process: the same contract without a server, for tests and small tools.

Several connections share one `MemoryBroker`, as processes share a server. Nothing is delivered
inside a sender's call: every receiver has its own queue, emptied in order by the event loop, as
over a socket.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from toolrail.bus import hops
from toolrail.bus.memory_audit import MemoryAuditRecords
from toolrail.bus.memory_documents import MemoryDocuments, Shelf
from toolrail.bus.memory_store import Bucket, MemoryKeyValue, MemoryObjectStore
from toolrail.bus.memory_work import Lines, MemoryWorkQueue
from toolrail.bus.port import BusStats, FrameHandler, RequestHandler, Subscription
from toolrail.errors import BusClosedError, DeadlineError, NoRespondersError
from toolrail.telemetry import Telemetry

_MAX_PENDING: Final = 65_536


@dataclass(frozen=True, slots=True)
class _Message:
    subject: str
    payload: bytes
    reply: Callable[[bytes], None] | None = None
    headers: Mapping[str, str] | None = None


class MemoryBroker:
    """The state that its connections share."""

    def __init__(  # noqa: PLR0913 (every bound has a name)
        self,
        *,
        registration_ttl_s: float = 6.0,
        ack_wait_s: float = 10.0,
        max_queue_jobs: int = 10_000,
        max_queue_bytes: int = 1 << 30,
        max_payload_bytes: int = 8 << 20,
        max_document_bytes: int = 1 << 26,
    ) -> None:
        self.max_payload_bytes = max_payload_bytes
        self.lines = Lines(ack_wait_s, max_queue_jobs, max_queue_bytes)
        self.models = Bucket(registration_ttl_s)
        self.instances = Bucket(registration_ttl_s)
        self.blobs: dict[str, bytes] = {}
        self.shelf = Shelf(max_document_bytes)
        self.audit: OrderedDict[str, bytes] = OrderedDict()
        self._interests: list[_Interest] = []
        self._turn = 0

    def connect(self, telemetry: Telemetry | None = None) -> MemoryBus:
        """A new connection, as a process of its own would have."""
        return MemoryBus(self, telemetry or Telemetry())

    def add(self, interest: _Interest) -> None:
        """Deliver to `interest` from now on."""
        self._interests.append(interest)

    def remove(self, interest: _Interest) -> None:
        """Deliver nothing more to `interest`."""
        if interest in self._interests:
            self._interests.remove(interest)

    def route(self, message: _Message) -> bool:
        """Queue for all who asked, one of each queue group. False: nobody did."""
        groups: dict[str, list[_Interest]] = {}
        found = False
        for interest in self._interests:
            if hops.matches(interest.subject, message.subject):
                found = True
                if interest.queue:
                    groups.setdefault(interest.queue, []).append(interest)
                else:
                    interest.offer(message)
        for members in groups.values():
            self._turn += 1
            members[self._turn % len(members)].offer(message)
        return found


class MemoryBus:
    """One connection to a `MemoryBroker`. See `port.Bus` for what it guarantees."""

    def __init__(self, broker: MemoryBroker, telemetry: Telemetry) -> None:
        self._broker = broker
        self._telemetry = telemetry
        self._closed = False
        self._on_close: list[Callable[[], None]] = []
        self._out = [0, 0]
        self._in = [0, 0]
        self._dropped = 0
        self._work = MemoryWorkQueue(broker.lines, telemetry, self._check, self._on_close)
        self._models = MemoryKeyValue(broker.models, self._check, self._on_close)
        self._instances = MemoryKeyValue(broker.instances, self._check, self._on_close)
        self._blobs = MemoryObjectStore(broker.blobs, self._check)
        self._documents = MemoryDocuments(broker.shelf, self._check)
        self._audit = MemoryAuditRecords(broker.audit, self._check)

    @property
    def work(self) -> MemoryWorkQueue:
        """The queue of jobs."""
        return self._work

    @property
    def models(self) -> MemoryKeyValue:
        """Model cards."""
        return self._models

    @property
    def instances(self) -> MemoryKeyValue:
        """Live processes."""
        return self._instances

    @property
    def blobs(self) -> MemoryObjectStore:
        """Tokenizers, templates, large prompts."""
        return self._blobs

    @property
    def documents(self) -> MemoryDocuments:
        """Responses that can be asked for later."""
        return self._documents

    @property
    def audit(self) -> MemoryAuditRecords:
        """What gateways were asked and answered."""
        return self._audit

    @property
    def max_payload_bytes(self) -> int:
        """Largest payload a message may have."""
        return self._broker.max_payload_bytes

    def stats(self) -> BusStats:
        """Counters of this connection."""
        return BusStats(self._out[0], self._in[0], self._out[1], self._in[1], 0, self._dropped)

    async def publish(self, subject: str, payload: bytes) -> None:
        """Send and forget, in order."""
        self._send(_Message(subject, payload))

    def publish_soon(self, subject: str, payload: bytes) -> None:
        """Send and forget; after `close` it drops and counts."""
        if self._closed:
            self._dropped += 1
        else:
            self._send(_Message(subject, payload))

    async def subscribe(self, subject: str, handler: FrameHandler) -> Subscription:
        """Deliver every message on `subject` to `handler`, in order, inline."""
        self._check(0)
        return self._listen(_Interest(subject, "", lambda m: handler(m.payload), self._received))

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """The answer of one server of `subject`."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def reply(data: bytes) -> None:
            if not answer.done():
                answer.set_result(data)

        with hops.send_span(self._telemetry, subject, len(payload)):
            if not self._send(_Message(subject, payload, reply, self._telemetry.headers())):
                raise NoRespondersError(f"nobody serves {subject}")
            try:
                async with asyncio.timeout(timeout_s):
                    return await answer
            except TimeoutError as error:
                raise DeadlineError(f"no answer from {subject} in {timeout_s:g} s") from error

    async def serve(
        self, subject: str, queue: str, handler: RequestHandler, *, max_in_flight: int
    ) -> Subscription:
        """Answer requests as a member of `queue`."""
        self._check(0)
        tasks = hops.Tasks()
        server = hops.Server(self._telemetry, subject, queue, handler)

        async def answer(message: _Message) -> None:
            asked = message.reply is not None
            data = await server.answer(message.payload, message.headers, asked=asked)
            if data is not None and message.reply is not None and not self._closed:
                self._count_out(data)
                message.reply(data)

        def start(message: _Message) -> None:
            tasks.start(answer(message)).add_done_callback(lambda _: interest.resume())

        interest = _Interest(
            subject, queue, start, self._received, ready=lambda: len(tasks) < max_in_flight
        )
        return self._listen(interest, tasks)

    async def close(self) -> None:
        """Disconnect. Items not acknowledged go to another worker when their wait is over."""
        self._closed = True
        for undo in self._on_close:
            undo()
        self._on_close.clear()

    def _listen(self, interest: _Interest, tasks: hops.Tasks | None = None) -> Subscription:
        self._broker.add(interest)
        subscription = _Listening(interest, lambda: self._broker.remove(interest), tasks)
        self._on_close.append(subscription.cut)
        return subscription

    def _send(self, message: _Message) -> bool:
        self._check(len(message.payload))
        self._count_out(message.payload)
        return self._broker.route(message)

    def _check(self, size: int) -> None:
        if self._closed:
            raise BusClosedError("the bus is closed")
        if size > self.max_payload_bytes:
            raise ValueError(f"payload of {size} bytes, the bus takes {self.max_payload_bytes}")

    def _count_out(self, payload: bytes) -> None:
        self._out[0] += 1
        self._out[1] += len(payload)

    def _received(self, size: int | None) -> None:
        if size is None:
            self._dropped += 1
        else:
            self._in[0] += 1
            self._in[1] += size


class _Interest:
    """A subject and the queue of what came for it, emptied in order by the event loop."""

    def __init__(
        self,
        subject: str,
        queue: str,
        handle: Callable[[_Message], None],
        received: Callable[[int | None], None],
        *,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self.subject = subject
        self.queue = queue
        self.pending: deque[_Message] = deque()
        self._handle = handle
        self._received = received
        self._ready = ready
        self._scheduled = False

    def offer(self, message: _Message) -> None:
        """Queue `message`; a full queue drops it and counts."""
        if len(self.pending) >= _MAX_PENDING:
            self._received(None)
            return
        self._received(len(message.payload))
        self.pending.append(message)
        self.resume()

    def resume(self) -> None:
        """Go on with what is pending, in the next turn of the loop."""
        if self.pending and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.empty)

    def empty(self) -> None:
        """Handle what is pending, as far as the handler is ready."""
        self._scheduled = False
        while self.pending and self._ready():
            self._handle(self.pending.popleft())


class _Listening:
    """A `Subscription`."""

    def __init__(
        self, interest: _Interest, remove: Callable[[], None], tasks: hops.Tasks | None
    ) -> None:
        self._interest = interest
        self._remove = remove
        self._tasks = tasks

    async def stop(self, *, drain_s: float = 0.0) -> None:
        """Take nothing new; wait up to `drain_s` for what was already received."""
        self._remove()
        loop = asyncio.get_running_loop()
        end = loop.time() + drain_s
        self._interest.empty()
        while self._tasks is not None and len(self._tasks) and loop.time() < end:
            await self._tasks.wait_one(end - loop.time())
            self._interest.empty()
        self.cut()
        if self._tasks is not None:
            await self._tasks.finish(0)

    def cut(self) -> None:
        """Stop at once, dropping what is pending."""
        self._remove()
        self._interest.pending.clear()
        if self._tasks is not None:
            self._tasks.cancel()
