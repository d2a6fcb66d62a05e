"""The worker as a process on a real server: killed, stopped, started wrongly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.services.worker_kit import REPLY, Inbox, ids, job, until, write_tiny_model
from toolrail.bus.embedded import EmbeddedNats
from toolrail.bus.nats import NatsBus
from toolrail.messages import Job, encode
from toolrail.settings import WorkerSettings
from toolrail.telemetry import Telemetry

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

TREE = Path(__file__).parents[2]
MODEL = "tiny-model"
TIMEOUT_S = 60


class Bench:
    """A server, a postprocessor's end of it, and workers to start."""

    def __init__(self, url: str, bus: NatsBus, model: Path) -> None:
        self.bus = bus
        self.inbox = Inbox()
        self._url = url
        self._model = model

    @contextmanager
    def worker(self, row: dict[str, Any], *flags: str) -> Iterator[subprocess.Popen[str]]:
        script = self._model / f"{len(list(self._model.iterdir()))}.jsonl"
        script.write_text(json.dumps(row) + "\n", encoding="utf-8")
        command = [sys.executable, "-P", "-m", "services.worker", "--nats-url", self._url]
        command += ["--engine", "scripted", "--model", str(self._model), "--script", str(script)]
        command += ["--ack-wait-s", "1", "--drain-s", "5", *flags]
        process = subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": str(TREE)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    async def serving(self) -> None:
        """A worker has announced the model."""
        announced = anyio.Event()
        watch = await self.bus.models.watch(lambda _, value: value and announced.set())
        with anyio.fail_after(TIMEOUT_S):
            await announced.wait()
        await watch.stop()

    async def put(self, one: Job) -> None:
        message_id = f"{one.request_id}:{one.attempt}"
        await self.bus.work.put(MODEL, encode(one), message_id=message_id, timeout_s=5)


async def ended(process: subprocess.Popen[str]) -> int:
    """The exit status."""
    return await anyio.to_thread.run_sync(process.wait, TIMEOUT_S)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    server = EmbeddedNats(tmp_path / "nats")
    await server.start()
    settings = WorkerSettings(nats_url=server.url, ack_wait_s=1)
    bus = await NatsBus.connect(settings, telemetry=Telemetry())
    bench = Bench(server.url, bus, write_tiny_model(tmp_path / MODEL))
    await bus.subscribe(REPLY, bench.inbox.receive)
    yield bench
    await bus.close()
    await server.stop()


async def test_a_scripted_death_kills_the_process_after_its_ids_have_left(bench: Bench) -> None:
    row = {"text": "abcdef", "die_after": 3}
    with bench.worker(row) as first:
        await bench.serving()
        await bench.put(job())
        assert await ended(first) == -signal.SIGKILL
        await until(lambda: bench.inbox.text() == "abc")
    with bench.worker(row):
        await bench.put(job(attempt=1, prefix_token_ids=ids("abc")))
        await bench.inbox.until(lambda: bench.inbox.text() == "abcdef")
        assert {delta.epoch for delta in bench.inbox.deltas()[3:]} == {1}


async def test_a_job_whose_worker_dies_before_the_first_id_is_run_by_another(
    bench: Bench,
) -> None:
    row = {"text": "abc", "die_after": 0}
    with bench.worker(row) as first:
        await bench.serving()
        await bench.put(job())
        assert await ended(first) == -signal.SIGKILL
        with bench.worker(row) as second:
            await bench.inbox.ended()
            assert bench.inbox.text() == "abc"
            assert second.poll() is None


async def test_told_to_stop_it_finishes_its_streams_and_ends_well(bench: Bench) -> None:
    with bench.worker({"text": "a" * 40, "delay_ms": 10}, "--slots", "1") as process:
        await bench.serving()
        await bench.put(job("running"))
        await bench.put(job("queued"))
        await bench.inbox.until(lambda: bench.inbox.deltas("running"))
        process.send_signal(signal.SIGTERM)
        assert await ended(process) == 0
        assert (await bench.inbox.ended("running")).finish == "stop"
        assert bench.inbox.text("running") == "a" * 40
    assert bench.inbox.deltas("queued") == []
    with bench.worker({"text": "next"}):
        await bench.inbox.ended("queued")
        assert bench.inbox.text("queued") == "next"


async def test_a_wrong_flag_ends_it_at_once_with_one_line_that_names_it(bench: Bench) -> None:
    with bench.worker({}, "--tool-call-parser", "nope") as process:
        assert await ended(process) == 2
        assert process.stderr is not None
        assert "'nope' is no parser; there are" in process.stderr.read()
