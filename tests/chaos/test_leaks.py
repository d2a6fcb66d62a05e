"""After 2,000 requests of all kinds nothing more is held than before, of server and machine.

Runs after the kills, so that what those left behind would be seen as well.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx
import pytest

from tests import every_kind
from tests.chaos.holdings import Holdings, holdings
from tests.chaos.inside import OBSERVER, Inside, inside
from tests.stack import Stack
from toolrail.bus import subjects
from toolrail.bus.embedded import EmbeddedNats

pytestmark = [pytest.mark.chaos, pytest.mark.anyio]

CLIENTS: Final = 50
WARM_UP: Final = 400
REQUESTS: Final = 2000
SERVICES: Final = ("gateway", "preprocessor", "postprocessor", "worker")
INSTANCES: Final = f"KV_{subjects.INSTANCES_BUCKET}"
"""The stream that each process has one reader of."""

PATIENCE_S: Final = 180.0
"""The server forgets readers of the dead after a minute."""

GROWTH_BYTES: Final = 32 << 20
"""Of a process: 16 KiB a request, which is less than any request holds while it runs."""

TASKS: Final = 8
"""What comes and goes by itself: heartbeats, probes, pings."""

THREADS: Final = 64
"""More than the pools of a process have together."""


async def flood(base_url: str, count: int) -> None:
    limits = httpx.Limits(max_connections=CLIENTS)
    async with (
        httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S, limits=limits) as client,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(CLIENTS):
            tasks.start_soon(every_kind.run, client, count // CLIENTS)


async def tasks_of(see: Inside) -> Counter[str]:
    """Tasks of every process."""
    names = [one for service in SERVICES for one in see.instances(service)]
    return Counter({one: int(await see.count(one, "toolrail_event_loop_tasks")) for one in names})


def strange(now: Holdings, stack: Stack) -> dict[str, Any]:
    """What is there of the server that belongs to nobody."""
    expected = {one["instance"] for one in stack.status["processes"]} | {OBSERVER}
    found = {
        "connections": set(now.subscriptions) ^ expected,
        "unread": dict(now.unread),
        "watches": now.consumers[INSTANCES] - len(expected),
    }
    return {what: left for what, left in found.items() if left}


def more(now: Holdings, before: Holdings) -> dict[str, Any]:
    """What is held that was not before."""
    found = {
        "subscriptions": now.subscriptions - before.subscriptions,
        "consumers": now.consumers - before.consumers,
        "messages": now.messages - before.messages,
        "sockets": now.sockets - before.sockets,
    }
    for name, held in now.footprints.items():
        grown = held.resident_bytes - before.footprints[name].resident_bytes
        if grown > GROWTH_BYTES or held.threads > THREADS:
            found[name] = Counter({"bytes": grown, "threads": held.threads})
    return {what: left for what, left in found.items() if left}


async def test_two_thousand_requests_leave_nothing_behind(
    pairs: Stack, server: EmbeddedNats
) -> None:
    left: Any = None
    async with inside(pairs) as see:
        await flood(pairs.base_url, WARM_UP)
        await see.settled()
        before = await look(pairs, server)
        with anyio.move_on_after(PATIENCE_S) as patience:
            while left := strange(before, pairs):
                await anyio.sleep(0.5)
                before = await look(pairs, server)
        assert not patience.cancelled_caught, left
        tasks = await tasks_of(see)

        await flood(pairs.base_url, REQUESTS)

        await see.settled()
        with anyio.move_on_after(PATIENCE_S) as patience:
            while True:
                now = await look(pairs, server)
                busy = {
                    name: count
                    for name, count in (await tasks_of(see)).items()
                    if count > tasks[name] + TASKS
                }
                left = (more(now, before), strange(now, pairs), busy)
                if not any(left):
                    break
                await anyio.sleep(0.5)
        assert not patience.cancelled_caught, left


async def look(stack: Stack, server: EmbeddedNats) -> Holdings:
    return await anyio.to_thread.run_sync(holdings, stack, server)
