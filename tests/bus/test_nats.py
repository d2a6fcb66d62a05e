"""What only a real server can show: restarts, lost state, slow handlers, what it is left with."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import anyio
import nats
import pytest

from tests.bus.received import Received, until
from tests.bus.test_contract import MODEL, Changes
from toolrail.bus import subjects
from toolrail.bus.embedded import EmbeddedNats
from toolrail.bus.nats import NatsBus
from toolrail.bus.port import WorkItem
from toolrail.errors import BusClosedError, FaultError, QueueFullError
from toolrail.settings import CommonSettings

pytestmark = [pytest.mark.anyio, pytest.mark.nats]


@dataclass
class Place:
    """A server and connections to it."""

    server: EmbeddedNats = field(default_factory=EmbeddedNats)
    buses: list[NatsBus] = field(default_factory=list[NatsBus])

    async def connect(self, **changes: object) -> NatsBus:
        settings = CommonSettings(nats_url=self.server.url, connect_timeout_s=10, **changes)  # type: ignore[arg-type]
        self.buses.append(await NatsBus.connect(settings))
        return self.buses[-1]

    async def crash(self, *, lose_state: bool = False) -> None:
        """Kill the server and start it again on its port."""
        self.server.kill()
        if lose_state:
            shutil.rmtree(self.server.directory)
        await self.server.start()

    async def connected_again(self, *buses: NatsBus) -> None:
        await until(lambda: all(bus.stats().reconnects for bus in buses))


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    place = Place()
    await place.server.start()
    try:
        yield place
    finally:
        for bus in place.buses:
            await bus.close()
        place.server.remove()


async def put_until_accepted(bus: NatsBus, payload: bytes, message_id: str) -> None:
    with anyio.fail_after(20):
        while True:
            try:
                await bus.work.put(MODEL, payload, message_id=message_id, timeout_s=1)
            except FaultError:
                await anyio.sleep(0.05)
            else:
                return


# --- restarts


async def test_after_a_restart_everything_goes_on(place: Place) -> None:
    sender, receiver = await place.connect(), await place.connect()
    frames = Received[bytes]()
    items = Received[WorkItem]()

    async def echo(payload: bytes) -> bytes:
        return payload

    await receiver.subscribe("post.a", frames.add)
    await receiver.serve("prepare", "pre", echo, max_in_flight=4)
    pull = await receiver.work.pull(MODEL, items.add)
    pull.grant(10)  # a server killed at this moment may deliver "held" again
    await sender.work.put(MODEL, b"held", message_id="1", timeout_s=5)
    held = (await items.wait(1))[0]
    await place.crash()
    await place.connected_again(sender, receiver)
    await sender.publish("post.a", b"frame")
    assert await frames.wait(1) == [b"frame"]
    assert await sender.request("prepare", b"x", timeout_s=5) == b"x"
    await put_until_accepted(sender, b"new", "2")
    await until(lambda: b"new" in {item.payload for item in items.items})
    await put_until_accepted(sender, b"last", "3")
    await until(lambda: b"last" in {item.payload for item in items.items})
    await held.ack()


async def test_jobs_and_their_ids_survive_a_restart(place: Place) -> None:
    bus = await place.connect()
    for number in range(20):
        await bus.work.put(MODEL, b"%d" % number, message_id=str(number), timeout_s=5)
    await place.crash()
    await place.connected_again(bus)
    await put_until_accepted(bus, b"again", "7")
    items = Received[WorkItem]()
    (await bus.work.pull(MODEL, items.add)).grant(100)
    assert [item.payload for item in await items.wait(20)] == [b"%d" % n for n in range(20)]


async def test_a_server_that_lost_its_state_is_set_up_again(place: Place) -> None:
    bus = await place.connect()
    items = Received[WorkItem]()
    pull = await bus.work.pull(MODEL, items.add)
    pull.grant(4)
    changes = Changes()
    await bus.instances.watch(changes.change)
    await place.crash(lose_state=True)
    await place.connected_again(bus)
    await put_until_accepted(bus, b"job", "1")
    assert (await items.wait(1))[0].payload == b"job"
    await bus.instances.put("worker.a", b"1")
    assert await changes.wait(1) == [("worker.a", b"1")]


async def test_who_renews_after_an_outage_was_never_gone_and_who_does_not_is(place: Place) -> None:
    bus = await place.connect(registration_ttl_s=1.0)
    changes = Changes()
    await bus.instances.put("worker.back", b"1")
    await bus.instances.put("worker.dead", b"1")
    await bus.instances.watch(changes.change)
    place.server.kill()
    await anyio.sleep(1.5)  # longer than a registration lives
    await place.server.start()
    await place.connected_again(bus)
    with anyio.fail_after(10):
        while ("worker.dead", None) not in changes.items:
            await bus.instances.put("worker.back", b"2")
            await anyio.sleep(0.1)
    assert ("worker.back", None) not in changes.items


async def test_requests_made_while_the_server_is_away_meet_their_deadline(place: Place) -> None:
    bus = await place.connect()
    place.server.kill()
    with anyio.fail_after(5), pytest.raises(FaultError):
        await bus.request("prepare", b"", timeout_s=0.2)


async def test_a_bus_that_cannot_be_reached_says_so_in_time() -> None:
    settings = CommonSettings(nats_url="nats://user:secret@127.0.0.1:1", connect_timeout_s=0.3)
    with anyio.fail_after(5), pytest.raises(BusClosedError, match=r"nats://127\.0\.0\.1:1") as e:
        await NatsBus.connect(settings)
    assert "secret" not in str(e.value)


# --- bounds


async def test_messages_that_a_blocked_server_cannot_take_are_counted(place: Place) -> None:
    sender, receiver = await place.connect(), await place.connect()

    async def never(payload: bytes) -> bytes:
        await anyio.sleep_forever()
        return payload

    await receiver.serve("prepare", "pre", never, max_in_flight=1)
    sent = 0
    with anyio.fail_after(60):
        while not receiver.stats().dropped:
            for _ in range(5000):
                await sender.publish("prepare", b"")
            sent += 5000
            await anyio.sleep(0.01)
    assert sent > 65_536


async def test_the_outbox_is_bounded_and_counts_what_it_drops(place: Place) -> None:
    sender, receiver = await place.connect(publish_queue_messages=10), await place.connect()
    frames = Received[bytes]()
    await receiver.subscribe("a", frames.add)
    for number in range(25):
        sender.publish_soon("a", b"%d" % number)
    await sender.publish("a", b"end")
    assert await frames.wait(11) == [*(b"%d" % number for number in range(10)), b"end"]
    assert sender.stats().dropped == 15


async def test_changed_bounds_apply_to_a_queue_that_is_there(place: Place) -> None:
    first = await place.connect()
    await first.work.put(MODEL, b"", message_id="1", timeout_s=5)
    second = await place.connect(max_queue_jobs=1)
    with pytest.raises(QueueFullError):
        await second.work.put(MODEL, b"", message_id="2", timeout_s=5)


async def test_dead_letters_are_kept_for_people_the_last_ones_and_as_they_are(place: Place) -> None:
    bus = await place.connect(max_dead_letters=2)
    for number in range(3):
        await bus.work.bury(MODEL, b'{"reason":"expired","n":%d}' % number)
    client = await nats.connect(place.server.url)
    jetstream = client.jetstream()
    info = await jetstream.stream_info(subjects.DEAD_STREAM)
    assert info.state.messages == 2
    last = await jetstream.get_last_msg(subjects.DEAD_STREAM, subjects.dead(MODEL))
    assert last.data == b'{"reason":"expired","n":2}'
    await client.close()


async def test_idle_slots_leave_few_requests_at_the_server(place: Place) -> None:
    bus = await place.connect()
    items = Received[WorkItem]()
    pull = await bus.work.pull(MODEL, items.add)
    for _ in range(200):
        pull.grant(1)
        await anyio.sleep(0.001)
    client = await nats.connect(place.server.url)
    info = await client.jetstream().consumer_info(subjects.WORK_STREAM, subjects.model_token(MODEL))
    await client.close()
    assert info.num_waiting is not None
    assert 1 <= info.num_waiting <= 9
    for number in range(200):
        await bus.work.put(MODEL, b"", message_id=str(number), timeout_s=5)
    assert len(await items.wait(200)) == 200


async def test_a_blob_with_a_lifetime_goes_by_itself(place: Place) -> None:
    bus = await place.connect()
    await bus.blobs.put("prompt", bytes(300_000), ttl_s=1)
    assert len(await bus.blobs.get("prompt")) == 300_000
    with anyio.fail_after(10):
        while True:
            try:
                await bus.blobs.get("prompt")
            except (KeyError, FaultError):
                break
            await anyio.sleep(0.1)


async def test_blobs_are_readable_with_a_plain_nats_client(place: Place) -> None:
    bus = await place.connect()
    data = os.urandom(300_000)
    await bus.blobs.put("tokenizer", data)
    client = await nats.connect(place.server.url)
    store = await client.jetstream().object_store(subjects.BLOBS_BUCKET)
    read = await store.get("tokenizer")
    await client.close()
    assert read.data == data


# --- the embedded server


async def test_the_embedded_server_dies_with_the_process_that_started_it() -> None:
    script = (
        "import anyio, sys\n"
        "from toolrail.bus.embedded import EmbeddedNats\n"
        "server = EmbeddedNats()\n"
        "anyio.run(server.start)\n"
        "print(server.pid, server.directory, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid, directory = (await anyio.to_thread.run_sync(parent.stdout.readline)).split()
    os.kill(int(pid), 0)
    parent.send_signal(signal.SIGKILL)
    await anyio.to_thread.run_sync(parent.communicate)
    await until(lambda: not alive(int(pid)))
    shutil.rmtree(directory)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def test_an_embedded_server_that_cannot_start_says_why() -> None:
    first = EmbeddedNats()
    await first.start()
    second = EmbeddedNats(port=first.port)
    try:
        with pytest.raises(FaultError, match="address already in use"):
            await second.start()
    finally:
        first.remove()
        second.remove()
