"""What a process holds of its machine: memory, descriptors, threads; and whether that grows.

Seen from outside, through `/proc`, so that nothing is asked of who is measured.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import psutil

_POINTS: Final = 200
"""Of a series, for its slope: pairs grow by the square."""


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


@dataclass(frozen=True, slots=True)
class Trend:
    """A straight line through a series, such that a few outliers do not turn it (Theil-Sen).

    Attributes:
        level: the median of the values.
        slope: growth per unit of the positions.
        span: positions from the first to the last.
    """

    level: float
    slope: float
    span: float

    @property
    def growth(self) -> float:
        """By how much the line rises over the series."""
        return self.slope * self.span


def trend(positions: Sequence[float], values: Sequence[float]) -> Trend:
    """The line through at least two points at different positions."""
    step = max(1, len(positions) // _POINTS)
    points = list(zip(positions[::step], values[::step], strict=True))
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in itertools.combinations(points, 2)
        if later[0] > earlier[0]
    ]
    span = positions[-1] - positions[0]
    return Trend(statistics.median(values), statistics.median(slopes), span)
