"""A cluster without a leader: what is published waits, and does not ask too much meanwhile."""

from __future__ import annotations

from typing import Any, cast

import anyio
import pytest
from nats.js.errors import NoStreamResponseError

from toolrail.bus import setup
from toolrail.bus.connection import Connection
from toolrail.settings import CommonSettings
from toolrail.telemetry import Telemetry

pytestmark = pytest.mark.anyio


class Leaderless:
    """JetStream that takes nothing for a number of tries."""

    def __init__(self, tries: int) -> None:
        self.tries = tries

    async def publish(self, *_: object, **__: object) -> Any:
        self.tries -= 1
        if self.tries >= 0:
            raise NoStreamResponseError

        class Acknowledged:
            seq = 7

        return Acknowledged()


async def test_streams_are_made_by_one_of_all_that_find_them_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_once = most = calls = 0

    async def ensure(_: Connection) -> None:
        nonlocal at_once, most, calls
        calls += 1
        at_once += 1
        most = max(most, at_once)
        await anyio.sleep(0.01)
        at_once -= 1

    monkeypatch.setattr(setup, "ensure", ensure)
    connection = Connection(cast("Any", None), CommonSettings(), Telemetry())
    connection.jetstream = cast("Any", Leaderless(60))
    numbers: list[int] = []

    async def publish() -> None:
        numbers.append(await setup.publish(connection, "s", b"", headers={}, timeout_s=60))

    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(publish)
    assert numbers == [7] * 30
    assert most == 1
    assert calls < 30


async def test_a_cluster_that_makes_no_streams_now_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ensure(_: Connection) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(setup, "ensure", ensure)
    monkeypatch.setattr(setup, "_ENSURE_S", 0.01)
    connection = Connection(cast("Any", None), CommonSettings(), Telemetry())
    connection.jetstream = cast("Any", Leaderless(2))
    assert await setup.publish(connection, "s", b"", headers={}, timeout_s=60) == 7
