"""What every implementation of the bus owes: one body, run on each of them."""

from __future__ import annotations

import logging
import time

import anyio
import anyio.lowlevel
import pytest
from opentelemetry.sdk.trace import TracerProvider

from tests.bus.conftest import Connect, Limits
from tests.bus.received import Received
from toolrail.bus.port import Bus, WorkItem
from toolrail.errors import BusClosedError, DeadlineError, NoRespondersError, QueueFullError
from toolrail.telemetry import Telemetry, current_trace_id

pytestmark = pytest.mark.anyio

MODEL = "org/model 1.5"


class Changes(Received[tuple[str, bytes | None]]):
    """What a watcher was told."""

    def change(self, key: str, value: bytes | None) -> None:
        self.add((key, value))


async def echo(payload: bytes) -> bytes:
    return payload


# --- frames


async def test_frames_arrive_in_the_order_they_were_sent(connect: Connect) -> None:
    sender, receiver = await connect(), await connect()
    got = Received[bytes]()
    await receiver.subscribe("post.a", got.add)
    for number in range(200):
        if number % 3:
            sender.publish_soon("post.a", b"%d" % number)
        else:
            await sender.publish("post.a", b"%d" % number)
    assert await got.wait(200) == [b"%d" % number for number in range(200)]


async def test_every_subscriber_of_a_subject_hears_it_and_no_other_does(connect: Connect) -> None:
    bus = await connect()
    one, two, wild, other = (Received[bytes]() for _ in range(4))
    await bus.subscribe("ctl.a", one.add)
    await bus.subscribe("ctl.a", two.add)
    await bus.subscribe("ctl.*", wild.add)
    await bus.subscribe("ctl.b", other.add)
    await bus.publish("ctl.a", b"1")
    await bus.publish("ctl.b", b"2")
    assert await wild.wait(2) == [b"1", b"2"]
    assert await one.wait(1) == [b"1"]
    assert await two.wait(1) == [b"1"]
    assert await other.wait(1) == [b"2"]


async def test_a_handler_may_publish_without_being_entered_again(connect: Connect) -> None:
    bus = await connect()
    order: list[str] = []
    last = Received[bytes]()

    def first(payload: bytes) -> None:
        order.append("begin")
        bus.publish_soon("second", payload)
        order.append("end")

    def second(payload: bytes) -> None:
        order.append("second")
        last.add(payload)

    await bus.subscribe("second", second)
    await bus.subscribe("first", first)
    await bus.publish("first", b"x")
    await last.wait(1)
    assert order == ["begin", "end", "second"]


async def test_a_stopped_subscription_hears_nothing_more(connect: Connect) -> None:
    bus = await connect()
    stopped, kept = Received[bytes](), Received[bytes]()
    subscription = await bus.subscribe("a", stopped.add)
    await bus.subscribe("a", kept.add)
    await bus.publish("a", b"1")
    await kept.wait(1)
    await stopped.wait(1)
    await subscription.stop()
    await bus.publish("a", b"2")
    assert await kept.wait(2) == [b"1", b"2"]
    assert stopped.items == [b"1"]


async def test_draining_a_subscription_handles_what_had_arrived(connect: Connect) -> None:
    sender, receiver = await connect(), await connect()
    got, witness = Received[bytes](), Received[bytes]()
    subscription = await receiver.subscribe("a", got.add)
    await (await connect()).subscribe("a", witness.add)
    for number in range(50):
        await sender.publish("a", b"%d" % number)
    await witness.wait(50)
    await subscription.stop(drain_s=5)
    assert len(got.items) == 50


async def test_a_payload_over_the_limit_is_refused_at_once(connect: Connect) -> None:
    bus = await connect()
    with pytest.raises(ValueError, match="payload"):
        await bus.publish("a", bytes(bus.max_payload_bytes + 1))


async def test_stats_count_messages_and_bytes_both_ways(connect: Connect) -> None:
    sender, receiver = await connect(), await connect()
    got = Received[bytes]()
    await receiver.subscribe("a", got.add)
    before_out, before_in = sender.stats(), receiver.stats()
    for _ in range(10):
        await sender.publish("a", b"12345")
    await got.wait(10)
    after_out, after_in = sender.stats(), receiver.stats()
    assert after_out.messages_out - before_out.messages_out == 10
    assert after_out.bytes_out - before_out.bytes_out == 50
    assert after_in.messages_in - before_in.messages_in == 10
    assert after_in.bytes_in - before_in.bytes_in == 50
    assert after_in.dropped == 0


async def test_a_closed_connection_says_so(connect: Connect) -> None:
    bus = await connect()
    await bus.close()
    with pytest.raises(BusClosedError):
        await bus.publish("a", b"")
    with pytest.raises(BusClosedError):
        await bus.request("a", b"", timeout_s=1)
    with pytest.raises(BusClosedError):
        await bus.work.put(MODEL, b"", message_id="1", timeout_s=1)
    bus.publish_soon("a", b"")
    assert bus.stats().dropped == 1


# --- requests


async def test_a_request_is_answered_by_one_server(connect: Connect) -> None:
    client, server = await connect(), await connect()

    async def reverse(payload: bytes) -> bytes:
        return payload[::-1]

    await server.serve("prepare", "pre", reverse, max_in_flight=4)
    assert await client.request("prepare", b"abc", timeout_s=5) == b"cba"


async def test_a_request_that_nobody_serves_fails_at_once(connect: Connect) -> None:
    bus = await connect()
    with anyio.fail_after(5), pytest.raises(NoRespondersError):
        await bus.request("nobody", b"", timeout_s=60)


async def test_a_silent_server_costs_no_more_than_the_deadline(connect: Connect) -> None:
    client, server = await connect(), await connect()

    async def never(payload: bytes) -> bytes:
        await anyio.sleep_forever()
        return payload

    await server.serve("prepare", "pre", never, max_in_flight=1)
    with anyio.fail_after(5), pytest.raises(DeadlineError):
        await client.request("prepare", b"", timeout_s=0.05)


async def test_a_failing_handler_is_logged_without_the_payload_and_costs_its_caller_alone(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client, server = await connect(), await connect()

    async def handler(payload: bytes) -> bytes:
        if payload == b"secret":
            raise RuntimeError("bug")
        return payload

    await server.serve("prepare", "pre", handler, max_in_flight=1)
    with caplog.at_level(logging.ERROR), pytest.raises(DeadlineError):
        await client.request("prepare", b"secret", timeout_s=0.1)
    assert await client.request("prepare", b"good", timeout_s=5) == b"good"
    assert [record.message for record in caplog.records] == ["request handler failed"]
    assert "secret" not in caplog.text


async def test_members_of_a_queue_group_share_the_requests(connect: Connect) -> None:
    client, one, two = await connect(), await connect(), await connect()

    async def first(_: bytes) -> bytes:
        return b"1"

    async def second(_: bytes) -> bytes:
        return b"2"

    await one.serve("prepare", "pre", first, max_in_flight=4)
    await two.serve("prepare", "pre", second, max_in_flight=4)
    answers = [await client.request("prepare", b"", timeout_s=5) for _ in range(60)]
    assert len(answers) == 60
    assert set(answers) == {b"1", b"2"}


async def test_requests_beyond_the_bound_wait_their_turn(connect: Connect) -> None:
    client, server = await connect(), await connect()
    running = peak = 0
    started = Received[bytes]()
    release = anyio.Event()

    async def handler(payload: bytes) -> bytes:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        started.add(payload)
        await release.wait()
        running -= 1
        return payload

    await server.serve("prepare", "pre", handler, max_in_flight=3)
    answers = Received[bytes]()

    async def ask(number: int) -> None:
        answers.add(await client.request("prepare", b"%d" % number, timeout_s=10))

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(ask, number)
        await started.wait(3)
        release.set()
    assert sorted(answers.items) == [b"%d" % number for number in range(10)]
    assert peak == 3


async def test_a_draining_server_finishes_what_it_took_and_takes_nothing_new(
    connect: Connect,
) -> None:
    client, server = await connect(), await connect()
    started, release = anyio.Event(), anyio.Event()

    async def handler(payload: bytes) -> bytes:
        started.set()
        await release.wait()
        return payload

    serving = await server.serve("prepare", "pre", handler, max_in_flight=4)
    answers = Received[bytes]()

    async def ask() -> None:
        answers.add(await client.request("prepare", b"taken", timeout_s=10))

    async def stop() -> None:
        await serving.stop(drain_s=10)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await started.wait()
        group.start_soon(stop)
        await until_nobody_serves(client)
        release.set()
    assert answers.items == [b"taken"]


async def until_nobody_serves(client: Bus) -> None:
    with anyio.fail_after(10):
        while True:
            try:
                await client.request("prepare", b"late", timeout_s=0.05)
            except NoRespondersError:
                return
            except DeadlineError:
                continue


async def test_a_rolling_restart_of_a_queue_group_loses_no_request(connect: Connect) -> None:
    client, old, new = await connect(), await connect(), await connect()
    serving = await old.serve("prepare", "pre", echo, max_in_flight=4)
    answers = Received[bytes]()

    async def ask(name: int) -> None:
        for number in range(40):
            answers.add(await client.request("prepare", b"%d-%d" % (name, number), timeout_s=10))

    async with anyio.create_task_group() as group:
        for name in range(4):
            group.start_soon(ask, name)
        await answers.wait(20)
        await new.serve("prepare", "pre", echo, max_in_flight=4)
        await serving.stop(drain_s=10)
    assert len(set(answers.items)) == 160


# --- trace context


async def test_trace_context_travels_with_requests_and_jobs(connect: Connect) -> None:
    telemetry = Telemetry(TracerProvider(shutdown_on_exit=False))
    client, server = await connect(telemetry), await connect(telemetry)
    seen: list[str] = []
    items = Received[WorkItem]()

    async def handler(payload: bytes) -> bytes:
        seen.append(current_trace_id())
        return payload

    await server.serve("prepare", "pre", handler, max_in_flight=1)
    pull = await server.work.pull(MODEL, items.add)
    pull.grant(1)
    with telemetry.span("root", kind="server"):
        trace_id = current_trace_id()
        await client.request("prepare", b"", timeout_s=5)
        await client.work.put(MODEL, b"job", message_id="1", timeout_s=5)
    item = (await items.wait(1))[0]
    assert trace_id
    assert seen == [trace_id]
    assert item.trace_headers["traceparent"].split("-")[1] == trace_id


async def test_a_job_knows_since_when_it_waits_also_when_it_comes_again(connect: Connect) -> None:
    client, server = await connect(), await connect()
    items = Received[WorkItem]()
    before = time.time()
    await client.work.put(MODEL, b"job", message_id="1", timeout_s=5)
    after = time.time()
    pull = await server.work.pull(MODEL, items.add)
    pull.grant(2)
    (first,) = await items.wait(1)
    await first.nak()
    *_, second = await items.wait(2)
    assert before - 1 <= first.queued_s <= after + 1  # a clock may be set meanwhile
    assert (second.queued_s, second.deliveries) == (first.queued_s, 2)


async def test_without_a_trace_nothing_is_carried(connect: Connect) -> None:
    client, server = await connect(), await connect()
    seen: list[str] = []
    items = Received[WorkItem]()

    async def handler(payload: bytes) -> bytes:
        seen.append(current_trace_id())
        return payload

    await server.serve("prepare", "pre", handler, max_in_flight=1)
    await client.request("prepare", b"", timeout_s=5)
    await client.work.put(MODEL, b"job", message_id="1", timeout_s=5)
    (await server.work.pull(MODEL, items.add)).grant(1)
    assert seen == [""]
    assert (await items.wait(1))[0].trace_headers == {}


async def test_the_trace_of_a_caller_passes_through_services_that_record_none(
    connect: Connect,
) -> None:
    client, server = await connect(), await connect()
    seen: list[str] = []

    async def handler(payload: bytes) -> bytes:
        seen.append(current_trace_id())
        return payload

    await server.serve("prepare", "pre", handler, max_in_flight=1)
    with Telemetry().attached({"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}):
        await client.request("prepare", b"", timeout_s=5)
    assert seen == ["ab" * 16]


# --- the work queue


async def test_a_job_put_before_anybody_pulls_waits(connect: Connect) -> None:
    producer, worker = await connect(), await connect()
    await producer.work.put(MODEL, b"job", message_id="1", timeout_s=5)
    items = Received[WorkItem]()
    (await worker.work.pull(MODEL, items.add)).grant(1)
    item = (await items.wait(1))[0]
    assert (item.payload, item.deliveries) == (b"job", 1)


async def test_models_do_not_share_a_line(connect: Connect) -> None:
    bus = await connect()
    mine, other = Received[WorkItem](), Received[WorkItem]()
    (await bus.work.pull(MODEL, mine.add)).grant(5)
    (await bus.work.pull("another", other.add)).grant(5)
    await bus.work.put("another", b"other", message_id="2", timeout_s=5)
    await bus.work.put(MODEL, b"mine", message_id="1", timeout_s=5)
    assert [item.payload for item in await mine.wait(1)] == [b"mine"]
    assert [item.payload for item in await other.wait(1)] == [b"other"]


async def test_credit_is_never_exceeded_and_every_job_comes(connect: Connect) -> None:
    bus = await connect()
    items = Received[WorkItem]()
    held = peak = 0

    def take(item: WorkItem) -> None:
        nonlocal held, peak
        held += 1
        peak = max(peak, held)
        items.add(item)

    pull = await bus.work.pull(MODEL, take)
    for number in range(30):
        await bus.work.put(MODEL, b"%d" % number, message_id=str(number), timeout_s=5)
    granted = done = 0
    for credit in (1, 2, 4, 8, 8, 7):
        granted += credit
        pull.grant(credit)
        await items.wait(granted)
        for item in items.items[done:granted]:
            held -= 1
            await item.ack()
        done = granted
    assert [item.payload for item in items.items] == [b"%d" % number for number in range(30)]
    assert peak == 8


async def test_credit_granted_one_by_one_lets_a_burst_through(connect: Connect) -> None:
    bus = await connect()
    items = Received[WorkItem]()
    pull = await bus.work.pull(MODEL, items.add)
    for _ in range(16):
        pull.grant(1)
    for number in range(20):
        await bus.work.put(MODEL, b"%d" % number, message_id=str(number), timeout_s=5)
    await items.wait(16)
    assert len(items.items) == 16
    pull.grant(4)
    assert len(await items.wait(20)) == 20


async def test_two_workers_share_a_line_within_their_credit(connect: Connect) -> None:
    bus, other = await connect(), await connect()
    one, two = Received[WorkItem](), Received[WorkItem]()
    (await bus.work.pull(MODEL, one.add)).grant(3)
    (await other.work.pull(MODEL, two.add)).grant(5)
    for number in range(8):
        await bus.work.put(MODEL, b"%d" % number, message_id=str(number), timeout_s=5)
    await one.wait(3)
    await two.wait(5)
    payloads = {item.payload for item in one.items + two.items}
    assert (len(one.items), len(two.items), len(payloads)) == (3, 5, 8)


async def test_a_repeated_message_id_is_accepted_once(connect: Connect) -> None:
    bus = await connect()
    items = Received[WorkItem]()
    for _ in range(3):
        await bus.work.put(MODEL, b"same", message_id="r1:0", timeout_s=5)
    await bus.work.put(MODEL, b"next", message_id="r1:1", timeout_s=5)
    (await bus.work.pull(MODEL, items.add)).grant(10)
    assert [item.payload for item in await items.wait(2)] == [b"same", b"next"]


async def test_a_withdrawn_job_gives_its_place_back_and_is_never_delivered(
    connect: Connect,
) -> None:
    bus = await connect()
    items = Received[WorkItem]()
    receipt = await bus.work.put(MODEL, b"unwanted", message_id="1", timeout_s=5)
    assert await bus.work.put(MODEL, b"unwanted", message_id="1", timeout_s=5) == receipt
    await bus.work.put(MODEL, b"wanted", message_id="2", timeout_s=5)
    await bus.work.withdraw(receipt)
    await bus.work.withdraw(receipt)  # as often as one likes
    (await bus.work.pull(MODEL, items.add)).grant(10)
    assert [item.payload for item in await items.wait(1)] == [b"wanted"]


async def test_what_is_gone_from_the_queue_can_be_asked(connect: Connect) -> None:
    bus = await connect()
    items = Received[WorkItem]()

    async def put(model: str, number: int) -> str:
        return await bus.work.put(model, b"job", message_id=f"{number}", timeout_s=5)

    other = await put("other model", 9)
    receipts = [await put(MODEL, number) for number in range(4)]
    assert await bus.work.gone(MODEL, receipts) == set()
    (await bus.work.pull(MODEL, items.add)).grant(3)
    first, second, third = await items.wait(3)
    assert await bus.work.gone(MODEL, receipts) == set()  # a worker has them
    await first.ack()
    await second.ack()
    with anyio.fail_after(20):
        while await bus.work.gone(MODEL, receipts) != set(receipts[:2]):  # noqa: ASYNC110
            await anyio.sleep(0.02)
    await third.ack()
    with anyio.fail_after(20):
        while await bus.work.gone(MODEL, receipts) != set(receipts[:3]):  # noqa: ASYNC110
            await anyio.sleep(0.02)
    assert await bus.work.gone("other model", [other]) == set()
    assert await bus.work.gone(MODEL, ["123456"]) == {"123456"}  # of a queue that was lost


@pytest.mark.parametrize("limits", [Limits(max_queue_jobs=1)])
async def test_a_job_is_gone_when_its_time_is_over(connect: Connect) -> None:
    bus = await connect()
    items = Received[WorkItem]()
    await bus.work.put(MODEL, b"late", message_id="1", timeout_s=5, ttl_s=0.05)
    with anyio.fail_after(20):
        while True:
            try:
                await bus.work.put(MODEL, b"next", message_id="2", timeout_s=5)
            except QueueFullError:
                await anyio.sleep(0.02)
            else:
                break
    (await bus.work.pull(MODEL, items.add)).grant(10)
    assert [item.payload for item in await items.wait(1)] == [b"next"]


async def test_an_acknowledgement_leaves_after_what_was_sent_before_it(connect: Connect) -> None:
    bus, worker, postprocessor = await connect(), await connect(), await connect()
    items, frames = Received[WorkItem](), Received[bytes]()
    await postprocessor.subscribe("post.a", frames.add)
    (await worker.work.pull(MODEL, items.add)).grant(1)
    await bus.work.put(MODEL, b"job", message_id="1", timeout_s=5)
    (item,) = await items.wait(1)
    before = worker.stats().messages_out
    for number in range(50):
        worker.publish_soon("post.a", b"%d" % number)
    await item.ack()
    assert worker.stats().messages_out - before >= 50
    assert await frames.wait(50) == [b"%d" % number for number in range(50)]


async def test_a_job_given_back_is_delivered_again(connect: Connect) -> None:
    bus = await connect()
    items = Received[WorkItem]()
    pull = await bus.work.pull(MODEL, items.add)
    pull.grant(1)
    await bus.work.put(MODEL, b"job", message_id="1", timeout_s=5)
    await (await items.wait(1))[0].nak()
    pull.grant(1)
    again = (await items.wait(2))[1]
    assert (again.payload, again.deliveries) == (b"job", 2)


@pytest.mark.parametrize("limits", [Limits(ack_wait_s=0.3)])
async def test_a_job_whose_worker_vanished_goes_to_another(connect: Connect) -> None:
    bus, worker = await connect(), await connect()
    lost, found = Received[WorkItem](), Received[WorkItem]()
    (await worker.work.pull(MODEL, lost.add)).grant(1)
    await bus.work.put(MODEL, b"job", message_id="1", timeout_s=5)
    await lost.wait(1)
    await worker.close()
    (await bus.work.pull(MODEL, found.add)).grant(1)
    again = (await found.wait(1))[0]
    assert (again.payload, again.deliveries) == (b"job", 2)


@pytest.mark.parametrize("limits", [Limits(ack_wait_s=0.3)])
async def test_an_acknowledged_job_never_comes_again(connect: Connect) -> None:
    bus = await connect()
    items = Received[WorkItem]()
    pull = await bus.work.pull(MODEL, items.add)
    pull.grant(3)
    await bus.work.put(MODEL, b"acked", message_id="1", timeout_s=5)
    await bus.work.put(MODEL, b"lost", message_id="2", timeout_s=5)
    await (await items.wait(2))[0].ack()
    assert [item.payload for item in await items.wait(3)] == [b"acked", b"lost", b"lost"]


@pytest.mark.parametrize("limits", [Limits(max_queue_jobs=3)])
async def test_a_full_queue_refuses_and_takes_again_once_a_job_is_done(connect: Connect) -> None:
    bus = await connect()
    items = Received[WorkItem]()
    for number in range(3):
        await bus.work.put(MODEL, b"", message_id=str(number), timeout_s=5)
    with pytest.raises(QueueFullError):
        await bus.work.put(MODEL, b"", message_id="3", timeout_s=5)
    (await bus.work.pull(MODEL, items.add)).grant(1)
    await (await items.wait(1))[0].ack()
    await put_when_there_is_room(bus, "3")


async def put_when_there_is_room(bus: Bus, message_id: str) -> None:
    with anyio.fail_after(5):
        while True:
            try:
                await bus.work.put(MODEL, b"", message_id=message_id, timeout_s=5)
            except QueueFullError:
                await anyio.lowlevel.checkpoint()
            else:
                return


@pytest.mark.parametrize("limits", [Limits(max_queue_bytes=4096)])
async def test_the_queue_is_bounded_in_bytes_too(connect: Connect) -> None:
    bus = await connect()
    await bus.work.put(MODEL, bytes(3000), message_id="1", timeout_s=5)
    with pytest.raises(QueueFullError):
        await bus.work.put(MODEL, bytes(3000), message_id="2", timeout_s=5)


async def test_a_withdrawn_pull_leaves_the_jobs_to_others(connect: Connect) -> None:
    bus, other = await connect(), await connect()
    gone, found = Received[WorkItem](), Received[WorkItem]()
    pull = await other.work.pull(MODEL, gone.add)
    pull.grant(8)
    await pull.stop()
    await bus.work.put(MODEL, b"job", message_id="1", timeout_s=5)
    (await bus.work.pull(MODEL, found.add)).grant(1)
    assert (await found.wait(1))[0].payload == b"job"
    assert gone.items == []


# --- buckets


async def test_a_watcher_is_told_what_is_there_and_then_every_change(connect: Connect) -> None:
    writer, reader = await connect(), await connect()
    await writer.instances.put("gateway.a", b"1")
    await writer.instances.put("gateway.b", b"1")
    await writer.instances.put("gateway.b", b"2")
    changes = Changes()
    await reader.instances.watch(changes.change)
    assert dict(changes.items) == {"gateway.a": b"1", "gateway.b": b"2"}
    seen = len(changes.items)
    await writer.instances.put("gateway.a", b"3")
    await writer.instances.delete("gateway.b")
    await changes.wait(seen + 2)
    assert changes.items[seen:] == [("gateway.a", b"3"), ("gateway.b", None)]


async def test_watching_an_empty_bucket_returns(connect: Connect) -> None:
    bus = await connect()
    changes = Changes()
    with anyio.fail_after(5):
        await bus.models.watch(changes.change)
    assert changes.items == []
    await bus.models.put("m.w", b"card")
    assert await changes.wait(1) == [("m.w", b"card")]


async def test_a_deleted_key_is_not_told_to_a_later_watcher(connect: Connect) -> None:
    bus = await connect()
    await bus.models.put("m.a", b"1")
    await bus.models.put("m.b", b"1")
    await bus.models.delete("m.b")
    changes = Changes()
    await bus.models.watch(changes.change)
    assert changes.items == [("m.a", b"1")]


async def test_a_stopped_watcher_is_told_nothing_more(connect: Connect) -> None:
    bus = await connect()
    stopped, kept = Changes(), Changes()
    watch = await bus.models.watch(stopped.change)
    await bus.models.watch(kept.change)
    await watch.stop()
    await bus.models.put("m.w", b"card")
    await kept.wait(1)
    assert stopped.items == []


@pytest.mark.parametrize("limits", [Limits(registration_ttl_s=1.0)])
async def test_a_key_that_is_not_renewed_expires_for_watchers(connect: Connect) -> None:
    bus = await connect()
    changes = Changes()
    await bus.instances.watch(changes.change)
    await bus.instances.put("worker.dead", b"1")
    await bus.instances.put("worker.live", b"1")
    with anyio.fail_after(10):
        while ("worker.dead", None) not in changes.items:
            await bus.instances.put("worker.live", b"2")
            await anyio.sleep(0.02)  # the heartbeat under test
    assert ("worker.live", None) not in changes.items


# --- blobs


@pytest.mark.parametrize("size", [0, 10, 3 << 20])
async def test_a_blob_comes_back_whole_on_another_connection(connect: Connect, size: int) -> None:
    writer, reader = await connect(), await connect()
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    await writer.blobs.put("sha256-abc", data)
    await writer.blobs.put("sha256-abc", data)
    assert await reader.blobs.get("sha256-abc") == data


async def test_an_absent_blob_is_a_key_error_and_deleting_it_is_not(connect: Connect) -> None:
    bus = await connect()
    with pytest.raises(KeyError):
        await bus.blobs.get("nothing")
    await bus.blobs.delete("nothing")
    await bus.blobs.put("a", b"1")
    await bus.blobs.delete("a")
    with pytest.raises(KeyError):
        await bus.blobs.get("a")
