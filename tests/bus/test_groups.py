"""Groups of documents: each has a bound, and gives up its own oldest for it, nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import nats
import pytest

from toolrail.bus import subjects
from toolrail.bus.embedded import EmbeddedNats
from toolrail.bus.nats import NatsBus
from toolrail.settings import CommonSettings

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

LONG_S = 600.0
DEADLINE_S = 60.0
BOUND = 1 << 20
SIZE = 20_000


@dataclass
class Server:
    embedded: EmbeddedNats = field(default_factory=EmbeddedNats)
    buses: list[NatsBus] = field(default_factory=list[NatsBus])

    async def connect(self, *, bound: int = BOUND) -> NatsBus:
        settings = CommonSettings(
            nats_url=self.embedded.url, connect_timeout_s=20, max_owner_document_bytes=bound
        )
        self.buses.append(await NatsBus.connect(settings))
        return self.buses[-1]


@asynccontextmanager
async def server() -> AsyncIterator[Server]:
    started = Server()
    await started.embedded.start()
    try:
        yield started
    finally:
        for bus in started.buses:
            await bus.close()
        started.embedded.remove()


async def there(bus: NatsBus, key: str) -> bool:
    try:
        await bus.documents.get(key)
    except KeyError:
        return False
    return True


async def look(bus: NatsBus, group: str) -> None:
    """Have it look at the group once more, in case that it could not on a busy machine."""
    await bus.documents.put(f"{group}.again", bytes(BOUND // 16), ttl_s=LONG_S)
    await anyio.sleep(0.05)


async def gone(bus: NatsBus, group: str, key: str) -> None:
    """Return when it is; nobody is told of it."""
    with anyio.fail_after(DEADLINE_S):
        while await there(bus, f"{group}.{key}"):
            await look(bus, group)


async def at_most(server: Server, bus: NatsBus, group: str, documents: int) -> None:
    """Return when the group has no more of them."""
    client = await nats.connect(server.embedded.url)
    subject = f"{subjects.DOCUMENTS}.{group}.>"
    try:
        with anyio.fail_after(DEADLINE_S):
            while True:
                info = await client.jetstream().stream_info(
                    subjects.DOCUMENTS_STREAM, subjects_filter=subject
                )
                if len(info.state.subjects or {}) <= documents:
                    return
                await look(bus, group)
    finally:
        await client.close()


async def test_who_stores_too_much_loses_their_own_oldest() -> None:
    async with server() as started:
        one, two = await started.connect(), await started.connect()
        await one.documents.put("modest.k", b"1", ttl_s=LONG_S)
        await one.documents.put("ungrouped", b"2", ttl_s=LONG_S)
        for number in range(100):
            bus = (one, two)[number % 2]
            await bus.documents.put(f"greedy.k{number}", bytes(SIZE), ttl_s=LONG_S)
        await gone(one, "greedy", "k0")
        # Its bound, and a sixteenth of it for each connection.
        await at_most(started, one, "greedy", BOUND * 18 // 16 // SIZE)
        for key in ("greedy.k99", "greedy.k70", "modest.k", "ungrouped"):
            assert await there(one, key), key


async def test_documents_of_many_messages_count_whole() -> None:
    async with server() as started:
        bus = await started.connect()
        for number in range(4):
            await bus.documents.put(f"g.k{number}", bytes(600_000), ttl_s=LONG_S)
        for number in range(3):
            await gone(bus, "g", f"k{number}")
        assert await bus.documents.get("g.k3") == bytes(600_000)


async def test_what_was_deleted_does_not_count() -> None:
    async with server() as started:
        bus = await started.connect()
        await bus.documents.put("g.first", b"1", ttl_s=LONG_S)
        for number in range(100):
            await bus.documents.put(f"g.k{number}", bytes(SIZE), ttl_s=LONG_S)
            await bus.documents.delete(f"g.k{number}")
        unbounded = await started.connect(bound=0)
        for number in range(100):
            await unbounded.documents.put(f"h.k{number}", bytes(SIZE), ttl_s=LONG_S)
        assert await there(bus, "g.first")
        assert await there(bus, "h.k0")
