"""The bus on NATS: core subjects for requests and frames, JetStream for jobs, cards and blobs.

Callbacks only: `async for` over a subscription costs four times as much. Headers go with requests
and jobs only: they triple the price of a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from toolrail.bus import hops, setup, subjects
from toolrail.bus.connection import (
    FOREIGN,
    Connection,
    OrderedClient,
    Outbox,
    log,
    translated,
    without_secrets,
)
from toolrail.bus.credentials import connect_options
from toolrail.bus.nats_audit import NatsAuditRecords
from toolrail.bus.nats_documents import NatsDocuments
from toolrail.bus.nats_store import NatsKeyValue, NatsObjectStore
from toolrail.bus.nats_work import NatsWorkQueue
from toolrail.bus.port import BusStats, FrameHandler, RequestHandler, Subscription
from toolrail.errors import BusClosedError, FaultError
from toolrail.settings import CommonSettings
from toolrail.telemetry import Telemetry

_RECONNECT_WAIT_S = 0.25
_CONNECT_TIMEOUT_S = 2
_PING_INTERVAL_S = 5
_CLOSE_TIMEOUT_S = 2.0
_BUFFER_WHILE_AWAY_BYTES = 8 << 20


class NatsBus:
    """One connection to a NATS server or cluster. See `port.Bus` for what it guarantees."""

    def __init__(self, connection: Connection) -> None:
        """Over a connection that is up; use `connect`."""
        settings = connection.settings
        self._connection = connection
        self._outbox = Outbox(connection, settings.publish_queue_messages)
        self._work = NatsWorkQueue(connection, self._outbox)
        ttl_s = settings.registration_ttl_s
        self._models = NatsKeyValue(connection, subjects.MODELS_BUCKET, ttl_s)
        self._instances = NatsKeyValue(connection, subjects.INSTANCES_BUCKET, ttl_s)
        self._blobs = NatsObjectStore(connection)
        self._documents = NatsDocuments(connection)
        self._audit = NatsAuditRecords(connection)

    @classmethod
    async def connect(
        cls, settings: CommonSettings, *, telemetry: Telemetry | None = None
    ) -> NatsBus:
        """A bus that is connected, with all that must exist on the server.

        Raises:
            BusClosedError: not possible within `settings.connect_timeout_s`.
            ConfigError: a file that the settings name cannot be used.
        """
        options = connect_options(settings)
        client = OrderedClient()
        connection = Connection(client, settings, telemetry or Telemetry())
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                await client.connect(
                    servers=[url.strip() for url in settings.nats_url.split(",")],
                    name=settings.instance or "toolrail",
                    error_cb=connection.complain,
                    reconnected_cb=connection.reconnected,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=_RECONNECT_WAIT_S,  # pyright: ignore[reportArgumentType]
                    connect_timeout=_CONNECT_TIMEOUT_S,
                    ping_interval=_PING_INTERVAL_S,
                    pending_size=_BUFFER_WHILE_AWAY_BYTES,
                    flush_timeout=_CLOSE_TIMEOUT_S,
                    **options,
                )
                await _set_up(connection)
        except FOREIGN as error:
            await client.close()
            place = without_secrets(settings.nats_url)
            raise BusClosedError(f"no bus at {place}: {type(error).__name__}") from error
        return cls(connection)

    @property
    def work(self) -> NatsWorkQueue:
        """The queue of jobs."""
        return self._work

    @property
    def models(self) -> NatsKeyValue:
        """Model cards."""
        return self._models

    @property
    def instances(self) -> NatsKeyValue:
        """Live processes."""
        return self._instances

    @property
    def blobs(self) -> NatsObjectStore:
        """Tokenizers, templates, large prompts."""
        return self._blobs

    @property
    def documents(self) -> NatsDocuments:
        """Responses that can be asked for later."""
        return self._documents

    @property
    def audit(self) -> NatsAuditRecords:
        """What gateways were asked and answered."""
        return self._audit

    @property
    def max_payload_bytes(self) -> int:
        """Largest payload a message may have, as the server says."""
        return self._connection.client.max_payload

    def stats(self) -> BusStats:
        """Counters of this connection, calls to JetStream and acknowledgements included."""
        stats = self._connection.client.stats
        return BusStats(
            messages_out=stats["out_msgs"],
            messages_in=stats["in_msgs"],
            bytes_out=stats["out_bytes"],
            bytes_in=stats["in_bytes"],
            reconnects=stats["reconnects"],
            dropped=self._connection.dropped,
            unsent=len(self._outbox),
        )

    async def publish(self, subject: str, payload: bytes) -> None:
        """Send and forget, in order, also with what `publish_soon` was given before. O(payload)."""
        if not self._outbox.idle:
            await self._outbox.until_idle()
        await self._connection.send(subject, payload)

    def publish_soon(self, subject: str, payload: bytes) -> None:
        """Send and forget, from a callback. O(1); one wake-up for all that is given in a row."""
        self._outbox.put(subject, payload)

    async def subscribe(self, subject: str, handler: FrameHandler) -> Subscription:
        """Deliver every message on `subject` to `handler`, in order, inline."""
        listening = _Listening(self._connection)

        async def deliver(message: Msg) -> None:
            if not listening.cut:
                handler(message.data)

        await listening.open(subject, "", deliver)
        return listening

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """The answer of one server of `subject`."""
        connection = self._connection
        with hops.send_span(connection.telemetry, subject, len(payload)):
            try:
                answer = await connection.client.request(
                    subject,
                    payload,
                    timeout=timeout_s,
                    headers=connection.telemetry.headers() or None,
                )
            except FOREIGN as error:
                raise translated(error, subject) from error
        return answer.data

    async def serve(
        self, subject: str, queue: str, handler: RequestHandler, *, max_in_flight: int
    ) -> Subscription:
        """Answer requests as a member of `queue`."""
        connection = self._connection
        server = hops.Server(connection.telemetry, subject, queue, handler)
        listening = _Listening(connection)
        slots = asyncio.Semaphore(max_in_flight)

        async def answer(message: Msg) -> None:
            try:
                asked = bool(message.reply)
                data = await server.answer(message.data, message.headers, asked=asked)
                if data is not None and message.reply:
                    await connection.answer(message.reply, data)
            except (FaultError, ValueError) as error:
                log.error("answer not sent", extra={"subject": subject, "reason": str(error)})
            finally:
                slots.release()

        async def take(message: Msg) -> None:
            await slots.acquire()  # nats-py calls this for one message at a time: the others wait
            if listening.cut:
                slots.release()
            else:
                listening.tasks.start(answer(message))

        await listening.open(subject, queue, take)
        return listening

    async def close(self) -> None:
        """Flush and disconnect."""
        connection = self._connection
        if connection.client.is_closed:
            return
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                if connection.client.is_connected:
                    await self._outbox.until_idle()
                    await connection.client.flush()
        except FOREIGN as error:
            log.warning("closed with unsent messages", extra={"reason": type(error).__name__})
        for tasks in (*connection.served, connection.tasks):
            await tasks.finish(0)
        try:
            await connection.client.close()
        except (*FOREIGN, RuntimeError) as error:
            # The server went first, and what is left cannot leave: uvloop's own word for that.
            log.warning("closed with unsent messages", extra={"reason": type(error).__name__})


class _Listening:
    """A `Subscription`.

    Attributes:
        cut: nothing more is handled, whatever still comes.
        tasks: requests being answered.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._subscription: NatsSubscription | None = None
        self.tasks = hops.Tasks()
        self.cut = False

    async def open(
        self, subject: str, queue: str, handler: Callable[[Msg], Awaitable[None]]
    ) -> None:
        """Listen; the server knows of it when this returns."""
        connection = self._connection
        try:
            self._subscription = await connection.subscribe(subject, handler, queue=queue)
            await connection.client.flush()
        except FOREIGN as error:
            raise translated(error, subject) from error
        connection.served.append(self.tasks)

    async def stop(self, *, drain_s: float = 0.0) -> None:
        """Take nothing new; wait up to `drain_s` for what was already received."""
        subscription, self._subscription = self._subscription, None
        if subscription is None or self._connection.client.is_closed:
            return
        end = asyncio.get_running_loop().time() + drain_s
        withdrawal = self._connection.tasks.start(self._withdraw(subscription))
        if drain_s > 0:
            await asyncio.wait([withdrawal], timeout=drain_s)
            await self.tasks.finish(end - asyncio.get_running_loop().time())
        self.cut = True
        await self.tasks.finish(0)
        self._connection.served.remove(self.tasks)
        await asyncio.wait([withdrawal], timeout=_CLOSE_TIMEOUT_S)

    async def _withdraw(self, subscription: NatsSubscription) -> None:
        """End the interest; returns when all that had been received was handled."""
        try:
            if self._connection.client.is_connected:
                await subscription.drain()
            else:
                await subscription.unsubscribe()
        except FOREIGN as error:
            log.debug("interest not withdrawn", extra={"reason": type(error).__name__})


async def _set_up(connection: Connection) -> None:
    """Make what must exist, as soon as JetStream can: a starting cluster elects a leader first."""
    while True:
        try:
            await setup.ensure(connection)
        except FOREIGN as error:
            log.info("JetStream not ready", extra={"reason": str(error)})
            await asyncio.sleep(_RECONNECT_WAIT_S)
        else:
            return
