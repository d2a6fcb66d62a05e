"""The product's own process stack for tests: `toolrail up` on free ports."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.processes import alive, descendants, until_dead
from tests.published_answers import check_answer
from toolrail.cli import child

ROOT = Path(__file__).parents[1]

START_S = 180.0
ENGINE_START_S = 600.0
"""An engine on a busy machine of two cores, beside the other tests."""

END_S = 20.0
"""The bound the product promises for a Ctrl-C."""


@dataclass
class Stack:
    """A running `toolrail up`.

    Attributes:
        process: the supervisor.
        log: its last lines, for the message of a failed test; what a test asks of the whole output
            is kept apart, since a killed service can write more than these.
        ready_line: its first READY line, "" until there is one.
        slots: what stood before the bar of every other line: the processes that wrote.
        enough: set it to close the log after its next line.
    """

    process: subprocess.Popen[str]
    status_file: Path
    log: collections.deque[str] = field(default_factory=lambda: collections.deque(maxlen=400))
    ready: threading.Event = field(default_factory=threading.Event)
    ready_line: str = ""
    slots: set[str] = field(default_factory=set)
    reader: threading.Thread = field(init=False)
    enough: bool = False

    @property
    def status(self) -> dict[str, Any]:
        return json.loads(self.status_file.read_text(encoding="utf-8"))

    @property
    def base_url(self) -> str:
        return self.status["base_url"]

    def pids(self, service: str) -> list[int]:
        """The processes of this service that run now."""
        listed = [p["pid"] for p in self.status["processes"] if p["service"] == service]
        return [pid for pid in listed if alive(pid)]

    def wait_ready(self, timeout_s: float = START_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.ready.wait(0.1):
            assert self.process.poll() is None, f"toolrail up ended:\n{self.tail()}"
            assert time.monotonic() < deadline, f"not ready after {timeout_s} s:\n{self.tail()}"

    def wait_for_line(self, part: str, timeout_s: float = START_S) -> None:
        """Until the log holds `part`."""
        deadline = time.monotonic() + timeout_s
        while not any(part in line for line in list(self.log)):
            assert time.monotonic() < deadline, f"no {part!r} after {timeout_s} s:\n{self.tail()}"
            time.sleep(0.02)

    def wait_for_process(self, service: str, timeout_s: float = START_S) -> None:
        """Until the status file lists one of this service."""
        deadline = time.monotonic() + timeout_s
        while not (self.status_file.exists() and self.pids(service)):
            assert time.monotonic() < deadline, f"no {service} after {timeout_s} s:\n{self.tail()}"
            time.sleep(0.02)

    def tail(self) -> str:
        return "\n".join(self.log)

    def client(self, **more: Any) -> httpx.Client:
        """A client that fails where an answer is not as published."""
        hooks = {"response": [check_answer]}
        return httpx.Client(base_url=self.base_url, timeout=60, event_hooks=hooks, **more)

    def end(self) -> int:
        """Ctrl-C: the exit status, after everything it started has ended too."""
        started = descendants(self.process.pid)
        os.killpg(self.process.pid, signal.SIGINT)
        try:
            status = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running {END_S} s after Ctrl-C:\n{self.tail()}") from None
        for pid in started:
            until_dead(pid, timeout_s=1)
        return status

    def follow(self) -> None:
        """Read the output until it ends."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.log.append(line.rstrip("\n"))
            if line.startswith("READY "):
                self.ready_line = self.ready_line or line.rstrip("\n")
                self.ready.set()
            else:
                self.slots.add(line.split("|")[0].strip())
            if self.enough:
                self.process.stdout.close()
                break


def start(folder: Path, *flags: str, environment: dict[str, str] | None = None) -> Stack:
    """`toolrail up` on a free port, in a process group of its own; does not wait for READY."""
    command = [str(Path(sys.executable).with_name("toolrail")), "up", "--port", "0"]
    status_file = folder / "status.json"
    return launch([*command, "--status-file", str(status_file), *flags], status_file, environment)


def make_up(folder: Path, *variables: str, flags: Sequence[str] = ()) -> Stack:
    """`make up` likewise."""
    status_file = folder / "status.json"
    arguments = " ".join([*flags, "--status-file", str(status_file)])
    command = ["make", "--no-print-directory", "up", "PORT=0", *variables, f"ARGS={arguments}"]
    return launch(command, status_file)


def launch(
    command: Sequence[str], status_file: Path, environment: dict[str, str] | None = None
) -> Stack:
    # Even a killed test run leaves nothing running.
    shim = [sys.executable, "-I", "-S", child.__file__, str(os.getpid())]
    process = subprocess.Popen(
        [*shim, *command],
        cwd=ROOT,
        env=os.environ | (environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    stack = Stack(process, status_file)
    stack.reader = threading.Thread(target=stack.follow, daemon=True)
    stack.reader.start()
    return stack


@contextmanager
def running(
    folder: Path, *flags: str, environment: dict[str, str] | None = None
) -> Iterator[Stack]:
    """A stack that is READY inside the block and gone after it, however the block ends."""
    stack = start(folder, *flags, environment=environment)
    try:
        stack.wait_ready()
        yield stack
    finally:
        discard(stack)


def discard(stack: Stack) -> None:
    """End it by any means; for tests whose point is not the ending."""
    if stack.process.poll() is None:
        # The group: `make` itself passes no Ctrl-C on.
        os.killpg(stack.process.pid, signal.SIGINT)
        try:
            stack.process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(stack.process.pid, signal.SIGKILL)
            stack.process.wait()
    stack.reader.join(END_S)
    if stack.process.stdout and not stack.reader.is_alive():
        stack.process.stdout.close()


def scripted(*flags: str) -> Sequence[str]:
    return ("--engine", "scripted", *flags)
