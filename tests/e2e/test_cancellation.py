"""Clients that leave, at every stage of a request: the engine's slot is free at once.

Nothing here would end by itself, so what ends was cancelled; what the engine counted proves it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.cluster import Cluster, Node, cluster, until

pytestmark = pytest.mark.anyio

SCRIPT = [
    {"match": "Ponder", "text": "x", "ttft_ms": 3_600_000},
    {"match": "Ramble", "text": "on and on " * 1000, "delay_ms": 20},
    {"match": "Hello", "text": "Hi"},
]


@pytest.fixture
async def running(tmp_path: Path) -> AsyncGenerator[Cluster]:
    """One slot, so that a second request is queued."""
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    async with cluster("--script", str(script), "--slots", "1", postprocessors=1) as made:
        yield made


class Counts:
    """What the services count."""

    def __init__(self, running: Cluster) -> None:
        self.nodes = {node.service: node for node in running.nodes}

    def node(self, service: str) -> Node:
        return self.nodes[service]

    @property
    def slots(self) -> float:
        return self.node("worker").count("toolrail_worker_running")

    @property
    def streams(self) -> float:
        return self.node("postprocessor").count("toolrail_postprocessor_open_streams")

    @property
    def tokens(self) -> float:
        return self.node("postprocessor").count("toolrail_postprocessor_tokens_total")

    def runs(self, outcome: str) -> float:
        registry = self.node("worker").runtime.metrics
        labels = {"outcome": outcome}
        return registry.get_sample_value("toolrail_worker_runs_total", labels) or 0


def request(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "demo", "messages": [{"role": "user", "content": text}], **more}


@asynccontextmanager
async def leaving(
    client: httpx.AsyncClient, body: dict[str, Any], when: Callable[[], object]
) -> AsyncIterator[None]:
    """A client that leaves `when` that is so; the block begins then."""
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            async with client.stream("POST", "/v1/chat/completions", json=body) as response:
                async for _ in response.aiter_bytes():
                    pass

        tasks.start_soon(ask)
        await until(when)
        tasks.cancel_scope.cancel()
    yield


async def test_whoever_leaves_frees_the_slot_whatever_the_stage(running: Cluster) -> None:
    counts = Counts(running)
    cancelled = 0
    async with running.client() as client:
        for stream in (True, False):
            # Before the first token.
            body = request("Ponder", stream=stream)
            async with leaving(client, body, lambda: counts.slots):
                await until(lambda: not counts.slots)
            # In the middle.
            before = counts.tokens
            body = request("Ramble", stream=stream)
            async with leaving(client, body, lambda before=before: counts.tokens > before + 2):
                await until(lambda: not counts.slots)
            # One choice has the slot, the other one waits for it.
            before = counts.tokens
            body = request("Ramble", stream=stream, n=2)
            async with leaving(client, body, lambda before=before: counts.tokens > before + 2):
                await until(lambda: not counts.slots and not counts.streams)
            cancelled += 3
        await until(lambda: counts.runs("cancelled") >= cancelled)
        answer = await client.post("/v1/chat/completions", json=request("Hello"))
        assert answer.status_code == 200
        assert counts.runs("stop") == 1


@pytest.mark.chaos
async def test_whoever_leaves_the_queue_is_never_run(running: Cluster) -> None:
    counts = Counts(running)
    async with running.client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.post, "/v1/chat/completions")  # a refusal costs no slot
        ponder = anyio.CancelScope()

        async def occupy() -> None:
            with ponder:
                await client.post("/v1/chat/completions", json=request("Ponder"))

        tasks.start_soon(occupy)
        await until(lambda: counts.slots)
        async with leaving(client, request("Ramble"), lambda: counts.streams == 2):
            await until(lambda: counts.streams == 1)
        ponder.cancel()
        await until(lambda: not counts.slots)
        answer = await client.post("/v1/chat/completions", json=request("Hello"))
        assert answer.status_code == 200
        assert counts.tokens <= 4  # those of the answer; the one that left made none


@pytest.mark.chaos
async def test_a_gateway_that_dies_frees_the_slots_of_its_clients(running: Cluster) -> None:
    counts = Counts(running)
    async with running.client() as client, anyio.create_task_group() as tasks:

        async def ask() -> None:
            try:
                await client.post("/v1/chat/completions", json=request("Ramble"))
            except httpx.HTTPError:
                return

        tasks.start_soon(ask)
        await until(lambda: counts.tokens > 2)
        counts.node("gateway").kill()
        await until(lambda: not counts.slots and not counts.streams)
        assert counts.runs("cancelled") == 1
        tasks.cancel_scope.cancel()
