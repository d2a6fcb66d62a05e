"""API keys share the workers by weight: two gateways, two postprocessors, one worker of four slots.

Requests that never begin hold all slots until everybody waits, and leave then; so what is looked at
is an order and no time.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import httpx
import pytest
from anyio.abc import TaskGroup

from tests import stack as stacks
from tests.chaos.inside import Inside, inside
from tests.e2e.test_keys import made

pytestmark = [pytest.mark.nats, pytest.mark.anyio]

SLOTS: Final = 4
SCRIPT: Final = (
    {"match": "Occupy", "text": "x", "ttft_ms": 3_600_000},
    {"match": "Answer", "text": "one two three four", "delay_ms": 25},
)
WEIGHTS: Final = {"occupant": 1, "one": 1, "three": 3, "idle": 1}
PATIENCE_S: Final = 240.0
WAITING: Final = "toolrail_postprocessor_waiting_streams"
RUNNING: Final = "toolrail_worker_running"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    keys = {
        owner: made(file, "--owner", owner, "--weight", str(weight))
        for owner, weight in WEIGHTS.items()
    }
    keys["pair"] = made(file, "--owner", "pair", "--concurrent-requests", "2")
    return file, keys


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory, keys: tuple[Path, dict[str, str]]
) -> Iterator[stacks.Stack]:
    folder = tmp_path_factory.mktemp("fairness")
    script = folder / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    flags = stacks.scripted("--script", str(script), "--slots", str(SLOTS))
    several = ("--replicas", "gateway=2,postprocessor=2", "--api-keys-file", str(keys[0]))
    environment = {"TOOLRAIL_MAX_WAITING_PER_SLOT": "100"}
    with stacks.running(folder, *flags, *several, environment=environment) as running:
        yield running


class Crowd:
    """Everybody who asks. `order`: the owners of the answers, as they come."""

    def __init__(
        self, client: httpx.AsyncClient, see: Inside, keys: dict[str, str], tasks: TaskGroup
    ) -> None:
        self.order: list[str] = []
        self.occupants = anyio.CancelScope()
        self._client = client
        self._see = see
        self._keys = keys
        self._tasks = tasks

    def comes(self, owner: str, count: int = 1) -> None:
        """So many of `owner` ask now."""
        for _ in range(count):
            self._tasks.start_soon(self.ask, owner, "Answer")

    async def ask(self, owner: str, text: str) -> None:
        response = await self._client.post(
            "/v1/chat/completions",
            json={"model": "demo", "messages": [{"role": "user", "content": text}]},
            headers={"authorization": f"Bearer {self._keys[owner]}"},
        )
        assert response.status_code == 200, response.text
        self.order.append(owner)

    async def occupy(self) -> None:
        """Hold all slots until `occupants` is cancelled."""
        with self.occupants:
            async with anyio.create_task_group() as tasks:
                for _ in range(SLOTS):
                    tasks.start_soon(self.ask, "occupant", "Occupy")

    async def until(self, service: str, series: str, value: float) -> None:
        found = None
        with anyio.move_on_after(PATIENCE_S) as patience:
            while (found := await self._see.total(service, series)) != value:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert not patience.cancelled_caught, f"{series} is {found}, not {value}"


@asynccontextmanager
async def crowd(running: stacks.Stack, keys: dict[str, str]) -> AsyncIterator[Crowd]:
    """All slots are held inside the block; all who ask have their answer after it."""
    limits = httpx.Limits(max_connections=1000)
    async with (
        inside(running) as see,
        httpx.AsyncClient(base_url=running.base_url, timeout=PATIENCE_S, limits=limits) as client,
        anyio.create_task_group() as tasks,
    ):
        made_crowd = Crowd(client, see, keys, tasks)
        tasks.start_soon(made_crowd.occupy)
        await made_crowd.until("worker", RUNNING, SLOTS)
        yield made_crowd
        made_crowd.occupants.cancel()


async def test_owners_are_served_by_weight_and_who_waited_for_nothing_is_next(
    stack: stacks.Stack, keys: tuple[Path, dict[str, str]]
) -> None:
    each, looked_at = 48, 40
    async with crowd(stack, keys[1]) as people:
        people.comes("idle", each)  # from these it is known how long answers are
    async with crowd(stack, keys[1]) as people:
        people.comes("one", each)
        people.comes("three", each)
        await people.until("postprocessor", WAITING, SLOTS + 2 * each)
        people.comes("idle")
        await people.until("postprocessor", WAITING, SLOTS + 2 * each + 1)
    order = people.order
    assert sorted(order) == sorted(["one", "three"] * each + ["idle"])
    # A quarter and three quarters, but for those that were on their way before anybody waited, for
    # what ran side by side, and for each postprocessor's own share of the backlogs.
    first = [owner for owner in order if owner != "idle"][:looked_at]
    assert abs(first.count("one") - looked_at / 4) <= 7, first
    assert order.index("idle") < 4 * SLOTS, order


async def test_who_leaves_the_line_is_never_run(
    stack: stacks.Stack, keys: tuple[Path, dict[str, str]]
) -> None:
    async with crowd(stack, keys[1]) as people:
        async with anyio.create_task_group() as leaving:
            for _ in range(20):
                leaving.start_soon(people.ask, "one", "Answer")
            await people.until("postprocessor", WAITING, SLOTS + 20)
            people.comes("three")
            await people.until("postprocessor", WAITING, SLOTS + 21)
            leaving.cancel_scope.cancel()
        await people.until("postprocessor", WAITING, SLOTS + 1)
    assert people.order == ["three"]


async def test_a_postprocessor_that_dies_with_a_full_room_loses_nobody(
    stack: stacks.Stack, keys: tuple[Path, dict[str, str]]
) -> None:
    each = 20
    async with crowd(stack, keys[1]) as people:
        people.comes("one", each)
        people.comes("three", each)
        await people.until("postprocessor", WAITING, SLOTS + 2 * each)
        os.kill(stack.pids("postprocessor")[0], signal.SIGKILL)
    assert sorted(people.order) == sorted(["one", "three"] * each)


async def test_a_limit_holds_for_both_gateways_together(
    stack: stacks.Stack, keys: tuple[Path, dict[str, str]]
) -> None:
    """Each gateway alone would let one more in: the two that run are at one or at both of them."""
    headers = {"authorization": f"Bearer {keys[1]['pair']}", "connection": "close"}

    async def status(text: str) -> int:
        body = {"model": "demo", "messages": [{"role": "user", "content": text}]}
        async with httpx.AsyncClient(base_url=stack.base_url, timeout=PATIENCE_S) as client:
            response = await client.post("/v1/chat/completions", json=body, headers=headers)
            return response.status_code

    async with inside(stack) as see, anyio.create_task_group() as tasks:
        with anyio.fail_after(PATIENCE_S):
            while await see.total("worker", RUNNING):  # noqa: ASYNC110 (what others left ends)
                await anyio.sleep(0.05)
        for number in range(2):
            tasks.start_soon(status, "Occupy")
            with anyio.fail_after(PATIENCE_S):
                while await see.total("worker", RUNNING) <= number:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
        refused = 0
        with anyio.fail_after(PATIENCE_S):
            while refused < 12:  # on new connections, which come to either
                refused = refused + 1 if await status("Answer") == 429 else 0
        tasks.cancel_scope.cancel()
    with anyio.fail_after(PATIENCE_S):
        while await status("Answer") != 200:  # noqa: ASYNC110
            await anyio.sleep(0.05)
