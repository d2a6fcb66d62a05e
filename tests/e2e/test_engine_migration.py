"""Two real engines, one of them killed in the middle of its calls: the calls go on, valid."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx
import jsonschema
import msgspec
import pytest

from benchmarks.processes import free_port
from tests import stack as stacks
from tests.e2e.sse import Turn, stream
from tests.e2e.tools import WORD, array, ask, closed, tool
from toolrail.cli import child

pytestmark = pytest.mark.engine

AT_ONCE: Final = 3
ROUNDS: Final = 5
SCHEMA: Final = closed(words=array(WORD, 6, 8), sure={"type": "boolean"})
TIMEOUT_S: Final = 600.0


class Second:
    """A second worker of the same model on the same bus."""

    def __init__(self, engine: stacks.Stack, folder: Path) -> None:
        port = free_port()
        self._metrics = f"http://127.0.0.1:{port}/metrics"
        self._log = folder / "second.log"
        # Dies with the tests, whatever happens to them.
        shim = [sys.executable, "-I", "-S", child.__file__, str(os.getpid())]
        command = [sys.executable, "-P", "-m", "services.worker", "--instance", "second"]
        command += ["--nats-url", engine.status["nats_url"], "--model", "demo-think"]
        command += ["--metrics-port", str(port), "--kv-cache-bytes", str(512 << 20)]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*shim, *command],
                env=os.environ | {"PYTHONPATH": str(stacks.ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def running(self) -> float:
        """How many runs it has now."""
        found = re.search(r"^toolrail_worker_running (\S+)", httpx.get(self._metrics).text, re.M)
        assert found is not None
        return float(found[1])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def client(engine: stacks.Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=engine.base_url, timeout=TIMEOUT_S, trust_env=False) as client:
        yield client


@pytest.fixture
def second(engine: stacks.Stack, client: httpx.Client, tmp_path: Path) -> Iterator[Second]:
    made = Second(engine, tmp_path)
    try:
        deadline = time.monotonic() + stacks.ENGINE_START_S
        while "second" not in client.get("/health").text:
            assert made.process.poll() is None, made.tail()
            assert time.monotonic() < deadline, made.tail()
            time.sleep(0.2)
        yield made
    finally:
        made.kill()


def request(seed: int) -> dict[str, Any]:
    asked = ask(
        f"Name some words, list {seed}.",
        tools=[tool("words", SCHEMA)],
        tool_choice="required",
        max_tokens=200,
        stream_options={"include_usage": True},
    )
    # The last two must be as if nothing had happened: a generator's state, and counts of tokens.
    drawn = {"temperature": 0.0} if seed == 0 else {"temperature": 0.8, "seed": seed}
    counted = {"frequency_penalty": 0.5} if seed == 2 else {}
    return {**asked, "model": "demo-think", **drawn, **counted}


def all_at_once(pool: ThreadPoolExecutor, client: httpx.Client) -> list[Future[Turn]]:
    return [pool.submit(stream, client, request(seed)) for seed in range(AT_ONCE)]


def heart(turn: Turn) -> Any:
    """What does not depend on who wrote it, or on whose cache held the prompt."""
    calls = [(call.name, call.text) for call in turn.calls]
    assert turn.usage is not None
    return calls, turn.finish_reason, turn.usage["completion_tokens"], turn.usage["prompt_tokens"]


def test_calls_of_a_killed_engine_are_finished_by_another_as_they_would_have_been(
    engine: stacks.Stack, client: httpx.Client, second: Second
) -> None:
    del engine
    with ThreadPoolExecutor(AT_ONCE) as pool:
        whole = [future.result(TIMEOUT_S) for future in all_at_once(pool, client)]
        for _ in range(ROUNDS):
            futures = all_at_once(pool, client)
            while not all(future.done() for future in futures):
                if second.running():
                    time.sleep(1)  # some ids each
                    if second.running():
                        second.kill()
                        break
                time.sleep(0.05)
            turns = [future.result(TIMEOUT_S) for future in futures]
            if second.process.poll() is not None:
                break
        assert second.process.poll() is not None, "it was never given a call"
    for turn in turns:
        (call,) = turn.calls
        jsonschema.validate(msgspec.json.decode(call.text), SCHEMA)
    assert [heart(turn) for turn in turns] == [heart(turn) for turn in whole]
