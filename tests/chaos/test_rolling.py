"""Every service restarted, one process after another, under load: no request notices."""

from __future__ import annotations

import os
import signal
from typing import Final

import anyio
import pytest

from benchmarks.mixed_load import Load
from tests.chaos.inside import inside
from tests.stack import Stack

pytestmark = [pytest.mark.chaos, pytest.mark.anyio]

STREAMS: Final = 8
ROLL_S: Final = 400.0


def instances(stack: Stack) -> set[str]:
    return {p["instance"] for p in stack.status["processes"] if p["service"] != "nats"}


async def test_a_rolling_restart_of_all_services_loses_no_request(pairs: Stack) -> None:
    # A connection for each request: one that is kept may be closed just when it is used again,
    # which no server can rule out.
    load = Load(pairs.base_url, 7, keep_alive=False)
    async with inside(pairs) as see:
        await see.settled()
        before = instances(pairs)
        os.kill(pairs.process.pid, signal.SIGUSR1)
        with anyio.fail_after(ROLL_S):
            await load.run(STREAMS, lambda: bool(before & instances(pairs)), lambda _: None)
        await see.settled()
    print(f"\nrolling restart: {load.tally}")  # noqa: T201 (with -s)
    assert load.tally.fates == {"answered": load.tally.total}, f"{load.tally}\n{pairs.tail()}"
    assert load.tally.total >= STREAMS
