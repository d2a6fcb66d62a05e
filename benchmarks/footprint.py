"""What a process holds of its machine: memory, descriptors, threads; and whether that grows.

Seen from outside, through `/proc`, so that nothing is asked of who is measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import psutil


class Footprint(NamedTuple):
    """Of a process and, if asked for, of all that it started."""

    resident_bytes: int
    descriptors: int
    threads: int


def footprint(pid: int, *, family: bool = True) -> Footprint | None:
    """What a process holds now; None: it has ended."""
    try:
        process = psutil.Process(pid)
        members = [process, *(process.children(recursive=True) if family else ())]
        return Footprint(
            sum(member.memory_info().rss for member in members),
            sum(member.num_fds() for member in members),
            sum(member.num_threads() for member in members),
        )
    except psutil.NoSuchProcess:
        return None


def rise(values: Sequence[float]) -> float:
    """By how much the floor under a series rises, from its beginning to its end.

    The floor, a low decile, of its last third against that of its first: memory that is collected
    now and then comes back to its floor, memory that is lost raises it.
    """
    third = max(2, len(values) // 3)
    return 1.5 * (_floor(values[-third:]) - _floor(values[:third]))


def _floor(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=10)[0]
