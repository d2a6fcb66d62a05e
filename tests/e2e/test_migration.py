"""Workers that die in the middle of a call: the client sees a pause, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.cluster import Cluster, Node, cluster, until
from tests.e2e.script import hermes
from tests.e2e.test_take_over import streamed

pytestmark = pytest.mark.anyio

SCRIPT = [
    {
        "match": "Look",
        "text": f"First I look, then I call.\n{hermes('look', {'at': 'Zürich 🚀 <|x|> ' * 4})}",
        "chunk_tokens": [1, 2, 1, 3],
        "delay_ms": 2,
    },
]


@pytest.fixture
async def running(tmp_path: Path) -> AsyncGenerator[Cluster]:
    """Two workers, one postprocessor."""
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    flags = ("--script", str(script), "--drain-s", "0.1")
    async with cluster(*flags, postprocessors=1) as made:
        await made.start("worker", "--engine", "scripted", *flags)
        directory = made.of("postprocessor")[0].runtime.directory
        await until(lambda: len(directory.instances("worker")) == 2)
        yield made


async def writing(running: Cluster) -> Node:
    """The worker that has a run."""
    found: list[Node] = []

    def is_one() -> bool:
        found[:] = [node for node in running.of("worker") if node.count("toolrail_worker_running")]
        return bool(found)

    await until(is_one)
    return found[0]


def postprocessor(running: Cluster) -> Node:
    (found,) = running.of("postprocessor")
    return found


@pytest.mark.exhaustive
async def test_a_stream_whose_worker_is_killed_goes_on_with_another(running: Cluster) -> None:
    async with running.client() as client:
        whole = await streamed(client, None)

        async def kill() -> None:
            (await writing(running)).kill()

        assert await streamed(client, kill) == whole
        moves = postprocessor(running).count("toolrail_postprocessor_migrations_total")
        assert moves == 1
        assert postprocessor(running).count("toolrail_postprocessor_open_streams") == 0


@pytest.mark.chaos
async def test_a_worker_that_stops_hands_over_what_it_cannot_finish(running: Cluster) -> None:
    async with running.client() as client:
        whole = await streamed(client, None, n=3)

        async def stop() -> None:
            (await writing(running)).stop()

        assert await streamed(client, stop, n=3) == whole
        assert postprocessor(running).count("toolrail_postprocessor_open_streams") == 0
