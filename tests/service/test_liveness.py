from __future__ import annotations

from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.directory import Directory
from toolrail.messages import Instance, encode
from toolrail.service import serving
from toolrail.service.liveness import METRICS, Asking, Liveness
from toolrail.settings import CommonSettings

pytestmark = pytest.mark.anyio

FAST = CommonSettings(instance="peer-1")


async def test_a_peer_is_alive_while_it_serves_and_dead_once_it_is_gone() -> None:
    broker = MemoryBroker()
    asking = Liveness(broker.connect(), lambda: ["peer-1"], probe_s=5, gone_s=0)
    async with serving("postprocessor", FAST, broker.connect()):
        await asking.probe()
        assert (asking.dead, asking.alive) == (frozenset(), {"peer-1"})
    await asking.probe()
    assert (asking.dead, asking.alive) == ({"peer-1"}, frozenset())
    async with serving("postprocessor", FAST, broker.connect()):
        await asking.probe()
        assert asking.dead == frozenset()


async def test_a_peer_tells_its_metrics_over_the_bus() -> None:
    broker = MemoryBroker()
    async with serving("postprocessor", FAST, broker.connect()):
        bus = broker.connect()
        assert await bus.request(subjects.ping("peer-1"), b"", timeout_s=5) == b""
        told = await bus.request(subjects.ping("peer-1"), METRICS, timeout_s=5)
        assert b"toolrail_bus_messages_total" in told


async def test_a_moment_without_a_peer_is_not_its_death() -> None:
    broker = MemoryBroker()
    asking = Liveness(broker.connect(), lambda: ["peer-1"], probe_s=5, gone_s=3600)
    await asking.probe()
    await asking.probe()
    assert asking.dead == frozenset()


async def test_a_peer_that_is_there_and_slow_is_not_dead() -> None:
    broker = MemoryBroker()

    async def never(payload: bytes) -> bytes:
        await anyio.sleep_forever()
        return payload

    bus = broker.connect()
    await bus.serve(subjects.ping("peer-1"), "q", never, max_in_flight=1)
    asking = Liveness(broker.connect(), lambda: ["peer-1"], probe_s=0.01, gone_s=0)
    await asking.probe()
    assert (asking.dead, asking.alive) == (frozenset(), frozenset())
    await bus.close()


async def test_who_lost_the_bus_itself_calls_nobody_dead() -> None:
    bus = MemoryBroker().connect()
    asking = Liveness(bus, lambda: ["peer-1"], probe_s=0.01, gone_s=0)
    await bus.close()
    await asking.probe()
    assert asking.dead == frozenset()


async def test_only_peers_that_matter_are_told_of() -> None:
    peers = ["peer-1"]
    asking = Liveness(MemoryBroker().connect(), lambda: peers, probe_s=0.001, gone_s=0)
    told: list[frozenset[str]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.watch, told.append)
        with anyio.fail_after(20):
            while not told:
                await anyio.lowlevel.checkpoint()
            peers.clear()
            while asking.dead:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert set(told) == {frozenset({"peer-1"})}


async def test_questions_are_cut_short_when_one_dies_that_may_have_taken_them() -> None:
    broker = MemoryBroker()
    bus = broker.connect()
    here = Instance(service="postprocessor", instance="peer-1", pid=1)
    await bus.instances.put("postprocessor.peer-1", encode(here))
    directory = Directory(bus)
    await directory.start()
    asking = Asking(bus, directory, "postprocessor", probe_s=0.001, gone_s=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.watch)
        with anyio.fail_after(20):
            with asking.question() as question:
                await anyio.sleep_forever()
            assert question.cancelled_caught
        tasks.cancel_scope.cancel()
    await directory.stop()


async def test_questions_are_cut_short_when_the_connection_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bus = MemoryBroker().connect()
    usual = bus.stats()
    asking = Asking(bus, Directory(bus), "postprocessor", probe_s=0.001, gone_s=3600)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.watch)
        with anyio.fail_after(10), asking.question() as scope:
            await anyio.sleep(0.01)  # no news, no end
            monkeypatch.setattr(bus, "stats", lambda: replace(usual, reconnects=1))
            await anyio.sleep_forever()
        assert scope.cancelled_caught
        with asking.question() as scope:
            await anyio.sleep(0.01)
        assert not scope.cancelled_caught
        tasks.cancel_scope.cancel()
