"""Real processes: the NATS server is killed under running streams, and comes back."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.chaos.test_worker_deaths import STREAMS, Heard, client_of, many, one, up

pytestmark = [pytest.mark.anyio, pytest.mark.chaos]


async def test_streams_outlive_a_restart_of_the_bus_or_end_in_one_clean_error(
    tmp_path: Path,
) -> None:
    with up(tmp_path) as stack:
        async with client_of(stack) as client:
            whole = await one(client, "Look")

            async def strike(heard: Sequence[Heard]) -> None:
                while not all(each.arguments for each in heard):  # noqa: ASYNC110 (nobody tells)
                    await anyio.sleep(0.01)
                (server,) = stack.pids("nats")
                os.kill(server, signal.SIGKILL)

            heard = await many(client, "Look", strike)
            ends = Counter("whole" if each.answer == whole.answer else each.error for each in heard)
            assert set(ends) <= {"whole", "lost", "unavailable"}, ends
            for each in heard:
                assert whole.content.startswith(each.content)
                assert whole.arguments.startswith(each.arguments)
                assert len(each.call_ids) <= 1
        # And everything works as before.
        async with client_of(stack) as client:
            again = await many(client, "Look", lambda _: anyio.lowlevel.checkpoint())
    assert [each.answer for each in again] == [whole.answer] * STREAMS
