"""Jobs wait in the postprocessor, in fair order, while all slots are taken."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest

from tests.services.postprocessor_bench import CARD, MODEL, Bench, bench, stream, turns, until
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.messages import (
    Accepted,
    Cancel,
    Failed,
    Held,
    Instance,
    Job,
    Room,
    Rooms,
    Sampling,
    decode_cancel,
    decode_job,
    encode,
)

pytestmark = pytest.mark.anyio

AHEAD = 2
OUT = CARD.slots + AHEAD


async def backlog(b: Bench, owner: str, count: int, **fields: object) -> None:
    for number in range(count):
        one = stream(f"{owner}{number:03}", owner=owner, **fields)
        assert isinstance(await b.gateway.hand_over(one), Accepted)


async def finish(b: Bench, job: Job, tokens: int = 1) -> None:
    """A worker runs a job to its end."""
    await b.worker.send(b.worker.delta(job, "x" * tokens, finish="length"))
    await b.gateway.last(job.request_id)


async def served(b: Bench, count: int) -> list[str]:
    """The requests in the order in which workers got them, while `count` are run to their end."""
    for _ in range(count):
        before = len(b.worker.items)
        done = {delta.request_id for frame in b.gateway.frames for delta in frame.deltas}
        jobs = [decode_job(item.payload) for item in b.worker.items]
        job = next(one for one in jobs if one.request_id not in done)
        await finish(b, job)
        await until(lambda before=before: len(b.worker.items) > before)
    return order(b)


def order(b: Bench) -> list[str]:
    return [decode_job(item.payload).request_id for item in b.worker.items]


async def test_the_queue_is_kept_short_and_a_slot_never_idle() -> None:
    async with bench() as b:
        await backlog(b, "a", OUT + 3)
        await turns()
        assert len(b.worker.items) == OUT
        for number in range(1, 4):
            await finish(b, (await b.worker.jobs())[number])
            await until(lambda number=number: len(b.worker.items) == OUT + number)
        assert order(b) == sorted(order(b)), "first come, first served within an owner"


async def test_a_job_says_how_long_it_waited_for_its_turn() -> None:
    async with bench() as b:
        await backlog(b, "a", OUT + 1)
        await turns()
        b.time.pass_s(7)
        await finish(b, (await b.worker.jobs())[0])
        await until(lambda: len(b.worker.items) == OUT + 1)
        waited = [decode_job(item.payload).waited_s for item in b.worker.items]
    assert waited == [0.0] * OUT + [7.0]


async def test_who_did_not_wait_goes_before_the_backlog_of_another() -> None:
    async with bench() as b:
        await backlog(b, "heavy", OUT + 10)
        await backlog(b, "light", 1)
        assert (await served(b, 1))[OUT:] == ["light000"]


async def test_owners_get_the_workers_by_their_weights() -> None:
    async with bench() as b:
        await backlog(b, "first", OUT)
        short = Sampling(max_tokens=1)
        await backlog(b, "a", 30, weight=1, sampling=short)
        await backlog(b, "b", 30, weight=3, sampling=short)
        got = Counter(name[0] for name in (await served(b, 24))[OUT:])
        assert got["a"] + got["b"] == 24
        assert abs(got["b"] - 18) <= 1


async def test_long_answers_count_for_more_than_short_ones() -> None:
    """What an answer costs is known when it is there: until then it is guessed."""
    async with bench() as b:
        await backlog(b, "first", OUT)
        await backlog(b, "long", 30)
        await backlog(b, "short", 30)
        done: set[str] = set()
        got: Counter[str] = Counter()
        for _ in range(40):
            jobs = [decode_job(item.payload) for item in b.worker.items]
            job = next(one for one in jobs if one.request_id not in done)
            done.add(job.request_id)
            tokens = 90 if job.request_id.startswith("long") else 10
            got[job.request_id[:-3]] += tokens
            before = len(b.worker.items)
            await finish(b, job, tokens)
            await until(lambda before=before: len(b.worker.items) > before)
        assert got["short"] > 0
        requests = Counter(name[:-3] for name in done)
        assert requests["short"] > 2 * requests["long"]


async def test_who_is_cancelled_while_waiting_leaves_at_once_and_never_reaches_a_worker() -> None:
    async with bench() as b:
        await backlog(b, "a", OUT + 2)
        await b.gateway.cancel(f"a{OUT:03}")
        failed = (await b.gateway.last(f"a{OUT:03}")).failed
        assert failed is not None
        assert failed.code == "cancelled"
        assert (await served(b, 1))[OUT:] == [f"a{OUT + 1:03}"]


async def test_a_deadline_holds_for_who_waits() -> None:
    async with bench() as b:
        await backlog(b, "a", OUT)
        await backlog(b, "late", 1, deadline_ms=b.time.now_ms + 5000)
        b.time.pass_s(6)
        b.postprocessor.tick()
        failed = (await b.gateway.last("late000")).failed
        assert failed is not None
        assert failed.code == "deadline"
        assert b.metric("dead_letters_total", reason="expired") == 1


async def test_a_full_waiting_room_refuses_and_says_when_by_the_owners_own_pace() -> None:
    async with bench(max_queue_jobs=OUT + 1) as b:
        await backlog(b, "a", OUT + 1)
        failed = await b.gateway.hand_over(stream("more", owner="b"))
        assert isinstance(failed, Failed)
        assert (failed.code, failed.status, failed.retry_after_s) == ("overloaded", 429, 1)
        await served(b, 1)
        b.time.pass_s(10)
        failed = await b.gateway.hand_over(stream("more", owner="a", num_choices=2))
        assert isinstance(failed, Failed)
        assert failed.retry_after_s == 30


async def test_arrival_order_leaves_it_to_the_queue() -> None:
    async with bench(queue_order="arrival") as b:
        await backlog(b, "a", OUT + 5)
        await until(lambda: len(b.worker.items) == OUT + 5)


async def test_where_nothing_waits_fair_order_costs_no_message() -> None:
    sent: list[int] = []
    for queue_order in ("arrival", "fair"):
        async with bench(queue_order=queue_order) as b:
            before = b.runtime.bus.stats()
            for number in range(20):
                (job,) = await b.opened(stream(f"r{number}"))
                await finish(b, job)
            await turns()
            after = b.runtime.bus.stats()
            sent.append(after.messages_out - before.messages_out)
    assert sent[0] == sent[1]


async def another(b: Bench) -> None:
    """A second postprocessor is there."""
    here = Instance(service="postprocessor", instance="post-2", pid=1)
    await b.worker.bus.instances.put("postprocessor.post-2", encode(here))
    await until(lambda: b.runtime.directory.instances("postprocessor"))


async def tell(b: Bench, *rooms: Room) -> None:
    await b.worker.bus.publish(subjects.ROOMS, encode(Rooms(1, "post-2", rooms)))


async def test_what_another_has_out_leaves_less_here_and_one_may_always_wait_in_the_queue() -> None:
    async with bench() as b:
        await another(b)
        await tell(b, Room(MODEL, out=OUT, waiting=5))
        await turns()
        await backlog(b, "a", 3)
        await turns()
        assert len(b.worker.items) == 1
        await tell(b, Room(MODEL, out=OUT - 2, waiting=5))
        await until(lambda: len(b.worker.items) == 2)
        await tell(b)
        await until(lambda: len(b.worker.items) == 3)


async def test_what_another_gave_an_owner_counts_here() -> None:
    async with bench() as b:
        await another(b)
        await backlog(b, "first", OUT)
        await backlog(b, "a", 5)
        await backlog(b, "b", 5)
        await tell(b, Room(MODEL, out=0, waiting=0, spent={"a": 1e6}))
        await turns()
        assert [name[0] for name in (await served(b, 4))[OUT:]] == ["b"] * 4


async def test_who_waits_is_passed_on_when_the_process_ends_and_another_is_there() -> None:
    async with bench(drain_s=1.5) as b:
        await another(b)
        await backlog(b, "a", OUT + 1)
        await b.postprocessor.drain()
        ends = {name: (await b.gateway.last(name)).failed for name in ("a000", f"a{OUT:03}")}
        assert [failed and failed.unqueued for failed in ends.values()] == [False, True]


async def test_who_waited_at_one_that_died_waits_its_turn_here_before_the_owners_own() -> None:
    async with bench() as b:
        await backlog(b, "a", OUT + 2)
        taken = stream("old", owner="a", started=(), term=16)
        assert isinstance(await b.gateway.hand_over(taken), Accepted)
        b.time.pass_s(6)
        b.postprocessor.tick()
        b.time.pass_s(60)
        b.postprocessor.tick()
        await turns()
        assert len(b.worker.items) == OUT
        assert (await served(b, 2))[OUT:] == ["old", f"a{OUT:03}"]
        again = [decode_job(item.payload).attempt for item in b.worker.items][OUT]
        assert again == 1


@pytest.mark.parametrize("hangs", [False, True])
async def test_whoever_had_a_stream_before_is_told_to_let_go_of_it(hangs: bool) -> None:
    async with bench() as b:
        await another(b)
        heard: list[bytes] = []
        await b.worker.bus.subscribe(subjects.control("post-2"), heard.append)
        if hangs:  # it hears when it goes on
            b.postprocessor.tick()
            await b.worker.bus.instances.delete("postprocessor.post-2")
            await until(lambda: not b.runtime.directory.instances("postprocessor"))
            b.postprocessor.tick()
        assert isinstance(await b.gateway.hand_over(stream("r", term=16)), Accepted)
        await until(lambda: heard)
        cancel = decode_cancel(heard[0])
        assert (cancel.request_id, cancel.term, cancel.choice) == ("r", 16, None)


async def test_a_stream_that_a_later_owner_had_is_not_taken_from_a_preprocessor_that_had_hung() -> (
    None
):
    """Its jobs would be repetitions to the queue, so it would fill a place until its deadline."""
    async with bench() as b:
        let_go = encode(Cancel(request_id="r", reason="taken over", term=16))
        await b.gateway.bus.publish(subjects.control("post-1"), let_go)
        await turns()
        late = await b.gateway.hand_over(stream("r"))
        assert isinstance(late, Failed)
        assert late.code == "unavailable"
        assert isinstance(await b.gateway.hand_over(stream("r", term=16)), Accepted)


async def test_who_is_cancelled_while_workers_are_told_of_its_owner_is_never_queued() -> None:
    asked, told = anyio.Event(), anyio.Event()

    async def answer(_: bytes) -> bytes:
        asked.set()
        await told.wait()
        return encode(Held())

    async def hand_over(b: Bench) -> None:
        assert isinstance(await b.gateway.hand_over(stream("r", term=16)), Accepted)

    async with bench() as b, anyio.create_task_group() as tasks:
        await b.worker.bus.serve(
            subjects.control(b.worker.name), "control", answer, max_in_flight=1
        )
        tasks.start_soon(hand_over, b)
        with anyio.fail_after(10):
            await asked.wait()
        await b.gateway.cancel("r", term=16)
        await b.gateway.last("r")
        told.set()
        await turns()
        assert order(b) == []


async def test_choices_wait_as_jobs_of_their_own() -> None:
    async with bench(broker=MemoryBroker(max_queue_jobs=100)) as b:
        await backlog(b, "a", OUT - 1)
        one = stream("n", owner="a", num_choices=3, sampling=Sampling(max_tokens=5))
        assert isinstance(await b.gateway.hand_over(one), Accepted)
        await turns()
        assert order(b)[OUT - 1 :] == ["n"]
        assert (await served(b, 1))[OUT - 1 :] == ["n", "n"]
