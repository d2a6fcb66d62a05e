"""A cluster of three servers that loses one: accepted jobs stay, and the bus goes on."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from nats.aio.client import Client

from benchmarks.processes import free_port
from tests.bus.received import Received, until
from tests.bus.test_contract import MODEL, Changes
from toolrail.bus import subjects
from toolrail.bus.embedded import server_binary
from toolrail.bus.nats import NatsBus
from toolrail.bus.port import WorkItem
from toolrail.errors import FaultError
from toolrail.settings import CommonSettings

pytestmark = [pytest.mark.anyio, pytest.mark.chaos]


@dataclass
class Cluster:
    folder: Path
    ports: list[int]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def urls(self) -> str:
        return ",".join(f"nats://127.0.0.1:{port}" for port in self.ports)

    def start(self) -> None:
        routes = [free_port() for _ in self.ports]
        joined = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in routes)
        for position, port in enumerate(self.ports):
            name = f"s{position}"
            config = self.folder / f"{name}.conf"
            config.write_text(
                f'server_name: {name}\nlisten: "127.0.0.1:{port}"\n'
                f'jetstream {{ store_dir: "{self.folder / name}" }}\n'
                f'cluster {{ name: c, listen: "127.0.0.1:{routes[position]}", '
                f"routes: [{joined}] }}\n"
                'lame_duck_duration: "30s"\nlame_duck_grace_period: "1s"\n'
                f'log_file: "{self.folder / name}.log"\n'
            )
            self.processes[name] = subprocess.Popen([server_binary(), "-c", config])

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def end(self) -> None:
        for name in self.processes:
            self.kill(name)


@contextmanager
def three_servers() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="toolrail-cluster-"))
    cluster = Cluster(folder, [free_port() for _ in range(3)])
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.end()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with three_servers() as running:
        yield running


async def leader(cluster: Cluster) -> str:
    client = Client()
    await client.connect(cluster.urls.split(","))
    info = await client.jetstream().stream_info(subjects.WORK_STREAM)
    await client.close()
    assert info.cluster is not None
    assert info.cluster.leader is not None
    return info.cluster.leader


async def put(bus: NatsBus, number: int) -> None:
    """As a service would: again under the same id until it is accepted."""
    with anyio.fail_after(60):
        while True:
            try:
                await bus.work.put(MODEL, b"%d" % number, message_id=str(number), timeout_s=2)
            except FaultError:
                await anyio.sleep(0.1)
            else:
                return


async def test_what_is_published_while_the_leader_leaves_is_accepted(cluster: Cluster) -> None:
    settings = CommonSettings(nats_url=cluster.urls, replicas=3, connect_timeout_s=60)
    senders = [await NatsBus.connect(settings) for _ in range(3)]
    left = cluster.processes[await leader(cluster)]
    receipts: list[str] = []

    async def put(bus: NatsBus, number: int) -> None:
        """Once, as a hand-over does: what a service asks of the bus ends in its answer."""
        id_ = f"{number}"
        receipts.append(await bus.work.put(MODEL, b"job", message_id=id_, timeout_s=120))

    try:
        async with anyio.create_task_group() as group:
            for number in range(300):
                if number == 100:
                    left.send_signal(signal.SIGUSR2)
                group.start_soon(put, senders[number % 3], number)
                await anyio.sleep(0.01)
    finally:
        for bus in senders:
            await bus.close()
    assert len(set(receipts)) == 300


async def test_a_cluster_that_loses_the_leader_keeps_every_accepted_job(cluster: Cluster) -> None:
    settings = CommonSettings(nats_url=cluster.urls, replicas=3, connect_timeout_s=60)
    sender, worker = await NatsBus.connect(settings), await NatsBus.connect(settings)
    done: set[bytes] = set()
    items = Received[WorkItem]()
    changes = Changes()
    pull = await worker.work.pull(MODEL, items.add)
    await worker.instances.watch(changes.change)
    await sender.blobs.put("tokenizer", bytes(500_000))

    async def work() -> None:
        pull.grant(8)
        handled = 0
        while len(done) < 150:
            await items.wait(handled + 1, timeout_s=60)
            item = items.items[handled]
            handled += 1
            done.add(item.payload)
            with suppress(FaultError):  # then it comes again
                await item.ack()
            pull.grant(1)

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        for number in range(150):
            if number == 50:
                cluster.kill(await leader(cluster))
            await put(sender, number)
    assert done == {b"%d" % number for number in range(150)}
    assert await worker.blobs.get("tokenizer") == bytes(500_000)
    await sender.instances.put("gateway.g1", b"1")
    await until(lambda: ("gateway.g1", b"1") in changes.items, timeout_s=40)
    await sender.close()
    await worker.close()
