"""Nothing of a request stays in memory when it is over, however it ended.

All services run in this process, so that what they leave behind can be counted, object by object.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import anyio
import pytest

from services.postprocessor import postprocessor
from tests.cluster import Cluster, cluster, until
from tests.every_kind import KINDS, write_script

pytestmark = [pytest.mark.anyio, pytest.mark.chaos]

ROUNDS: Final = 10
PATIENCE_S: Final = 120.0

OURS: Final = frozenset({"services", "toolrail", "asyncio", "_asyncio", "anyio"})
"""Whose classes are counted: ours, and those that our waiting is made of."""

REMEMBERED: Final = {
    "services.postprocessor.remembered.Said",
    "toolrail.bus.memory_work._Job",
}
"""Kept of requests that are over, to know their stragglers and repetitions: bounded, and the
bounds lie far above this test."""

HELD: Final = (
    "toolrail_http_requests_in_flight",
    "toolrail_postprocessor_open_streams",
    "toolrail_worker_running",
    "toolrail_worker_kept_runs",
)


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Cluster]:
    # Workers keep what they sent for a while after its end; here there is nothing to wait for.
    monkeypatch.setattr(postprocessor, "_KEPT_S", 1.0)
    async with cluster("--script", write_script(tmp_path), "--obey-tag", "--slots", "64") as made:
        yield made


def objects() -> Counter[str]:
    """How many objects there are, by class."""
    gc.collect()
    names: Counter[str] = Counter()
    for kind, count in Counter(map(type, gc.get_objects())).items():
        module = str(kind.__module__)
        if module.partition(".")[0] in OURS:
            names[f"{module}.{kind.__qualname__}"] += count
    return names


async def rounds(running: Cluster, count: int) -> None:
    """So many requests of each kind, until all of them have ended."""
    async with running.client() as client:
        for _ in range(count):
            async with anyio.create_task_group() as tasks:
                for kind in KINDS:
                    tasks.start_soon(kind, client)
    await until(lambda: not any(node.count(series) for node in running.nodes for series in HELD))


async def test_nothing_of_a_request_stays(running: Cluster) -> None:
    await rounds(running, 2)  # fills caches
    before = objects()
    await rounds(running, ROUNDS)
    left: dict[str, int] = {}
    with anyio.move_on_after(PATIENCE_S):
        while True:
            # Whatever a kind of request leaves behind, each round has left one of it.
            grown = objects() - before
            left = {name: n for name, n in grown.items() if n >= ROUNDS and name not in REMEMBERED}
            if not left:
                return
            await anyio.sleep(0.5)
    assert not left
