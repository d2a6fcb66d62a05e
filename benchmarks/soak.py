"""Half an hour of mixed requests, and the memory of every process as a plot: is it flat?

    python -m benchmarks.soak --minutes 30 --plot soak.svg

Two processes of each service with the scripted engine; every answer is judged. Ends with status 1
when a process has grown, or a request has not been answered.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import anyio
import msgspec
import psutil

from benchmarks.mixed_load import Load
from benchmarks.processes import ROOT, until_serving

SAMPLES: Final = 600
"""Samples of a run, however long it is; at most one a second."""

GROWTH: Final = 1.10
GROWTH_BYTES: Final = 16 << 20
"""A process has grown when its memory of the last quarter exceeds that of the second by both: the
first one fills caches."""

_START_S: Final = 180.0
_END_S: Final = 30.0
_COLORS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2")
_WIDTH: Final = 960
_HEIGHT: Final = 480
_MARGIN: Final = 60


class Process(msgspec.Struct):
    """One of the status file."""

    instance: str
    pid: int


class Status(msgspec.Struct):
    """What `toolrail up --status-file` writes."""

    base_url: str
    processes: list[Process]


@dataclass
class Memory:
    """Resident bytes of each process over time; a process counts with those it started."""

    pids: Mapping[str, int]
    seconds: list[float] = field(default_factory=list[float])
    bytes_: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def sample(self, now_s: float) -> None:
        """Look once."""
        self.seconds.append(now_s)
        for name, pid in self.pids.items():
            self.bytes_.setdefault(name, []).append(_resident(pid))

    def grown(self) -> dict[str, float]:
        """By which factor processes have grown that have."""
        found: dict[str, float] = {}
        for name, values in self.bytes_.items():
            quarter = max(1, len(values) // 4)
            before = statistics.mean(values[quarter : 2 * quarter] or values)
            after = statistics.mean(values[-quarter:])
            if after > before * GROWTH and after > before + GROWTH_BYTES:
                found[name] = after / before
        return found


def _resident(pid: int) -> int:
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        return sum(member.memory_info().rss for member in family)
    except psutil.NoSuchProcess:
        return 0


def plot(memory: Memory) -> str:
    """The memory of all processes over time, as an SVG document."""
    top = max((max(values) for values in memory.bytes_.values()), default=1) * 1.1
    end_s = max(memory.seconds[-1], 1.0)
    lines: list[str] = []
    for number, (name, values) in enumerate(memory.bytes_.items()):
        points = " ".join(
            f"{_MARGIN + second / end_s * _WIDTH:.1f},{_HEIGHT - value / top * _HEIGHT:.1f}"
            for second, value in zip(memory.seconds, values, strict=True)
        )
        color = _COLORS[number % len(_COLORS)]
        label = f"{name}: {values[-1] / 2**20:.0f} MiB"
        lines.append(f'<polyline fill="none" stroke="{color}" points="{points}"/>')
        y = _HEIGHT - values[-1] / top * _HEIGHT
        lines.append(
            f'<text x="{_WIDTH + _MARGIN + 4}" y="{y:.0f}" fill="{color}">{escape(label)}</text>'
        )
    axes = (
        f'<text x="0" y="12">{top / 2**20:.0f} MiB</text>'
        f'<text x="0" y="{_HEIGHT}">0</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 20}">{end_s / 60:.1f} min</text>'
        f'<path d="M{_MARGIN} 0V{_HEIGHT}H{_WIDTH + _MARGIN}" fill="none" stroke="#888"/>'
    )
    size = f'width="{_WIDTH + 5 * _MARGIN}" height="{_HEIGHT + 30}"'
    style = 'font-family="sans-serif" font-size="11"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{axes}{"".join(lines)}</svg>\n'


@contextmanager
def stack(replicas: int) -> Iterator[Status]:
    """`toolrail up` inside the block; yields what its status file says."""
    with tempfile.TemporaryDirectory(prefix="toolrail-soak-") as folder:
        status_file = Path(folder) / "status.json"
        services = ("gateway", "preprocessor", "postprocessor", "worker")
        command = [
            *(str(Path(sys.executable).with_name("toolrail")), "up", "--port", "0"),
            *("--engine", "scripted", "--obey-tag", "--scripted-step-ms", "20", "--slots", "64"),
            *("--replicas", ",".join(f"{service}={replicas}" for service in services)),
            *("--status-file", str(status_file)),
        ]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
            try:
                yield _started(status_file, len(services) * replicas + 1)
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


async def soak(base_url: str, memory: Memory, minutes: float, streams: int) -> Load:
    """Keep `streams` requests going for so long."""
    load = Load(base_url, seed=1)
    began = time.monotonic()
    end = began + minutes * 60
    interval_s = max(1.0, minutes * 60 / SAMPLES)

    async def watch() -> None:
        while True:
            memory.sample(time.monotonic() - began)
            await anyio.sleep(interval_s)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await load.run(streams, lambda: time.monotonic() < end, lambda _: None)
        memory.sample(time.monotonic() - began)
        tasks.cancel_scope.cancel()
    return load


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--streams", type=int, default=32, help="requests at once")
    parser.add_argument("--replicas", type=int, default=2, help="processes of each service")
    parser.add_argument("--plot", type=Path, default=Path("soak.svg"), help="where the plot goes")
    options = parser.parse_args(arguments)
    with stack(options.replicas) as status:
        memory = Memory({one.instance: one.pid for one in status.processes})
        load = anyio.run(soak, status.base_url, memory, options.minutes, options.streams)
    options.plot.write_text(plot(memory), encoding="utf-8")
    grown = memory.grown()
    sys.stdout.write(f"{load.tally.total} requests: {load.tally}\n")
    for name, values in memory.bytes_.items():
        mark = f"  grown {grown[name]:.2f} times" if name in grown else ""
        sys.stdout.write(f"{name:<24} {values[0] >> 20:>5} → {values[-1] >> 20:>5} MiB{mark}\n")
    sys.stdout.write(f"plot: {options.plot}\n")
    return 1 if grown or load.tally.fates["answered"] != load.tally.total else 0


if __name__ == "__main__":
    sys.exit(main())
