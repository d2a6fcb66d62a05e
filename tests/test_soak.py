"""What the soak takes for growth, and what not."""

from __future__ import annotations

import random

import pytest

from benchmarks.footprint import Footprint, rise
from benchmarks.soak import GROWTH_BYTES, THREADS, History
from benchmarks.soak_plot import plot

MIB = 1 << 20
SAMPLES = 600


def history(held: list[Footprint]) -> History:
    made = History({"worker": 1})
    made.seconds = [3.0 * number for number in range(len(held))]
    made.held = {"worker": held}
    return made


def test_a_heap_that_is_collected_now_and_then_is_flat() -> None:
    sawtooth = [50 * MIB + number % 90 * 300_000 for number in range(SAMPLES)]
    assert abs(rise([float(size) for size in sawtooth])) < 2 * MIB
    assert history([Footprint(size, 20, 9) for size in sawtooth]).grown() == {}


def test_a_leak_shows_through_noise_and_a_warm_up_does_not() -> None:
    rng = random.Random(1)
    for leaks in (False, True):
        sizes = [
            100 * MIB
            + min(number, 200) * MIB // 4  # caches fill
            + rng.randrange(8 * MIB)
            + leaks * number * 40_000
            for number in range(SAMPLES)
        ]
        grown = history([Footprint(size, 20, 9) for size in sizes]).grown()
        assert list(grown) == (["worker"] if leaks else [])


@pytest.mark.parametrize(
    ("last", "what"),
    [
        (Footprint(100 * MIB, 400, 9), "descriptors"),
        (Footprint(100 * MIB, 20, THREADS + 1), "threads"),
    ],
)
def test_descriptors_and_threads_are_looked_at_too(last: Footprint, what: str) -> None:
    held = [Footprint(100 * MIB, 20, 9)] * (SAMPLES // 2) + [last] * (SAMPLES // 2)
    assert what in history(held).grown()["worker"]


def test_a_process_that_ended_is_named() -> None:
    held = [Footprint(100 * MIB, 20, 9)] * 5 + [Footprint(0, 0, 0)]
    assert history(held).ended() == ["worker"]


def test_the_plot_is_small_and_names_each_process() -> None:
    held = [Footprint(100 * MIB + GROWTH_BYTES, 20, 9)] * SAMPLES
    drawn = plot([float(n) for n in range(SAMPLES)], {"a": held, "b": held}, 0.4)
    assert drawn.count("<polyline") == 2
    assert "a: 104 → 104 MiB" in drawn
    assert len(drawn) < 10_000
