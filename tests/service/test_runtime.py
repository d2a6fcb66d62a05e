from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest
from prometheus_client import generate_latest

from tests.test_directory import card
from toolrail.bus.memory import MemoryBroker
from toolrail.directory import Directory
from toolrail.service import Runtime, serving
from toolrail.settings import CommonSettings

pytestmark = pytest.mark.anyio

FAST = CommonSettings(heartbeat_s=0.01)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(5):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def test_an_announced_service_is_found_with_its_model_and_gone_at_the_end() -> None:
    broker = MemoryBroker()
    directory = Directory(broker.connect())
    await directory.start()
    async with serving("worker", FAST, broker.connect()) as runtime:
        assert directory.instances("worker") == []
        await runtime.announce(card=card("m", runtime.instance))
        await until(lambda: directory.card("m"))
        (found,) = directory.instances("worker")
        assert (found.instance, found.ready, found.draining) == (runtime.instance, True, False)
        assert found.instance.startswith("worker-")
    await until(lambda: not directory.instances("worker"))
    assert directory.card("m") is None


async def test_heartbeats_keep_a_registration_longer_than_it_lives_alone() -> None:
    broker = MemoryBroker(registration_ttl_s=0.05)
    directory = Directory(broker.connect())
    await directory.start()
    async with serving("gateway", FAST, broker.connect()) as runtime:
        await runtime.announce()
        await until(lambda: directory.instances("gateway"))
        with anyio.move_on_after(0.2):
            while True:
                assert directory.instances("gateway")
                await anyio.sleep(0.005)


async def test_a_stopping_service_shows_as_draining_and_withdraws_its_model() -> None:
    broker = MemoryBroker()
    directory = Directory(broker.connect())
    await directory.start()
    async with serving("worker", CommonSettings(), broker.connect()) as runtime:
        await runtime.announce(card=card("m", runtime.instance))
        await until(lambda: directory.card("m"))
        runtime.stopping.set()
        await until(lambda: [known.draining for known in directory.instances("worker")] == [True])
        await until(lambda: directory.card("m") is None)


async def test_a_service_may_withdraw_and_announce_again() -> None:
    broker = MemoryBroker()
    directory = Directory(broker.connect())
    await directory.start()
    async with serving("worker", FAST, broker.connect()) as runtime:
        await runtime.announce(card=card("m", runtime.instance))
        await until(lambda: directory.card("m"))
        await runtime.withdraw()
        await until(lambda: not directory.instances("worker") and not directory.card("m"))
        await runtime.announce()
        await until(lambda: directory.instances("worker"))
        assert directory.card("m") is None


async def test_a_lost_bus_costs_heartbeats_not_the_service() -> None:
    bus = MemoryBroker().connect()
    async with serving("gateway", FAST, bus) as runtime:
        await runtime.announce()
        await bus.close()
        await anyio.sleep(0.03)
        assert not runtime.stopping.is_set()


async def test_a_service_main_runs_on_a_memory_bus() -> None:
    broker = MemoryBroker()
    client = broker.connect()

    async def main(runtime: Runtime[CommonSettings]) -> None:
        async def handler(payload: bytes) -> bytes:
            return runtime.instance.encode() + payload

        served = await runtime.bus.serve("echo", "echoes", handler, max_in_flight=1)
        await runtime.announce()
        await runtime.stopping.wait()
        await served.stop(drain_s=runtime.settings.drain_s)

    settings = CommonSettings(instance="e1")
    async with (
        serving("echo", settings, broker.connect()) as runtime,
        anyio.create_task_group() as group,
    ):
        group.start_soon(main, runtime)
        await until(lambda: runtime.directory.instances("echo"))
        assert await client.request("echo", b"!", timeout_s=5) == b"e1!"
        runtime.stopping.set()


async def test_metrics_of_a_process_are_scraped_from_its_own_registry() -> None:
    broker = MemoryBroker()
    async with serving("gateway", FAST, broker.connect()) as runtime:
        await runtime.bus.publish("a", b"12345")
        text = generate_latest(runtime.metrics).decode()
    assert 'toolrail_bus_messages_total{direction="out"} 1.0' in text
    assert 'toolrail_bus_payload_bytes_total{direction="out"} 5.0' in text
    assert "toolrail_trace_spans_dropped_total 0.0" in text
