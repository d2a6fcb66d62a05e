"""Half an hour of mixed requests, and the memory of every process as a plot: is it flat?

    python -m benchmarks.soak --minutes 30 --plot soak.svg

Two processes of each service with the scripted engine; every answer is judged. Ends with status 1
when a process has grown after its warm-up or was replaced, or a request has not been answered.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import msgspec

from benchmarks.footprint import Footprint, footprint, rise
from benchmarks.mixed_load import Load
from benchmarks.processes import ROOT, until_serving
from benchmarks.soak_plot import plot

SAMPLES: Final = 600
"""Samples of a run, however long it is; at most one a second."""

WARM_UP: Final = 0.4
"""The part of a run in which caches fill and allocators find their size; the rest is judged."""

GROWTH: Final = 0.03
GROWTH_BYTES: Final = 4 << 20
"""A process has grown when the floor under its memory rises by both while it is judged: by this
part of its size, and by more than an allocator's arenas come and go."""

DESCRIPTORS: Final = 4
"""By how much their floor may rise: connections to clients come and go."""

THREADS: Final = 64
"""More than the pools of a process have together."""

SUPERVISOR: Final = "toolrail-up"

_START_S: Final = 180.0
_END_S: Final = 30.0


class Process(msgspec.Struct):
    """One of the status file."""

    instance: str
    pid: int


class Status(msgspec.Struct):
    """What `toolrail up --status-file` writes."""

    base_url: str
    nats_url: str
    processes: list[Process]


@dataclass
class History:
    """What each process held over time; a service's process counts with those it started.

    Attributes:
        seconds: when each sample was taken.
        requests: how many requests had been sent by then.
        held: by process.
    """

    pids: Mapping[str, int]
    seconds: list[float] = field(default_factory=list[float])
    requests: list[int] = field(default_factory=list[int])
    held: dict[str, list[Footprint]] = field(default_factory=dict[str, list[Footprint]])

    def sample(self, now_s: float, requests: int) -> None:
        """Look once."""
        self.seconds.append(now_s)
        self.requests.append(requests)
        for name, pid in self.pids.items():
            seen = footprint(pid, family=name != SUPERVISOR)
            self.held.setdefault(name, []).append(seen or Footprint(0, 0, 0))

    def ended(self) -> list[str]:
        """Processes that were not there at every sample."""
        return [name for name, held in self.held.items() if Footprint(0, 0, 0) in held]

    def rise(self, name: str, what: int) -> float:
        """By how much the floor under a part of its footprint rises after the warm-up."""
        held = self.held[name]
        return rise([float(one[what]) for one in held[int(len(held) * WARM_UP) :]])

    def grown(self) -> dict[str, str]:
        """Processes that have grown, and what of them."""
        found: dict[str, str] = {}
        for name, held in self.held.items():
            size, descriptors = held[-1].resident_bytes, self.rise(name, 1)
            if (more := self.rise(name, 0)) > max(GROWTH_BYTES, size * GROWTH):
                found[name] = f"memory by {more / 2**20:.1f} MiB"
            elif descriptors > DESCRIPTORS:
                found[name] = f"descriptors by {descriptors:.0f}"
            elif (threads := max(one.threads for one in held)) > THREADS:
                found[name] = f"{threads} threads"
        return found


SCRIPTED: Final = ("--engine", "scripted", "--obey-tag", "--scripted-step-ms", "20")


@contextmanager
def stack(replicas: int, *flags: str) -> Iterator[Status]:
    """`toolrail up` inside the block; yields what its status file says, and itself."""
    with tempfile.TemporaryDirectory(prefix="toolrail-soak-") as folder:
        status_file = Path(folder) / "status.json"
        services = ("gateway", "preprocessor", "postprocessor", "worker")
        command = [
            *(str(Path(sys.executable).with_name("toolrail")), "up", "--port", "0"),
            *flags,
            *("--replicas", ",".join(f"{service}={replicas}" for service in services)),
            *("--status-file", str(status_file)),
        ]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
            try:
                status = _started(status_file, len(services) * replicas + 1)
                status.processes.append(Process(SUPERVISOR, process.pid))
                yield status
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(_END_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _started(status_file: Path, processes: int) -> Status:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if status_file.exists():
            status = msgspec.json.decode(status_file.read_bytes(), type=Status)
            if len(status.processes) == processes:
                until_serving(status.base_url, timeout_s=_START_S)
                return status
        time.sleep(0.2)
    raise SystemExit(f"the stack did not start in {_START_S:g} s")


async def soak(base_url: str, history: History, minutes: float, streams: int) -> Load:
    """Keep `streams` requests going for so long."""
    load = Load(base_url, seed=1)
    began = time.monotonic()
    end = began + minutes * 60
    interval_s = max(1.0, minutes * 60 / SAMPLES)

    async def watch() -> None:
        while True:
            history.sample(time.monotonic() - began, load.started)
            await anyio.sleep(interval_s)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await load.run(streams, lambda: time.monotonic() < end, lambda _: None)
        history.sample(time.monotonic() - began, load.started)
        tasks.cancel_scope.cancel()
    return load


def report(history: History, load: Load) -> int:
    """Say what became of all; the exit status."""
    grown, ended = history.grown(), history.ended()
    sys.stdout.write(f"{load.tally.total} requests: {load.tally}\n")
    for name, held in history.held.items():
        first, last = held[0], held[-1]
        sys.stdout.write(
            f"{name:<24} {first.resident_bytes / 2**20:>6.1f} → {last.resident_bytes / 2**20:>6.1f}"
            f" MiB, floor {history.rise(name, 0) / 2**20:>+5.1f} after the warm-up;"
            f" descriptors {first.descriptors} → {last.descriptors},"
            f" threads {first.threads} → {last.threads}"
            f"{'  GROWN: ' + grown[name] if name in grown else ''}"
            f"{'  ENDED' if name in ended else ''}\n"
        )
    whole = load.tally.fates["answered"] == load.tally.total
    flat = not grown and not ended
    sys.stdout.write(
        f"{'flat' if flat else 'NOT FLAT'}, {'all' if whole else 'NOT ALL'} answered\n"
    )
    return 0 if flat and whole else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--streams", type=int, default=32, help="requests at once")
    parser.add_argument("--replicas", type=int, default=2, help="processes of each service")
    parser.add_argument("--plot", type=Path, default=Path("soak.svg"), help="where the plot goes")
    parser.add_argument("--samples", type=Path, help="where every sample goes, as JSON")
    options = parser.parse_args(arguments)
    with stack(options.replicas, *SCRIPTED, "--slots", "64") as status:
        history = History({one.instance: one.pid for one in status.processes})
        load = anyio.run(soak, status.base_url, history, options.minutes, options.streams)
    if options.samples:
        options.samples.write_bytes(msgspec.json.encode(history))
    options.plot.write_text(plot(history.seconds, history.held, WARM_UP), encoding="utf-8")
    status_code = report(history, load)
    sys.stdout.write(f"plot: {options.plot}\n")
    return status_code


if __name__ == "__main__":
    sys.exit(main())
