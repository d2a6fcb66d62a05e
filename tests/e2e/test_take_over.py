"""Postprocessors that die in the middle of an answer: the client sees nothing of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.cluster import Cluster, Node, cluster, until
from tests.e2e.script import hermes
from toolrail.bus.memory import MemoryBroker

pytestmark = pytest.mark.anyio

TEXT = "First I look, then I call. " * 4
SCRIPT = [
    {
        "match": "Look",
        "text": f"{TEXT}\n{hermes('look', {'at': 'Zürich 🚀 <|x|> ' * 6})}",
        "chunk_tokens": [1, 2, 1, 3],
        "delay_ms": 2,
    },
]
STREAMS_ENDED = "toolrail_postprocessor_streams_total"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
        },
    }
]


@pytest.fixture
async def script(tmp_path: Path) -> str:
    file = tmp_path / "script.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    return str(file)


@pytest.fixture
async def running(script: str) -> AsyncGenerator[Cluster]:
    async with cluster("--script", script) as made:
        yield made


def request(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Look"}]
    usual = {"model": "demo", "messages": messages, "tools": TOOLS, "logprobs": True}
    return usual | {"top_logprobs": 2} | fields


def comparable(answer: dict[str, Any]) -> Any:
    """An answer without what no two answers share."""
    text = json.dumps({"choices": answer["choices"], "usage": answer["usage"]})
    for choice in answer["choices"]:
        for call in choice["message"].get("tool_calls") or ():
            text = text.replace(call["id"], "call")
    return json.loads(text)


async def unstreamed(client: httpx.AsyncClient, **fields: Any) -> Any:
    response = await client.post("/v1/chat/completions", json=request(**fields))
    assert response.status_code == 200, response.text
    return comparable(response.json())


async def streamed(client: httpx.AsyncClient, after: Any, **fields: Any) -> Any:
    """The folded stream; `after` is awaited once, when some of it has come."""
    choices: dict[int, dict[str, Any]] = {}
    usage: Any = None
    body = request(stream=True, stream_options={"include_usage": True}, **fields)
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line.removeprefix("data: "))
            assert "error" not in chunk, chunk
            usage = chunk["usage"] or usage
            for choice in chunk["choices"]:
                fold(choices.setdefault(choice["index"], {}), choice)
            if after is not None and len(choices.get(0, {}).get("content", "")) > 20:
                await after()
                after = None
    assert usage is not None
    return [choices[index] for index in sorted(choices)], usage


def fold(into: dict[str, Any], choice: dict[str, Any]) -> None:
    delta = choice["delta"]
    into["content"] = into.get("content", "") + (delta.get("content") or "")
    for call in delta.get("tool_calls") or ():
        into["calls"] = into.get("calls", "") + (call["function"].get("name") or "")
        into["calls"] += call["function"]["arguments"]
        into["ids"] = into.get("ids", 0) + ("id" in call)
    into.setdefault("logprobs", []).extend((choice["logprobs"] or {}).get("content") or ())
    into["finish_reason"] = choice["finish_reason"] or into.get("finish_reason")


async def test_a_stream_goes_on_exactly_where_it_was(running: Cluster) -> None:
    async with running.client() as client:
        whole = await streamed(client, None, n=2)
        (gateway,) = running.of("gateway")

        async def kill() -> None:
            (await running.owner()).kill()

        assert await streamed(client, kill, n=2) == whole
        assert gateway.count("toolrail_take_overs_total") == 1
        (left,) = running.of("postprocessor")
        assert left.count("toolrail_postprocessor_taken_over_total") == 1
        assert left.count("toolrail_postprocessor_open_streams") == 0
        (worker,) = running.of("worker")
        assert worker.count("toolrail_worker_runs_total") == 4  # nothing was generated twice


@pytest.mark.chaos
async def test_an_answer_that_is_not_streamed_is_whole_and_counted_once(running: Cluster) -> None:
    async with running.client() as client:
        whole = await unstreamed(client)
        (gateway,) = running.of("gateway")
        counted = gateway.count("toolrail_tokens_total")
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await unstreamed(client))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            (await running.owner()).kill()
        assert answers == [whole]
        assert gateway.count("toolrail_tokens_total") == 2 * counted


@pytest.mark.chaos
async def test_without_another_owner_the_stream_waits_for_one(script: str) -> None:
    async with cluster("--script", script, postprocessors=1) as alone, alone.client() as client:
        whole = await streamed(client, None)

        async def replace() -> None:
            (await alone.owner()).kill()
            await until(lambda: not alone.of("postprocessor"))
            await alone.start("postprocessor")

        assert await streamed(client, replace) == whole


@pytest.mark.chaos
async def test_a_postprocessor_that_stops_hands_on_what_it_cannot_finish(running: Cluster) -> None:
    async with running.client() as client:
        whole = await streamed(client, None)

        async def stop() -> None:
            (await running.owner()).stop()

        assert await streamed(client, stop) == whole


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("to", "lost"),
    [
        pytest.param(".post.", lambda number: number % 5 == 0, id="every fifth of the worker's"),
        pytest.param(".out.", lambda number: number in (9, 40), id="two of the postprocessor's"),
    ],
)
async def test_messages_that_are_lost_are_not_missed(
    running: Cluster, to: str, lost: Callable[[int], bool]
) -> None:
    async with running.client() as client:
        whole = await streamed(client, None)
        with lossy(running.broker, to, lost):
            assert await streamed(client, None) == whole


@pytest.mark.chaos
@pytest.mark.parametrize("heard", [0, 4], ids=["all of it", "its end"])
@pytest.mark.parametrize(
    ("to", "of", "ended"),
    [
        pytest.param(".post.", "worker", "toolrail_worker_runs_total", id="worker"),
        pytest.param(".out.", "postprocessor", STREAMS_ENDED, id="postprocessor"),
    ],
)
async def test_an_answer_whose_end_is_lost_is_not_waited_for_until_its_deadline(
    running: Cluster, to: str, of: str, ended: str, heard: int
) -> None:
    """A connection that is lost takes all with it that was said meanwhile, also the last word."""
    async with running.client() as client:
        whole = await streamed(client, None)
        async with deaf(running, to, of, ended, heard):
            assert await streamed(client, None) == whole


@pytest.mark.chaos
@pytest.mark.parametrize("heard", [0, 3], ids=["all of it", "its end"])
@pytest.mark.parametrize(
    "fields", [{"stop": ["\n<tool"]}, {"parallel_tool_calls": False}], ids=["stop", "one call"]
)
async def test_an_answer_that_ends_before_the_engine_does_can_be_sent_again(
    running: Cluster, fields: dict[str, Any], heard: int
) -> None:
    async with running.client() as client:
        whole = await streamed(client, None, **fields)
        async with deaf(running, ".out.", "postprocessor", STREAMS_ENDED, heard):
            assert await streamed(client, None, **fields) == whole


@pytest.mark.chaos
async def test_an_owner_that_was_cut_off_and_comes_back_disturbs_nobody(running: Cluster) -> None:
    """Another has its stream by then, and what told it so was lost as well."""
    async with running.client() as client:
        whole = await streamed(client, None)
        owners: list[Node] = []

        async def cut_off() -> None:
            owners.append(await running.owner())
            with isolated(running.broker, owners[0]):
                (gateway,) = running.of("gateway")
                await until(lambda: gateway.count("toolrail_take_overs_total"))

        assert await streamed(client, cut_off) == whole
        await until(lambda: not owners[0].count("toolrail_postprocessor_open_streams"))
        (worker,) = running.of("worker")
        assert worker.count("toolrail_worker_runs_total") == 2


@asynccontextmanager
async def deaf(running: Cluster, to: str, of: str, ended: str, heard: int) -> AsyncGenerator[None]:
    """But for the first so many messages on such subjects all are lost, until `of` has ended."""

    def count() -> float:
        return sum(node.count(ended) for node in running.of(of))

    before, is_deaf = count(), True

    async def hear_again() -> None:
        nonlocal is_deaf
        await until(lambda: count() > before)
        await anyio.sleep(0.05)  # what was said last is on its way
        is_deaf = False

    with lossy(running.broker, to, lambda number: is_deaf and number > heard):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hear_again)
            yield
    assert not is_deaf


@contextmanager
def isolated(broker: MemoryBroker, node: Node) -> Iterator[None]:
    """Nothing that `node` says arrives, and nobody finds it."""
    route, name = broker.route, node.runtime.instance
    instance = f".{name}"

    def forget(message: Any) -> bool:
        return False if message.subject.endswith(instance) else route(message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker, "route", forget)
        patch.setattr(node.runtime.bus, "_send", lambda _: True)
        yield


@contextmanager
def lossy(broker: MemoryBroker, to: str, lost: Callable[[int], bool]) -> Iterator[None]:
    """The bus loses those messages on such subjects, counted from 1, of which `lost` says so."""
    route = broker.route
    seen = itertools.count(1)

    def forget(message: Any) -> bool:
        return (to in message.subject and lost(next(seen))) or route(message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker, "route", forget)
        yield
