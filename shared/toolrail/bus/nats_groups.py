"""A bound for each group of documents: what fills it is paid for by the group's own oldest.

JetStream bounds bytes by stream and not by subject, so it is done here, beside the requests. Each
connection counts what it puts; for every sixteenth of the bound it has the server tell the sizes of
all that the group has, whoever put it, and has the oldest removed, so that an eighth is free again.
A put costs an addition; a group may be over its bound by a sixteenth for each process that puts.
What other groups have is not touched, and nobody needs to agree with anybody.
"""

from __future__ import annotations

import asyncio
from array import array
from contextlib import suppress
from typing import Final, Protocol, cast

from nats.aio.msg import Msg
from nats.js import api

from toolrail.bus import subjects
from toolrail.bus.connection import FOREIGN, Connection, log
from toolrail.errors import FaultError

_LOOKS: Final = 16
"""So often a group is looked at while it puts as much as its bound."""
_FREED: Final = 8
"""The part of the bound that is free again where something had to go: not one purge a document."""
_LOOK_S: Final = 60.0
_HEARTBEAT_S: Final = 1.0
_KEEP_READER_S: Final = 5.0
_AT_ONCE: Final = 256
"""Sizes on their way: many more would keep the loop from all else for too long at a time."""
_SIZE: Final = "Nats-Msg-Size"
_MESSAGE_BYTES: Final = 100
"""About what a message takes beside its subject and its data."""


class _Purges(Protocol):
    async def purge_stream(self, name: str, *, seq: int, subject: str) -> bool: ...


class Groups:
    """What one connection knows of the groups that it puts documents into."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bound = connection.settings.max_owner_document_bytes
        self._new: dict[str, int] = {}
        self._looked_at: set[str] = set()
        self._turn = asyncio.Lock()

    def put(self, group: str, size: int) -> None:
        """So many bytes more may be there. O(1); now and then it has a task look at the group."""
        if not self._bound:
            return
        new = self._new[group] = self._new.get(group, 0) + _MESSAGE_BYTES + size
        if new * _LOOKS >= self._bound and group not in self._looked_at:
            self._looked_at.add(group)
            self._connection.tasks.start(self._look_at(group))

    async def _look_at(self, group: str) -> None:
        """Look at it as often as what was put meanwhile asks for; one group after another."""
        try:
            while self._new.get(group, 0) * _LOOKS >= self._bound:
                async with self._turn, asyncio.timeout(_LOOK_S):
                    self._new.pop(group, None)
                    await self._make_room(group)
        except FOREIGN as error:  # counted again after as much as made us look now
            reason = str(error) or type(error).__name__
            log.warning("a group's documents were not counted", extra={"reason": reason})
        finally:
            self._looked_at.discard(group)

    async def _make_room(self, group: str) -> None:
        """Remove the oldest of a group, if it has more than its bound."""
        subject = f"{subjects.DOCUMENTS}.{group}.>"
        sizes = _Sizes(self._connection)
        await sizes.read(subject)
        held, first_kept = sizes.cut(self._bound, self._bound - self._bound // _FREED)
        if first_kept is None:
            return
        purges = cast("_Purges", self._connection.jetstream)
        await purges.purge_stream(subjects.DOCUMENTS_STREAM, seq=first_kept, subject=subject)
        facts = {"group": group, "held_bytes": held, "bound_bytes": self._bound}
        log.info("the oldest documents of a group were removed", extra=facts)


class _Sizes:
    """The sizes of the messages of a subject, by their numbers in the stream; not their data."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbers = array("Q")
        self._bytes = array("Q")
        self._seen = 0
        self._heartbeats = 0
        self._lost = False
        self._done = asyncio.Event()

    async def read(self, subject: str) -> None:
        """Have the server tell them: about 15 µs for each. Raises what nats-py raises."""
        inbox = self._connection.client.new_inbox()
        subscription = await self._connection.subscribe(inbox, self._receive)
        try:
            config = api.ConsumerConfig(
                deliver_subject=inbox,
                deliver_policy=api.DeliverPolicy.ALL,
                filter_subject=subject,
                ack_policy=api.AckPolicy.ALL,
                ack_wait=_LOOK_S,
                max_ack_pending=_AT_ONCE,
                max_deliver=1,
                headers_only=True,
                idle_heartbeat=_HEARTBEAT_S,
                inactive_threshold=_KEEP_READER_S,
                mem_storage=True,
                num_replicas=1,
            )
            info = await self._connection.jetstream.add_consumer(subjects.DOCUMENTS_STREAM, config)
            delivered = info.delivered.consumer_seq if info.delivered else 0
            if not info.num_pending and not delivered:
                return
            await self._done.wait()
        finally:
            if self._connection.client.is_connected:
                await subscription.unsubscribe()
        if self._lost:
            raise ConnectionError("a message was lost")

    def cut(self, bound: int, rest: int) -> tuple[int, int | None]:
        """All bytes, and where they are more than `bound` the first message of the last `rest`."""
        held = sum(self._bytes)
        if held <= bound:
            return held, None
        kept, position = 0, len(self._bytes)
        while position and (kept := kept + self._bytes[position - 1]) <= rest:
            position -= 1
        return held, self._numbers[min(position, len(self._numbers) - 1)]

    async def _receive(self, message: Msg) -> None:
        headers = message.headers or {}
        if api.Header.STATUS.value in headers:  # a heartbeat: nothing left for a second, or so
            last = headers.get(api.Header.LAST_CONSUMER.value, "")
            self._lost = self._lost or (last.isdigit() and int(last) > self._seen)
            self._heartbeats += 1
            if self._lost or self._heartbeats > 1:  # the second: our acknowledgement has arrived
                self._done.set()
            return
        self._heartbeats = 0
        metadata = message.metadata
        self._seen += 1
        self._lost = self._lost or metadata.sequence.consumer != self._seen
        self._numbers.append(metadata.sequence.stream)
        self._bytes.append(int(headers.get(_SIZE, 0)) + len(message.subject) + _MESSAGE_BYTES)
        if not metadata.num_pending:
            self._done.set()
        elif self._seen % (_AT_ONCE // 2) == 0:
            with suppress(FaultError):  # then no more come, and the wait for them has an end
                await self._connection.send(message.reply, b"")
