"""What is measured: the pipeline as it is, and two things to hold it against."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from benchmarks.processes import cpu_s, free_port, python, until_serving
from toolrail.bus.embedded import EmbeddedNats


@dataclass(frozen=True)
class Running:
    """A pipeline that serves, and the processes it consists of."""

    base_url: str
    pids: dict[str, int]
    nats: EmbeddedNats | None = field(default=None)

    def cpu_s(self) -> dict[str, float]:
        """CPU time of each process so far."""
        return {name: cpu_s(pid) for name, pid in self.pids.items()}

    def bus_messages(self) -> int:
        """Messages the NATS server has taken so far; 0 without one."""
        if self.nats is None:
            return 0
        with urllib.request.urlopen(f"{self.nats.monitoring_url}/varz", timeout=5) as response:
            return json.load(response)["in_msgs"]


@contextmanager
def frames(
    step_ms: float, script: str, slots: int, common: Sequence[str] = ()
) -> Iterator[Running]:
    """The product: four processes and a NATS server, a bus message per step and destination.

    `common`: further flags of every service.
    """
    with _four_processes("services.worker", step_ms, script, slots, common) as running:
        yield running


@contextmanager
def messages(step_ms: float, script: str, slots: int) -> Iterator[Running]:
    """The same processes, but with a bus message for each token."""
    module = "benchmarks.message_per_token"
    with _four_processes(module, step_ms, script, slots) as running:
        yield running


@contextmanager
def in_process(step_ms: float, script: str, slots: int) -> Iterator[Running]:
    """The same four services in one process on an in-memory bus: what they cost without the way."""
    port = free_port()
    flags = ["--port", str(port), *_worker_flags(step_ms, script, slots)]
    with python({"one process": ["benchmarks.in_process", *flags]}) as pids:
        base_url = f"http://127.0.0.1:{port}"
        until_serving(base_url)
        yield Running(base_url, pids)


VARIANTS = {"frames": frames, "message per token": messages, "one process": in_process}


@contextmanager
def _four_processes(
    worker_module: str, step_ms: float, script: str, slots: int, more: Sequence[str] = ()
) -> Iterator[Running]:
    nats = EmbeddedNats(monitoring=True)
    anyio.run(nats.start)
    port = free_port()
    common = ["--nats-url", nats.url, "--log-level", "WARNING", *more]
    commands = {
        "gateway": ["services.gateway", *common, "--port", str(port)],
        "preprocessor": ["services.preprocessor", *common],
        "postprocessor": ["services.postprocessor", *common],
        "worker": [worker_module, *common, *_worker_flags(step_ms, script, slots)],
    }
    try:
        with python(commands) as pids:
            base_url = f"http://127.0.0.1:{port}"
            until_serving(base_url)
            yield Running(base_url, {**pids, "nats": nats.pid}, nats)
    finally:
        nats.remove()


def _worker_flags(step_ms: float, script: str, slots: int) -> list[str]:
    return [
        *("--engine", "scripted", "--script", script),
        *("--scripted-step-ms", str(step_ms), "--slots", str(slots)),
    ]
