"""The work queue on JetStream: one work-queue stream, one durable pull consumer per model.

Not `fetch()`, nor a push consumer: a lingering pull request on a callback subscription costs a
worker half as much as `fetch()`, and nothing is sent to it beyond its credit. nats-py has no such
pull, so this speaks the API directly (ADR-13 of NATS). A request ends by time, and it dies with its
server or leader; `_keep` notices and asks anew.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Collection
from typing import Final

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.js import api
from nats.js.errors import NotFoundError

from toolrail.bus import hops, setup, subjects
from toolrail.bus.connection import (
    API_TIMEOUT_S,
    FOREIGN,
    Connection,
    Outbox,
    log,
    translated,
)
from toolrail.bus.credit import Credit
from toolrail.bus.port import WorkItem, WorkPull
from toolrail.errors import FaultError

_EXPIRES_S: Final = 30.0
_HEARTBEAT_S: Final = 2.0
_SILENCE_S: Final = 2.5 * _HEARTBEAT_S
_RETRY_S: Final = 0.25
_NO_MESSAGE: Final = frozenset({10037, 10043, 10057})
_TRACE_HEADERS: Final = ("traceparent", "tracestate")


class NatsWorkQueue:
    """One connection's door to the work queue."""

    def __init__(self, connection: Connection, outbox: Outbox) -> None:
        self._connection = connection
        self._outbox = outbox

    async def put(
        self,
        model: str,
        payload: bytes,
        *,
        message_id: str,
        timeout_s: float,
        ttl_s: float | None = None,
    ) -> str:
        """Accept a job; a repeated `message_id` is accepted once. See `port.WorkQueue`."""
        telemetry = self._connection.telemetry
        subject = subjects.work(model)
        with hops.send_span(telemetry, subject, len(payload), message_id):
            headers = {"Nats-Msg-Id": message_id, **telemetry.headers()}
            if ttl_s is not None:
                headers["Nats-TTL"] = f"{max(1, math.ceil(ttl_s))}s"
            try:
                number = await setup.publish(
                    self._connection, subject, payload, headers=headers, timeout_s=timeout_s
                )
            except FOREIGN as error:
                raise translated(error, "the work queue") from error
        return str(number)

    async def withdraw(self, receipt: str) -> None:
        """Remove the job of this receipt, if it is still there."""
        try:
            async with asyncio.timeout(API_TIMEOUT_S):
                await self._connection.jetstream.delete_msg(subjects.WORK_STREAM, int(receipt))
        except NotFoundError:
            return  # taken, expired or gone with a server that lost its state
        except FOREIGN as error:
            if getattr(error, "err_code", None) not in _NO_MESSAGE:
                raise translated(error, "the work queue") from error

    async def gone(self, model: str, receipts: Collection[str]) -> set[str]:
        """Those that the queue has no more, by two questions however many there are."""
        jetstream, stream = self._connection.jetstream, subjects.WORK_STREAM
        try:
            async with asyncio.timeout(API_TIMEOUT_S):
                kept = (await jetstream.stream_info(stream)).state
                try:
                    reader = await jetstream.consumer_info(stream, subjects.model_token(model))
                except NotFoundError:  # no worker was ever there
                    settled = 0
                else:
                    settled = _settled(reader)
        except FOREIGN as error:
            raise translated(error, "the work queue") from error
        first = max(kept.first_seq, settled + 1)
        # A number beyond the last is of a stream that was lost with its server, and made anew.
        return {receipt for receipt in receipts if not first <= int(receipt) <= kept.last_seq}

    async def bury(self, model: str, record: bytes) -> None:
        """Keep a record of a job that could not be run."""
        try:
            await setup.publish(
                self._connection,
                subjects.dead(model),
                record,
                headers={},
                timeout_s=API_TIMEOUT_S,
            )
        except FOREIGN as error:
            raise translated(error, "the dead letters") from error

    async def pull(self, model: str, handler: Callable[[WorkItem], None]) -> WorkPull:
        """Deliver jobs of `model` to `handler`, never more than the credit granted."""
        pull = _Pull(self._connection, self._outbox, model, handler)
        try:
            await pull.open()
        except FOREIGN as error:
            raise translated(error, "the work queue") from error
        return pull


def _settled(reader: api.ConsumerInfo) -> int:
    """The number up to which all jobs of a consumer were acknowledged."""
    delivered, floor = reader.delivered, reader.ack_floor
    if delivered is not None and reader.num_ack_pending == 0:
        return delivered.stream_seq
    return 0 if floor is None else floor.stream_seq


class _Item:
    """A `WorkItem`."""

    __slots__ = ("_connection", "_message", "_outbox")

    def __init__(self, connection: Connection, outbox: Outbox, message: Msg) -> None:
        self._connection = connection
        self._outbox = outbox
        self._message = message

    @property
    def payload(self) -> bytes:
        """The job's bytes."""
        return self._message.data

    @property
    def deliveries(self) -> int:
        """How often it was delivered, this time included."""
        return self._message.metadata.num_delivered

    @property
    def queued_s(self) -> float:
        """When the server stored it: a delivery keeps that time, however often it is repeated."""
        return self._message.metadata.timestamp.timestamp()

    @property
    def trace_headers(self) -> dict[str, str]:
        """W3C trace context of the sender."""
        headers = self._message.headers or {}
        return {name: headers[name] for name in _TRACE_HEADERS if name in headers}

    async def ack(self) -> None:
        """Done with it: never again. It leaves after everything that was published before it."""
        if not self._outbox.idle:
            await self._outbox.until_idle()
        await self._connection.send(self._message.reply, Msg.Ack.Ack)

    async def nak(self, delay_s: float = 0.0) -> None:
        """Give it back for another worker."""
        order = Msg.Ack.Nak
        if delay_s > 0:
            order += b" " + json.dumps({"delay": int(delay_s * 1e9)}).encode()
        await self._connection.send(self._message.reply, order)

    async def in_progress(self) -> None:
        """Restart the redelivery clock."""
        await self._connection.send(self._message.reply, Msg.Ack.Progress)


class _Pull:
    """A `WorkPull`."""

    def __init__(
        self,
        connection: Connection,
        outbox: Outbox,
        model: str,
        handler: Callable[[WorkItem], None],
    ) -> None:
        self._connection = connection
        self._outbox = outbox
        self._model = model
        self._handler = handler
        self._credit = Credit()
        self._inbox = ""
        self._requests = 0
        self._subscription: NatsSubscription | None = None
        self._stale = False
        self._refused = False
        self._heard = 0.0
        self._wake = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Make the consumer if need be, listen, and keep requests open until `stop`."""
        await self._listen()
        self._connection.on_reconnect.append(self._mark_stale)
        self._keeper = self._connection.tasks.start(self._keep())

    def grant(self, credit: int) -> None:
        """Allow `credit` further items to be delivered. O(1), callable from callbacks."""
        self._credit.granted += credit
        self._wake.set()

    async def stop(self) -> None:
        """Withdraw the pull; what is still on its way here goes back to the others."""
        if self._keeper is None:
            return
        self._keeper.cancel()
        self._keeper = None
        self._connection.on_reconnect.remove(self._mark_stale)
        self._credit.granted = 0
        await self._unlisten()

    def _mark_stale(self) -> None:
        self._stale = True
        self._wake.set()

    async def _keep(self) -> None:
        """Keep as much asked for as is granted."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            try:
                if self._refused:  # not at once, or a server that refuses is asked without end
                    await asyncio.sleep(_RETRY_S)
                if self._stale:
                    await self._unlisten()
                    await self._listen()
                if missing := self._credit.missing():
                    await self._ask(missing)
            except (*FOREIGN, FaultError) as error:
                log.warning("work queue away", extra={"reason": type(error).__name__})
                self._stale = True
                await asyncio.sleep(_RETRY_S)
                continue
            try:
                async with asyncio.timeout(_HEARTBEAT_S):
                    await self._wake.wait()
            except TimeoutError:
                if self._credit.asked and loop.time() - self._heard > _SILENCE_S:
                    self._stale = True

    async def _listen(self) -> None:
        """Have a consumer, and an inbox that no older request knows."""
        await setup.ensure_consumer(self._connection, self._model)
        self._inbox = self._connection.client.new_inbox()
        self._subscription = await self._connection.subscribe(f"{self._inbox}.*", self._receive)
        self._credit.lose()
        self._stale = self._refused = False

    async def _unlisten(self) -> None:
        """Void all open requests: without interest in their inbox the server forgets them."""
        subscription, self._subscription = self._subscription, None
        if subscription is None or self._connection.client.is_closed:
            return
        try:
            if self._connection.client.is_connected:
                await subscription.drain()
            else:
                await subscription.unsubscribe()
        except FOREIGN as error:
            log.debug("inbox not withdrawn", extra={"reason": type(error).__name__})

    async def _ask(self, items: int) -> None:
        self._requests += 1
        self._heard = asyncio.get_running_loop().time()
        self._credit.request(items)
        order = {
            "batch": items,
            "expires": int(_EXPIRES_S * 1e9),
            "idle_heartbeat": int(_HEARTBEAT_S * 1e9),
        }
        name = subjects.model_token(self._model)
        await self._connection.send(
            f"$JS.API.CONSUMER.MSG.NEXT.{subjects.WORK_STREAM}.{name}",
            json.dumps(order).encode(),
            reply=f"{self._inbox}.{self._requests}",
        )

    async def _receive(self, message: Msg) -> None:
        self._heard = asyncio.get_running_loop().time()
        status = (message.headers or {}).get(api.Header.STATUS.value)
        if status is not None:
            self._told(status, message.headers or {})
            return
        item = _Item(self._connection, self._outbox, message)
        if not self._credit.deliver():
            await item.nak()
            return
        self._handler(item)
        if self._credit.missing():
            self._wake.set()

    def _told(self, status: str, headers: dict[str, str]) -> None:
        """The server's word on a request: it lives (100), it has ended, or it was refused."""
        if status == "100":
            return
        unserved = headers.get("Nats-Pending-Messages", "")
        if status in ("404", "408") and unserved.isdigit():
            self._credit.expire(int(unserved))
        else:  # leader change, consumer gone, nobody there: start again
            log.info("pull ended", extra={"status": status})
            self._stale = self._refused = True
        self._wake.set()
