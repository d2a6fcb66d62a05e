"""The runner as a process, over a real server: signals, exit status, what it prints."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import pytest

from tests.bus.received import Received
from toolrail.bus.embedded import EmbeddedNats
from toolrail.bus.nats import NatsBus
from toolrail.messages import Instance, decode_instance
from toolrail.settings import CommonSettings

pytestmark = [pytest.mark.anyio, pytest.mark.nats]


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedNats]:
    server = EmbeddedNats()
    await server.start()
    yield server
    server.remove()


class Service:
    def __init__(self, *flags: str) -> None:
        command = [sys.executable, "-m", "tests.service.echo_service", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    async def end(self, timeout_s: float = 20) -> tuple[int, str]:
        """Exit status and standard error."""
        try:
            _, text = await anyio.to_thread.run_sync(self.process.communicate, None, timeout_s)
        finally:
            self.process.kill()
        return self.process.returncode, text


async def announced(bus: NatsBus, *, draining: bool = False) -> Instance:
    """The service's registration, once there is one that is (not) draining."""
    seen = Received[Instance]()

    def changed(_: str, value: bytes | None) -> None:
        if value is not None and (known := decode_instance(value)).draining is draining:
            seen.add(known)

    watch = await bus.instances.watch(changed)
    found = (await seen.wait(1, timeout_s=20))[0]
    await watch.stop()
    return found


async def test_a_service_drains_at_sigterm_and_exits_0(server: EmbeddedNats) -> None:
    service = Service("--nats-url", server.url, "--log-format", "json", "--instance", "e1")
    bus = await NatsBus.connect(CommonSettings(nats_url=server.url))
    assert (await announced(bus)).pid == service.process.pid
    answers = Received[bytes]()

    async def ask() -> None:
        answers.add(await bus.request("echo", b"slow", timeout_s=10))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        assert await bus.request("echo", b"quick", timeout_s=10) == b"quick"
        service.process.send_signal(signal.SIGTERM)
    status, text = await service.end()
    await bus.close()
    assert (status, answers.items) == (0, [b"slow"])
    records = [json.loads(line) for line in text.splitlines()]
    assert [record["message"] for record in records] == ["told to stop", "stopped"]
    assert {(record["service"], record["instance"]) for record in records} == {("echo", "e1")}


async def test_the_drain_is_bounded_and_still_a_clean_end(server: EmbeddedNats) -> None:
    flags = ("--nats-url", server.url, "--mode", "endless", "--drain-s", "0.2")
    service = Service(*flags)
    bus = await NatsBus.connect(CommonSettings(nats_url=server.url))
    await announced(bus)
    await bus.close()
    service.process.send_signal(signal.SIGTERM)
    status, text = await service.end()
    assert status == 0
    assert "stopped before all was finished" in text


async def test_a_second_signal_ends_the_drain(server: EmbeddedNats) -> None:
    service = Service("--nats-url", server.url, "--mode", "endless")
    bus = await NatsBus.connect(CommonSettings(nats_url=server.url))
    await announced(bus)
    service.process.send_signal(signal.SIGINT)
    await announced(bus, draining=True)
    service.process.send_signal(signal.SIGINT)
    status, _ = await service.end()
    await bus.close()
    assert status == 0


async def test_a_wrong_setting_is_one_line_and_status_2(server: EmbeddedNats) -> None:
    status, text = await Service("--port", "1").end()
    assert (status, text) == (2, "toolrail echo: --port: unknown flag; --help lists them\n")
    service = Service("--nats-url", server.url, "--mode", "misconfigured")
    status, text = await service.end()
    assert (status, text) == (2, "toolrail echo: mode: cannot work\n")


@pytest.mark.parametrize(("mode", "said"), [("broken", "service failed"), ("ended", "without")])
async def test_a_failure_is_status_1_and_its_log_quotes_nothing(
    server: EmbeddedNats, mode: str, said: str
) -> None:
    status, text = await Service("--nats-url", server.url, "--mode", mode).end()
    assert status == 1
    assert said in text
    assert "secret" not in text
    assert len(text.splitlines()) == 1


async def test_no_bus_within_the_deadline_is_status_1() -> None:
    flags = ("--nats-url", "nats://127.0.0.1:1", "--connect-timeout-s", "0.5")
    status, text = await Service(*flags).end()
    assert status == 1
    assert "no bus" in text.splitlines()[-1]


async def test_a_service_that_waits_for_the_bus_can_be_stopped() -> None:
    service = Service("--nats-url", "nats://127.0.0.1:1")
    assert service.process.stderr is not None
    await anyio.to_thread.run_sync(service.process.stderr.readline)
    service.process.send_signal(signal.SIGTERM)
    status, _ = await service.end()
    assert status == 0


async def test_help_goes_to_standard_output() -> None:
    command = [sys.executable, "-m", "tests.service.echo_service", "--help"]
    done = await anyio.run_process(command)
    assert b"--mode" in done.stdout
    assert b"what it does" in done.stdout


async def test_metrics_are_served_on_their_own_port(server: EmbeddedNats) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    await listener.aclose()
    service = Service("--nats-url", server.url, "--metrics-port", str(port))
    bus = await NatsBus.connect(CommonSettings(nats_url=server.url))
    await announced(bus)
    await bus.close()
    url = f"http://127.0.0.1:{port}/metrics"
    text = (await anyio.to_thread.run_sync(urllib.request.urlopen, url)).read().decode()
    service.process.send_signal(signal.SIGTERM)
    assert (await service.end())[0] == 0
    assert "toolrail_bus_messages_total" in text
    assert "toolrail_event_loop_lag_seconds" in text
    assert "toolrail_event_loop_tasks" in text
