"""Nothing of a request stays in memory when it is over, however it ended.

All services run in this process, so that what they leave behind can be counted, object by object.
"""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import pytest

from benchmarks.mixed_load import TOOL
from tests.cluster import Cluster, cluster, until

pytestmark = [pytest.mark.anyio, pytest.mark.chaos]

SCRIPT: Final = [
    {"match": "Ramble", "text": "on and on " * 1000, "delay_ms": 20},
    {"match": "Break", "text": "Half of a", "finish": "error"},
]

ROUNDS: Final = 10
PATIENCE_S: Final = 120.0

OURS: Final = frozenset({"services", "toolrail", "asyncio", "_asyncio", "anyio"})
"""Whose classes are counted: ours, and those that our waiting is made of."""

REMEMBERED: Final = {
    "services.postprocessor.streams._Said",
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
async def running(tmp_path: Path) -> AsyncGenerator[Cluster]:
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    flags = ("--script", str(script), "--obey-tag", "--slots", "64")
    async with cluster(*flags) as made:
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


async def leave(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    """Read a little of an answer, then go."""
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        async for _ in response.aiter_raw(1):
            return


async def requests(client: httpx.AsyncClient) -> None:
    """One of each kind: whole, refused, failed, left; over each API."""
    chat, said = "/v1/chat/completions", [{"role": "user", "content": "Hello"}]
    usual: dict[str, Any] = {"model": "demo", "messages": said}
    call = usual | {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    ramble = usual | {"messages": [{"role": "user", "content": "Ramble"}], "stream": True}
    broken = usual | {"messages": [{"role": "user", "content": "Break"}]}
    kept = {"model": "demo", "input": "Hello"}
    async with anyio.create_task_group() as tasks:
        for body in (usual, usual | {"stream": True}, usual | {"n": 2, "logprobs": True}, call):
            tasks.start_soon(post, client, chat, body, 200)
        tasks.start_soon(post, client, chat, call | {"stream": True}, 200)
        tasks.start_soon(post, client, chat, usual | {"n": -1}, 400)
        tasks.start_soon(post, client, chat, broken, 500)
        tasks.start_soon(post, client, chat, broken | {"stream": True}, 200)
        tasks.start_soon(post, client, "/v1/responses", kept | {"store": False}, 200)
        tasks.start_soon(post, client, "/v1/messages", usual | {"max_tokens": 8}, 200)
        tasks.start_soon(leave, client, ramble)
        tasks.start_soon(leave, client, ramble | {"n": 2})
        made = await client.post("/v1/responses", json=kept | {"background": True})
        await client.post(f"/v1/responses/{made.json()['id']}/cancel")
        await client.delete(f"/v1/responses/{made.json()['id']}")


async def post(client: httpx.AsyncClient, path: str, body: dict[str, Any], status: int) -> None:
    answer = await client.post(path, json=body)
    assert answer.status_code == status, answer.text


async def settled(running: Cluster) -> None:
    await until(lambda: not any(node.count(series) for node in running.nodes for series in HELD))


async def rounds(running: Cluster, count: int) -> None:
    """So many rounds, until all of it has ended."""
    async with running.client() as client:
        for _ in range(count):
            await requests(client)
    await settled(running)


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
