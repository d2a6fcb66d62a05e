"""Real processes: workers and the bus are killed under running streams, and no client is told."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import anyio.lowlevel
import httpx
import pytest

from tests import stack as stacks
from tests.e2e.script import hermes

pytestmark = [pytest.mark.anyio, pytest.mark.chaos]

STREAMS: Final = 16
TIMEOUT_S: Final = 120.0
SCRIPT: Final = [
    {
        "match": "Look",
        "text": f"I look, then I call.\n{hermes('look', {'at': 'Zürich 🚀 <|x|> ' * 5})}",
        "chunk_tokens": [1, 2],
        "delay_ms": 30,
    },
    {"match": "Late", "text": "Here I am.", "ttft_ms": 2000},
    {"match": "Deadly", "text": "You will not see that I died.", "die_after": 4},
]
TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
        },
    }
]


@dataclass
class Heard:
    """A stream as its client folds it."""

    content: str = ""
    arguments: str = ""
    call_ids: set[str] = field(default_factory=set)
    logprobs: int = 0
    finish: str = ""
    usage: Any = None
    error: str = ""

    @property
    def answer(self) -> Any:
        """What must not depend on who wrote it."""
        return (
            self.content,
            self.arguments,
            len(self.call_ids),
            self.logprobs,
            self.finish,
            self.usage,
            self.error,
        )

    def add(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk:
            self.error = chunk["error"]["code"]
            return
        self.usage = chunk["usage"] or self.usage
        for choice in chunk["choices"]:
            self.content += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or ():
                self.call_ids |= {call["id"]} if "id" in call else set()
                self.arguments += call["function"]["arguments"]
            self.logprobs += len((choice["logprobs"] or {}).get("content") or ())
            self.finish = choice["finish_reason"] or self.finish


def up(folder: Any, *flags: str) -> Any:
    script = folder / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    usual = [
        "--replicas",
        "worker=2,postprocessor=2",
        "--script",
        str(script),
        "--slots",
        str(STREAMS),
    ]
    # The workers': a job whose worker is gone comes to another soon, however often that takes.
    usual += ["--ack-wait-s", "1", "--max-deliveries", "100"]
    # The postprocessors': a worker that lives sends again what another one owned, however late.
    patient = {"TOOLRAIL_ACK_WAIT_S": "60"}
    return stacks.running(folder, *stacks.scripted(*usual, *flags), environment=patient)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stacks.Stack]:
    with up(tmp_path_factory.mktemp("deaths")) as stack:
        yield stack


@asynccontextmanager
async def client_of(stack: stacks.Stack) -> AsyncIterator[httpx.AsyncClient]:
    """A client, once there are two of each that are killed here, and no others."""
    async with httpx.AsyncClient(
        base_url=stack.base_url, timeout=TIMEOUT_S, trust_env=False
    ) as client:
        with anyio.fail_after(TIMEOUT_S):
            while True:
                alive = {p["instance"] for p in stack.status["processes"]}
                known = (await client.get("/health")).json()["instances"]
                if all(
                    len(known[service]) == 2
                    and alive >= {one["instance"] for one in known[service]}
                    for service in ("worker", "postprocessor")
                ):
                    break
                await anyio.sleep(0.05)
        yield client


async def listen(client: httpx.AsyncClient, word: str, heard: Heard) -> None:
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": word}],
        "tools": TOOLS,
        "stream": True,
        "stream_options": {"include_usage": True},
        "logprobs": True,
    }
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200, await response.aread()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                heard.add(json.loads(line.removeprefix("data: ")))


async def one(client: httpx.AsyncClient, word: str) -> Heard:
    heard = Heard()
    await listen(client, word, heard)
    return heard


async def many(
    client: httpx.AsyncClient, word: str, then: Callable[[Sequence[Heard]], Any]
) -> Sequence[Heard]:
    """As many streams as all workers have slots, and what happens meanwhile."""
    heard = [Heard() for _ in range(STREAMS)]
    with anyio.fail_after(TIMEOUT_S):
        async with anyio.create_task_group() as tasks:
            for each in heard:
                tasks.start_soon(listen, client, word, each)
            await then(heard)
    return heard


def kill(stack: stacks.Stack, count: int) -> None:
    for pid in stack.pids("worker")[:count]:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("deaths", [1, 2])
async def test_streams_of_killed_workers_are_finished_by_others(
    stack: stacks.Stack, deaths: int
) -> None:
    async with client_of(stack) as client:
        whole = await one(client, "Look")
        assert whole.finish == "tool_calls"

        async def strike(heard: Sequence[Heard]) -> None:
            while not all(each.arguments for each in heard):  # noqa: ASYNC110 (nobody tells)
                await anyio.sleep(0.01)
            kill(stack, deaths)

        heard = await many(client, "Look", strike)
    assert [each.answer for each in heard] == [whole.answer] * STREAMS


async def test_a_worker_that_hangs_and_comes_back_disturbs_nobody(stack: stacks.Stack) -> None:
    """Its registration lapses, its streams move; what it writes when it wakes up counts no more."""
    async with client_of(stack) as client:
        whole = await one(client, "Look")
        hung = stack.pids("worker")[0]

        async def strike(heard: Sequence[Heard]) -> None:
            while not all(each.arguments for each in heard):  # noqa: ASYNC110 (nobody tells)
                await anyio.sleep(0.01)
            os.kill(hung, signal.SIGSTOP)

        try:
            heard = await many(client, "Look", strike)
        finally:
            os.kill(hung, signal.SIGCONT)
        assert [each.answer for each in heard] == [whole.answer] * STREAMS
    async with client_of(stack) as client:
        again = await many(client, "Look", lambda _: anyio.lowlevel.checkpoint())
    assert [each.answer for each in again] == [whole.answer] * STREAMS


async def test_streams_of_a_killed_postprocessor_are_finished_by_another(
    stack: stacks.Stack,
) -> None:
    async with client_of(stack) as client:
        whole = await one(client, "Look")

        async def strike(heard: Sequence[Heard]) -> None:
            while not all(each.arguments for each in heard):  # noqa: ASYNC110 (nobody tells)
                await anyio.sleep(0.01)
            os.kill(stack.pids("postprocessor")[0], signal.SIGKILL)

        heard = await many(client, "Look", strike)
    assert [each.answer for each in heard] == [whole.answer] * STREAMS


async def test_jobs_of_workers_that_die_before_the_first_token_are_run_by_others(
    stack: stacks.Stack,
) -> None:
    async with client_of(stack) as client:
        whole = await one(client, "Late")

        async def strike(heard: Sequence[Heard]) -> None:
            del heard
            await anyio.sleep(1)  # most jobs have a worker by now; none a token
            kill(stack, 2)

        heard = await many(client, "Late", strike)
    assert [each.answer for each in heard] == [whole.answer] * STREAMS


@pytest.mark.parametrize("hangs_s", [0, 3], ids=["restarted", "hangs"])
async def test_streams_outlive_a_restart_of_the_bus_or_end_in_one_clean_error(
    stack: stacks.Stack, hangs_s: float
) -> None:
    async with client_of(stack) as client:
        whole = await one(client, "Look")

        async def strike(heard: Sequence[Heard]) -> None:
            while not all(each.arguments for each in heard):  # noqa: ASYNC110 (nobody tells)
                await anyio.sleep(0.01)
            (server,) = stack.pids("nats")
            if not hangs_s:
                os.kill(server, signal.SIGKILL)
                return
            os.kill(server, signal.SIGSTOP)
            try:
                await anyio.sleep(hangs_s)
            finally:
                os.kill(server, signal.SIGCONT)

        heard = await many(client, "Look", strike)
    ends = Counter("whole" if each.answer == whole.answer else each.error for each in heard)
    assert set(ends) <= {"whole", "lost", "unavailable"}, ends
    for each in heard:
        assert whole.content.startswith(each.content)
        assert whole.arguments.startswith(each.arguments)
        assert len(each.call_ids) <= 1
    async with client_of(stack) as client:  # and everything works as before
        again = await many(client, "Look", lambda _: anyio.lowlevel.checkpoint())
    assert [each.answer for each in again] == [whole.answer] * STREAMS


async def test_past_the_limit_there_is_one_clean_error(tmp_path: Any) -> None:
    with up(tmp_path, "--migration-limit", "0") as stack:
        async with client_of(stack) as client:
            heard = await one(client, "Deadly")
    assert heard.error == "lost"
    assert "You will not see that I died.".startswith(heard.content)
    assert not heard.finish
