"""How long an engine's slot stays taken after its client has left, at each stage of a request.

    python -m benchmarks.cancel                  # the scripted engine, 20 ms a step
    python -m benchmarks.cancel --engine vllm    # a real one, with the small demo model

Real processes and a real NATS server. A client leaves, or cancels, and from that moment the worker
is asked again and again how many slots are taken, until none is. Ends with status 1 when that ever
took more than a second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
import httpx
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.soak import Status, stack
from toolrail.bus import subjects
from toolrail.bus.nats import NatsBus
from toolrail.service.liveness import METRICS
from toolrail.settings import CommonSettings

LIMIT_S: Final = 1.0
PATIENCE_S: Final = 60.0
CHUNKS: Final = 5
"""Of a stream, before its client leaves in the middle."""

SCRIPT: Final = (
    {"match": "Ponder", "text": "x", "ttft_ms": 3_600_000},
    {"match": "Ramble", "text": "on and on " * 1000},
)


class Worker:
    """What the only worker says of itself, asked over the bus."""

    def __init__(self, bus: NatsBus, instance: str) -> None:
        self._bus = bus
        self._subject = subjects.ping(instance)

    async def taken(self) -> float:
        """How many of its slots are taken."""
        text = await self._bus.request(self._subject, METRICS, timeout_s=PATIENCE_S)
        return sum(
            sample.value
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
            if sample.name == "toolrail_worker_running"
        )

    async def until_taken(self, slots: int) -> None:
        """Wait until so many are."""
        with anyio.fail_after(PATIENCE_S):
            while await self.taken() != slots:
                pass


def request(text: str, **more: Any) -> dict[str, Any]:
    """One that does not end by itself while it is measured."""
    messages = [{"role": "user", "content": text}]
    usual = {"model": "demo", "messages": messages, "max_tokens": 1500, "ignore_eos": True}
    return usual | more


@asynccontextmanager
async def streaming(client: httpx.AsyncClient, **more: Any) -> AsyncIterator[None]:
    """A stream of which a little was read inside the block; its client is gone after it."""
    body = request("Ramble", stream=True, **more)
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200, await response.aread()
        lines = response.aiter_lines()
        seen = 0
        while seen < CHUNKS:
            seen += (await anext(lines)).startswith("data: {")
        yield


async def before_the_first_token(client: httpx.AsyncClient, worker: Worker) -> float:
    """Leaves as soon as a slot is taken; the moment of that."""
    left = 0.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_ask, client, request("Ponder"))
        await worker.until_taken(1)
        left = time.perf_counter()
        tasks.cancel_scope.cancel()
    return left


async def _ask(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    await client.post("/v1/chat/completions", json=body)


async def in_the_middle(client: httpx.AsyncClient, worker: Worker) -> float:
    """Leaves a stream."""
    del worker
    async with streaming(client):
        return time.perf_counter()


async def two_choices(client: httpx.AsyncClient, worker: Worker) -> float:
    """Leaves a stream of two choices."""
    del worker
    async with streaming(client, n=2):
        return time.perf_counter()


async def background(client: httpx.AsyncClient, worker: Worker) -> float:
    """Cancels a background response by a call."""
    body = {"model": "demo", "input": "Ramble", "background": True, "max_output_tokens": 1500}
    made = await client.post("/v1/responses", json=body)
    assert made.status_code == 200, made.text
    await worker.until_taken(1)
    left = time.perf_counter()
    cancelled = await client.post(f"/v1/responses/{made.json()['id']}/cancel")
    assert cancelled.status_code == 200, cancelled.text
    return left


STAGES: Final[dict[str, Callable[[httpx.AsyncClient, Worker], Awaitable[float]]]] = {
    "before the first token": before_the_first_token,
    "in the middle": in_the_middle,
    "two choices": two_choices,
    "cancel call": background,
}


async def measured(status: Status, times: int) -> dict[str, list[float]]:
    """Seconds from each leave to the slot's freedom, by stage."""
    (instance,) = (one.instance for one in status.processes if one.instance.startswith("worker"))
    bus = await NatsBus.connect(CommonSettings(nats_url=status.nats_url, instance="benchmark"))
    worker = Worker(bus, instance)
    found: dict[str, list[float]] = {}
    try:
        for stage, leave in STAGES.items():
            for _ in range(times):
                # A client of its own, whose connections are closed when it leaves.
                async with httpx.AsyncClient(
                    base_url=status.base_url, timeout=PATIENCE_S
                ) as client:
                    left = await leave(client, worker)
                await worker.until_taken(0)
                found.setdefault(stage, []).append(time.perf_counter() - left)
    finally:
        await bus.close()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cancel", description=__doc__)
    parser.add_argument("--engine", choices=("scripted", "vllm"), default="scripted")
    parser.add_argument("--times", type=int, default=25, help="at each stage")
    parser.add_argument("--json", type=Path, help="keep the numbers in this file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="toolrail-cancel-") as folder:
        script = Path(folder) / "script.jsonl"
        script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
        flags = ["--engine", options.engine]
        if options.engine == "scripted":
            flags += ["--script", str(script), "--scripted-step-ms", "20"]
        with stack(1, *flags) as status:
            found = anyio.run(measured, status, options.times)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    sys.stdout.write(f"{'ms until the slot is free':28}{'median':>8}{'p90':>8}{'most':>8}\n")
    for stage, seconds in found.items():
        deciles = statistics.quantiles(seconds, n=10, method="inclusive")
        row = (statistics.median(seconds), deciles[-1], max(seconds))
        sys.stdout.write(f"{stage:28}" + "".join(f"{1e3 * each:>8.0f}" for each in row) + "\n")
    return 0 if max(map(max, found.values())) <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
