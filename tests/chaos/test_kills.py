"""Processes killed under load: no answer is lost, wrong or doubled, and nothing stays behind."""

from __future__ import annotations

import os
import random
import signal
from typing import Final

import pytest

from benchmarks.mixed_load import Load
from tests.chaos.inside import inside
from tests.stack import Stack

pytestmark = [pytest.mark.chaos, pytest.mark.anyio]

STREAMS: Final = 64
SERVICES: Final = ("gateway", "preprocessor", "postprocessor", "worker")
KILLS: Final = 6


class Killer:
    """Kills a process of a service whenever the load comes to one of its marks.

    By requests, not by time, so that each service is killed at least once while there is load,
    however fast the machine is.
    """

    def __init__(self, stack: Stack, rng: random.Random, requests: int, kills: int) -> None:
        # Whoever talks to a gateway that is killed is cut off, so that happens once: the others
        # are to be seen through to their end.
        victims = [*SERVICES, *rng.choices(SERVICES[1:], k=kills - len(SERVICES))]
        rng.shuffle(victims)
        marks = sorted(rng.sample(range(STREAMS // 2, requests), k=kills))
        self._due = dict(zip(marks, victims, strict=True))
        self._stack = stack
        self._rng = rng
        self.killed: list[str] = []

    def at(self, request: int) -> None:
        service = self._due.get(request)
        if service is None:
            return
        pids = self._stack.pids(service)
        if len(pids) > 1:  # the last one is left: somebody is to be there to answer
            os.kill(self._rng.choice(pids), signal.SIGKILL)
            self.killed.append(service)


async def storm(stack: Stack, seed: int, requests: int, kills: int) -> None:
    rng = random.Random(seed)
    killer = Killer(stack, rng, requests, kills)
    load = Load(stack.base_url, seed)
    async with inside(stack) as see:
        await see.settled()
        await load.run(STREAMS, lambda: load.started < requests, killer.at)
        print(f"\nseed {seed}: {load.tally}; killed {killer.killed}")  # noqa: T201 (with -s)
        assert load.tally.total == requests
        assert load.tally.fates["cut"] <= STREAMS * killer.killed.count("gateway")
        assert load.tally.fates["answered"] >= (requests - load.tally.fates["cut"]) // 2
        await see.settled()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_request_ends_in_an_answer_or_one_clean_error(pairs: Stack, seed: int) -> None:
    await storm(pairs, seed, 200, KILLS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
async def test_ten_times_as_many(pairs: Stack, seed: int) -> None:
    await storm(pairs, seed, 2000, 4 * KILLS)
