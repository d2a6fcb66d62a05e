"""The stack on three NATS servers, one of which leaves under load: in order, or without a word."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import anyio
import pytest

from benchmarks.mixed_load import Load
from tests import stack as stacks
from tests.bus.test_cluster import leader, three_servers
from tests.chaos.conftest import START_S

pytestmark = [pytest.mark.chaos, pytest.mark.anyio]

STREAMS: Final = 12
BEFORE: Final = 24
AFTER: Final = 24
"""Requests that begin before the server is told to leave, and after it has gone."""

LEAVE_S: Final = 240.0
FLAGS: Final = (
    *stacks.scripted("--obey-tag", "--scripted-step-ms", "20", "--slots", "24"),
    *("--replicas", "gateway=2,postprocessor=2,worker=2"),
)


@pytest.mark.parametrize("sign", [signal.SIGUSR2, signal.SIGKILL], ids=["lame duck", "killed"])
async def test_one_of_three_servers_leaves_under_load(tmp_path: Path, sign: signal.Signals) -> None:
    environment = {"TOOLRAIL_REPLICAS": "3", "TOOLRAIL_CONNECT_TIMEOUT_S": "120"}
    with three_servers() as cluster:
        flags = (*FLAGS, "--nats", cluster.urls)
        stack = stacks.start(tmp_path, *flags, environment=environment)
        try:
            await anyio.to_thread.run_sync(stack.wait_ready, START_S)
            server = cluster.processes[await leader(cluster)]
            load = Load(stack.base_url, 5)
            gone_at = 0

            def more() -> bool:
                nonlocal gone_at
                if server.poll() is not None and not gone_at:
                    gone_at = load.started
                return not gone_at or load.started < gone_at + AFTER

            def strike(number: int) -> None:
                if number == BEFORE:
                    server.send_signal(sign)  # SIGUSR2: it sends its clients away one by one

            with anyio.fail_after(LEAVE_S):
                await load.run(STREAMS, more, strike)
                after = Load(stack.base_url, 6)
                await after.run(1, lambda: not after.tally.fates["answered"], lambda _: None)
        finally:
            stacks.discard(stack)
    fates = load.tally.fates
    print(f"\n{sign.name}: {load.tally}")  # noqa: T201 (with -s)
    if sign == signal.SIGUSR2:
        # A question on its way to a connection that is being closed is lost, and its client told so
        # before anything of it was accepted; what was accepted is answered. How many meet one is
        # the machine's affair: not more than are on their way.
        assert set(fates) <= {"answered", "refused"}, load.tally
        assert fates["refused"] <= STREAMS, load.tally
    else:
        assert set(fates) <= {"answered", "failed", "refused"}, load.tally
        assert fates["answered"] >= BEFORE - STREAMS, load.tally
