"""`toolrail up` as processes: what it promises to whoever runs it, and to clients meanwhile."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import stack as stacks
from tests.e2e.tools import SCHEMAS, ask, tool
from tests.processes import alive, descendants, until_dead

pytestmark = pytest.mark.nats

FLAGS = stacks.scripted("--obey-tag")
CALL = ask(tools=[tool("point", SCHEMAS["nested_object"])], tool_choice="required", max_tokens=200)
SERVICES = ("gateway", "preprocessor", "postprocessor", "worker", "nats")


def call(client: httpx.Client) -> dict[str, Any]:
    """One answered tool call."""
    response = client.post("/v1/chat/completions", json=CALL)
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    return choice["message"]["tool_calls"][0]["function"]


class Load:
    """Clients that ask again and again until told to stop; failures are counted, not raised."""

    def __init__(self, stack: stacks.Stack, clients: int = 4) -> None:
        self._stack = stack
        self._stop = threading.Event()
        self._answered = threading.Condition()
        self._answers = 0
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def _ask(self) -> None:
        while not self._stop.is_set():
            try:
                with self._stack.client() as client:
                    call(client)
            except (httpx.HTTPError, AssertionError):
                continue
            with self._answered:
                self._answers += 1
                self._answered.notify_all()

    def wait_for_answers(self, more: int) -> None:
        """Until this many further requests have succeeded."""
        with self._answered:
            wanted = self._answers + more
            assert self._answered.wait_for(lambda: self._answers >= wanted, 60), self._stack.tail()

    @contextmanager
    def running(self) -> Iterator[Load]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()


@pytest.mark.parametrize("service", SERVICES)
def test_a_killed_service_comes_back_under_load(processes: stacks.Stack, service: str) -> None:
    (pid,) = processes.pids(service)
    with Load(processes).running() as load:
        load.wait_for_answers(4)
        os.kill(pid, signal.SIGKILL)
        until_dead(pid)
        # More than are in flight: these were asked after the kill.
        load.wait_for_answers(12)
    (now,) = processes.pids(service)
    assert now != pid


def test_the_status_file_lists_the_processes_themselves(processes: stacks.Stack) -> None:
    status = processes.status
    assert sorted(p["service"] for p in status["processes"]) == sorted(SERVICES)
    assert len({p["instance"] for p in status["processes"]}) == len(SERVICES)
    started = set(descendants(processes.process.pid))
    for process in status["processes"]:
        assert process["pid"] in started
        line = Path(f"/proc/{process['pid']}/cmdline").read_bytes()
        assert (b"nats-server" if process["service"] == "nats" else b"services.") in line
    assert status["nats_url"].startswith("nats://127.0.0.1:")


def test_the_curl_of_the_ready_line_works(processes: stacks.Stack) -> None:
    line = processes.ready_line
    assert line.startswith(f"READY {processes.base_url} ")
    command = shlex.split(line[line.index("curl ") :])
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert '"finish_reason":"tool_calls"' in ran.stdout.replace(": ", ":")


def test_every_log_line_says_whose_it_is(processes: stacks.Stack) -> None:
    assert processes.slots <= {"toolrail", *SERVICES}
    assert processes.slots >= {"toolrail", "gateway", "worker"}


def test_replicas_share_the_work_and_one_address(tmp_path: Path) -> None:
    flags = ("--replicas", "gateway=2,preprocessor=2,postprocessor=2,worker=2")
    with stacks.running(tmp_path, *FLAGS, *flags) as stack:
        for service in SERVICES[:-1]:
            assert len(stack.pids(service)) == 2
        # With one of two gateways gone, the address is still served.
        os.kill(stack.pids("gateway")[0], signal.SIGKILL)
        with stack.client() as client:
            assert call(client)["name"] == "point"


def test_a_request_made_while_the_gateway_restarts_waits_for_it(processes: stacks.Stack) -> None:
    (pid,) = processes.pids("gateway")
    os.kill(pid, signal.SIGKILL)
    until_dead(pid)
    with processes.client() as client:
        assert client.get("/live").status_code == 200


def test_ctrl_c_lets_running_answers_end_and_leaves_nothing(
    tmp_path: Path, script_file: Path
) -> None:
    flags = stacks.scripted("--script", str(script_file))
    with stacks.running(tmp_path, *flags) as stack, stack.client() as client:
        data = Path(stack_data_directory(stack))
        assert data.is_dir()
        request = {**ask("Count a little"), "stream": True}
        with client.stream("POST", "/v1/chat/completions", json=request) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            ended = threading.Thread(target=lambda: statuses.append(stack.end()))
            statuses: list[int] = []
            ended.start()
            rest = list(lines)
        ended.join()
        assert statuses == [0]
    assert "data: [DONE]" in rest
    assert any('"finish_reason":"stop"' in line for line in rest)
    assert not data.exists()


def test_a_log_that_nobody_reads_any_more_ends_it(tmp_path: Path) -> None:
    stack = stacks.start(tmp_path, *FLAGS)
    try:
        stack.wait_ready()
        started = descendants(stack.process.pid)
        stack.enough = True
        os.kill(stack.pids("gateway")[0], signal.SIGKILL)  # tells of its end and its new start
        assert stack.process.wait(stacks.END_S) in (0, 1)
        for pid in started:
            until_dead(pid)
    finally:
        stacks.discard(stack)


def stack_data_directory(stack: stacks.Stack) -> str:
    (nats,) = stack.pids("nats")
    open_files = Path(f"/proc/{nats}/fd").iterdir()
    names = (os.readlink(file) for file in open_files)
    return next(name for name in names if "/toolrail-" in name).split("/jetstream/")[0]


def test_ctrl_c_during_the_start_ends_it_too(tmp_path: Path) -> None:
    stack = stacks.start(tmp_path, *FLAGS)
    try:
        stack.wait_for_process("nats")
        assert stack.end() == 0
    finally:
        stacks.discard(stack)


def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    stack = stacks.start(tmp_path, *FLAGS, "--data-dir", str(tmp_path / "nats"))
    try:
        stack.wait_ready()
        started = descendants(stack.process.pid)
        assert len(started) >= len(SERVICES)
        stack.process.kill()
        for pid in started:
            until_dead(pid, timeout_s=5)
    finally:
        stacks.discard(stack)


def test_a_model_that_is_not_there_ends_the_start_with_its_name(tmp_path: Path) -> None:
    stack = stacks.start(tmp_path, *FLAGS, "--model", "/nowhere/model")
    try:
        assert stack.process.wait(stacks.START_S) == 1
        stack.wait_for_line("worker exited with status 2 and cannot be started")
        assert any("/nowhere/model" in line for line in stack.log)
    finally:
        stacks.discard(stack)


def test_another_nats_server_can_be_used(processes: stacks.Stack, tmp_path: Path) -> None:
    url = processes.status["nats_url"]
    flags = ("--nats", url, "--served-model-name", "other")
    with stacks.running(tmp_path, *FLAGS, *flags) as stack, stack.client() as client:
        assert not stack.pids("nats")
        assert stack.status["nats_url"] == url
        served = {model["id"] for model in client.get("/v1/models").json()["data"]}
        assert served == {"demo", "other"}
    assert all(alive(pid) for service in SERVICES for pid in processes.pids(service))
