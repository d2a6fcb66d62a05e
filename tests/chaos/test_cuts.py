"""Connections to the bus that break under load, with all that is under way on them.

What a service says into a connection that is breaking, and what is said to it, is lost, be it the
first word of an answer or the last one, a job's or a hand-over's. No request may wait for it until
its deadline.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import pytest

from benchmarks.mixed_load import Load
from tests import stack as stacks
from tests.chaos.conftest import START_S
from tests.chaos.inside import inside
from toolrail.bus.embedded import EmbeddedNats

pytestmark = [pytest.mark.chaos, pytest.mark.anyio]

STREAMS: Final = 12
REQUESTS: Final = 150
CUTS: Final = 12
DEAF_S: Final = 0.5
"""How long a connection that breaks takes everything without a word, at most."""

FLAGS: Final = (
    *stacks.scripted("--obey-tag", "--scripted-step-ms", "20", "--slots", "24"),
    *("--replicas", "gateway=2,preprocessor=2,postprocessor=2,worker=2"),
)


class Way:
    """The way of one connection through `Proxy`."""

    def __init__(self, writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        self._writers = writers
        self._deaf = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One of its directions, until either end is closed."""
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if not self._deaf:
                    writer.write(data)
                    await writer.drain()
        self.close()

    async def cut(self, deaf_s: float) -> None:
        """Lose what is said from now on, then break."""
        self._deaf = True
        await anyio.sleep(deaf_s)
        self.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


class Proxy:
    """A way to a NATS server whose connections can be cut one by one."""

    def __init__(self, url: str) -> None:
        self._server = urlsplit(url)
        self.ways: list[Way] = []
        self.url = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.url = f"nats://127.0.0.1:{port}"
        try:
            yield
        finally:
            server.close()
            for way in self.ways:
                way.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(self._server.hostname, self._server.port)
        way = Way((writer, there[1]))
        self.ways.append(way)
        try:
            await asyncio.gather(way.carry(reader, there[1]), way.carry(there[0], writer))
        finally:
            self.ways.remove(way)


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_request_waits_for_what_was_lost_with_a_connection(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    server = EmbeddedNats()
    await server.start(START_S)
    proxy = Proxy(server.url)
    try:
        async with proxy.listening():
            stack = stacks.start(tmp_path, *FLAGS, "--nats", proxy.url)
            try:
                await anyio.to_thread.run_sync(stack.wait_ready, START_S)
                await storm(stack, server, proxy, rng)
            finally:
                await anyio.to_thread.run_sync(stacks.discard, stack)
    finally:
        server.remove()


async def storm(
    stack: stacks.Stack, server: EmbeddedNats, proxy: Proxy, rng: random.Random
) -> None:
    load = Load(stack.base_url, rng.randrange(1000))
    marks = set(rng.sample(range(STREAMS, REQUESTS), k=CUTS))
    async with (
        inside(stack, server.url, may_keep=True) as see,
        anyio.create_task_group() as cuts,
    ):
        await see.settled()

        def strike(number: int) -> None:
            if number in marks and proxy.ways:
                cuts.start_soon(rng.choice(proxy.ways).cut, rng.uniform(0, DEAF_S))

        await load.run(STREAMS, lambda: load.started < REQUESTS, strike)
        print(f"\n{load.tally}")  # noqa: T201 (with -s)
        await see.settled()
    assert load.tally.total == REQUESTS
    assert set(load.tally.fates) <= {"answered", "refused", "failed"}, load.tally
    assert load.tally.fates["answered"] >= REQUESTS // 2, load.tally
