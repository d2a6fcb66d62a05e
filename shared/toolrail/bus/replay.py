"""Reads a stream from its present state on: an ephemeral, ordered push consumer.

Not nats-py's ordered consumer: that one wakes four times a second for every reader and leaves its
tasks behind when it is stopped. This one has none; who keeps it for long asks `silent_s`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import api

from toolrail.bus.connection import FOREIGN, Connection

HEARTBEAT_S: Final = 2.0


class Replay:
    """One reader of the messages of `stream` that fall under `subject`.

    `handler` is called inline for every message, in order; `broken` once, when a message was lost
    and the reader is of no more use.
    """

    def __init__(
        self,
        connection: Connection,
        handler: Callable[[Msg], None],
        broken: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._handler = handler
        self._broken = broken
        self._subscription: Subscription | None = None
        self._present = -1
        self._seen = 0
        self._caught_up = asyncio.Event()
        self._heard = 0.0

    async def open(
        self, stream: str, subject: str, policy: api.DeliverPolicy, keep_s: float
    ) -> None:
        """Begin; the server forgets the reader `keep_s` after it lost it."""
        inbox = self._connection.client.new_inbox()
        self._heard = asyncio.get_running_loop().time()
        self._subscription = await self._connection.subscribe(inbox, self._receive)
        config = api.ConsumerConfig(
            deliver_subject=inbox,
            deliver_policy=policy,
            filter_subject=subject,
            ack_policy=api.AckPolicy.NONE,
            max_deliver=1,
            idle_heartbeat=HEARTBEAT_S,
            inactive_threshold=keep_s,
            mem_storage=True,
            num_replicas=1,
        )
        try:
            info = await self._connection.jetstream.add_consumer(stream, config)
        except BaseException:
            await self.close()
            raise
        delivered = info.delivered.consumer_seq if info.delivered else 0
        self._present = (info.num_pending or 0) + (delivered or 0)
        self._check_caught_up()

    async def caught_up(self) -> None:
        """Wait until everything that was there at `open` has been handled."""
        await self._caught_up.wait()

    @property
    def silent_s(self) -> float:
        """For how long nothing was heard, not even a heartbeat."""
        return asyncio.get_running_loop().time() - self._heard

    async def close(self) -> None:
        """Read no more."""
        subscription, self._subscription = self._subscription, None
        if subscription is None or self._connection.client.is_closed:
            return
        try:
            await subscription.unsubscribe()
        except FOREIGN:  # only a connection that ends refuses, and then it is gone anyway
            return

    async def _receive(self, message: Msg) -> None:
        self._heard = asyncio.get_running_loop().time()
        if self._subscription is None:
            return
        headers = message.headers or {}
        if api.Header.STATUS.value in headers:
            last = headers.get(api.Header.LAST_CONSUMER.value, "")
            if last.isdigit() and int(last) > self._seen:
                self._broken()
            return
        sequence = message.metadata.sequence.consumer
        if sequence != self._seen + 1:
            self._broken()
            return
        self._seen = sequence
        self._handler(message)
        self._check_caught_up()

    def _check_caught_up(self) -> None:
        if 0 <= self._present <= self._seen:
            self._caught_up.set()
