"""Clients that leave, at every stage of a request: the engine's slot is free at once.

Nothing here would end by itself, so what ends was cancelled; what the engine counted proves it: its
steps, since seconds would measure the machine.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import pytest
from anyio.abc import TaskGroup

from services.worker.scripted import engine as scripted
from services.worker.scripted.engine import ScriptedEngine
from tests.cluster import Cluster, Node, cluster, until

pytestmark = pytest.mark.anyio

SCRIPT = [
    {"match": "Ponder", "text": "x", "ttft_ms": 3_600_000},
    {"match": "Ramble", "text": "on and on " * 1000, "delay_ms": 20},
    {"match": "Hello", "text": "Hi"},
]

A_SECOND: Final = 50
"""Steps that the engine makes in one: more than it may make for nobody."""


@pytest.fixture
async def flags(tmp_path: Path) -> list[str]:
    """Of a worker with one slot, so that a second request is queued."""
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    return ["--script", str(script), "--slots", "1"]


@pytest.fixture
async def engines(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedEngine]:
    """Those that workers have made."""
    made: list[ScriptedEngine] = []

    class Known(ScriptedEngine):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            made.append(self)

    monkeypatch.setattr(scripted, "ScriptedEngine", Known)
    return made


@pytest.fixture
async def running(flags: list[str], engines: list[ScriptedEngine]) -> AsyncGenerator[Cluster]:
    del engines
    async with cluster(*flags, postprocessors=1) as made:
        yield made


class Counts:
    """What the services count, and the engine of the only worker."""

    def __init__(self, running: Cluster, engines: list[ScriptedEngine]) -> None:
        self.nodes = {node.service: node for node in running.nodes}
        (self.engine,) = engines

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
    client: httpx.AsyncClient, counts: Counts, body: dict[str, Any], when: Callable[[], object]
) -> AsyncIterator[None]:
    """A client that leaves `when` that is so; the block begins then, and ends with the slot free.

    Meanwhile the engine makes fewer steps than in a second.
    """
    left = 0
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            async with client.stream("POST", "/v1/chat/completions", json=body) as response:
                async for _ in response.aiter_bytes():
                    pass

        tasks.start_soon(ask)
        await until(when)
        left = counts.engine.steps
        tasks.cancel_scope.cancel()
    yield
    assert counts.engine.steps - left <= A_SECOND


async def test_whoever_leaves_frees_the_slot_whatever_the_stage(
    running: Cluster, engines: list[ScriptedEngine]
) -> None:
    counts = Counts(running, engines)
    cancelled = 0
    async with running.client() as client:
        for stream in (True, False):
            # Before the first token.
            body = request("Ponder", stream=stream)
            async with leaving(client, counts, body, lambda: counts.slots):
                await until(lambda: not counts.slots)
            # In the middle.
            before = counts.tokens
            body = request("Ramble", stream=stream)
            async with leaving(
                client, counts, body, lambda before=before: counts.tokens > before + 2
            ):
                await until(lambda: not counts.slots)
            # One choice has the slot, the other one waits for it.
            before = counts.tokens
            body = request("Ramble", stream=stream, n=2)
            async with leaving(
                client, counts, body, lambda before=before: counts.tokens > before + 2
            ):
                await until(lambda: not counts.slots and not counts.streams)
            cancelled += 3
        await until(lambda: counts.runs("cancelled") >= cancelled)
        answer = await client.post("/v1/chat/completions", json=request("Hello"))
        assert answer.status_code == 200
        assert counts.runs("stop") == 1


@pytest.mark.chaos
async def test_whoever_leaves_the_queue_is_never_run(
    running: Cluster, engines: list[ScriptedEngine]
) -> None:
    counts = Counts(running, engines)
    async with running.client() as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.post, "/v1/chat/completions")  # a refusal costs no slot
        ponder = anyio.CancelScope()

        async def occupy() -> None:
            with ponder:
                await client.post("/v1/chat/completions", json=request("Ponder"))

        tasks.start_soon(occupy)
        await until(lambda: counts.slots)
        async with leaving(client, counts, request("Ramble"), lambda: counts.streams == 2):
            await until(lambda: counts.streams == 1)
        ponder.cancel()
        await until(lambda: not counts.slots)
        answer = await client.post("/v1/chat/completions", json=request("Hello"))
        assert answer.status_code == 200
        assert counts.tokens <= 4  # those of the answer; the one that left made none


@pytest.mark.chaos
async def test_a_gateway_that_dies_frees_the_slots_of_its_clients(
    running: Cluster, engines: list[ScriptedEngine]
) -> None:
    counts = Counts(running, engines)
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


@pytest.mark.chaos
async def test_a_background_response_that_is_cancelled_frees_its_slot(
    running: Cluster, engines: list[ScriptedEngine]
) -> None:
    counts = Counts(running, engines)
    async with running.client() as client:

        async def begin() -> str:
            body = {"model": "demo", "input": "Ramble", "background": True}
            made = await client.post("/v1/responses", json=body)
            return f"/v1/responses/{made.json()['id']}"

        first = await begin()
        await until(lambda: counts.tokens > 2)
        second = await begin()  # waits for the slot
        await until(lambda: counts.streams == 2)
        assert (await client.post(f"{second}/cancel")).json()["status"] == "cancelled"
        await until(lambda: counts.streams == 1)
        left = counts.engine.steps
        assert (await client.post(f"{first}/cancel")).json()["status"] == "cancelled"
        await until(lambda: not counts.slots and not counts.streams)
        assert counts.engine.steps - left <= A_SECOND
        assert counts.engine.started == 1  # the one that waited was never run


@pytest.mark.chaos
async def test_who_leaves_a_stream_without_an_owner_frees_its_slot(flags: list[str]) -> None:
    """Its next owner ends it, long before the worker would find that nobody reads it."""
    async with cluster(*flags) as running, running.client() as client:
        (worker,) = running.of("worker")
        async with anyio.create_task_group() as tasks:
            owner = await begun(running, client, tasks)
            owner.kill()
            tasks.cancel_scope.cancel()
        await until(lambda: not worker.count("toolrail_worker_running"))
        outcomes = {"cancelled": 1.0, "orphaned": None}
        registry = worker.runtime.metrics
        for outcome, count in outcomes.items():
            labels = {"outcome": outcome}
            assert registry.get_sample_value("toolrail_worker_runs_total", labels) == count


@pytest.mark.chaos
async def test_who_leaves_while_a_run_moves_is_never_run_again(
    flags: list[str], engines: list[ScriptedEngine]
) -> None:
    async with cluster(*flags, postprocessors=1) as running, running.client() as client:
        (gateway,) = running.of("gateway")
        (worker,) = running.of("worker")
        (owner,) = running.of("postprocessor")
        async with anyio.create_task_group() as tasks:
            await begun(running, client, tasks)
            worker.kill()
            await until(lambda: owner.count("toolrail_postprocessor_migrations_total"))
            tasks.cancel_scope.cancel()
        await until(lambda: not owner.count("toolrail_postprocessor_open_streams"))
        another = await running.start("worker", "--engine", "scripted", *flags)
        instance = another.runtime.instance
        directory = gateway.runtime.directory
        await until(lambda: [card.worker for card in directory.cards()] == [instance])
        answer = await client.post("/v1/chat/completions", json=request("Hello"))
        assert answer.status_code == 200
        assert [engine.started for engine in engines] == [1, 1]


async def begun(running: Cluster, client: httpx.AsyncClient, tasks: TaskGroup) -> Node:
    """The owner of a stream that has begun; its client leaves when `tasks` are cancelled."""

    async def ask() -> None:
        body = request("Ramble", stream=True)
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for _ in response.aiter_bytes():
                pass

    tasks.start_soon(ask)
    owner = await running.owner()
    await until(lambda: owner.count("toolrail_postprocessor_tokens_total") > 2)
    return owner
