"""Child processes of a benchmark: started here, ended here, and what CPU they used."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_STOP_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.05


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, all its threads, in seconds.

    From the scheduler's clock: `stat` counts in ticks of 10 ms, too coarse for a run of seconds.
    Time of threads that have ended is missing; ours do not end while we measure.
    """
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


def free_port() -> int:
    """A TCP port of the loopback address that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def python(commands: Mapping[str, Sequence[str]]) -> Iterator[dict[str, int]]:
    """Modules running as processes inside the block, by name; yields their process ids."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TOOLRAIL_", "DYN_"))}
    try:
        for name, (module, *flags) in commands.items():
            running[name] = subprocess.Popen(
                [sys.executable, "-m", module, *flags], cwd=ROOT, env=environment
            )
        yield {name: process.pid for name, process in running.items()}
    finally:
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        for process in running.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until_serving(base_url: str, timeout_s: float = 60.0) -> None:
    """Wait until `/v1/models` lists a model."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{base_url}/v1/models", timeout=1) as response:
                if b'"id"' in response.read():
                    return
        except OSError:
            pass
        time.sleep(_POLL_S)
    raise SystemExit(f"nothing served at {base_url} in {timeout_s:g} s")
