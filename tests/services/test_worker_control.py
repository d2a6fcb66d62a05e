"""Sending again, and to another address: the worker's side of take-over."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from prometheus_client import CollectorRegistry

from services.worker.control import Control
from services.worker.kept import ORPHAN_S, Kept
from services.worker.outbox import Outbox
from tests.services.worker_kit import (
    REPLY,
    Bench,
    Inbox,
    ids,
    job,
    scripted,
    until,
    working,
)
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.errors import NoRespondersError
from toolrail.messages import (
    Cancel,
    Done,
    Held,
    Resend,
    Sampling,
    TokenDelta,
    TokenLogprob,
    TopLogprob,
    Want,
    decode_held,
    encode,
)

pytestmark = pytest.mark.anyio

OTHER = subjects.tokens("post-2")
CONTROL = subjects.control("worker-1")
SLOW = {"text": "a" * 60, "delay_ms": 5}


async def ask(bench: Bench, address: str, *wants: Want) -> Held:
    order = encode(Resend(reply_subject=address, wants=wants))
    with anyio.fail_after(10):
        while True:
            try:
                answer = await bench.bus.request(CONTROL, order, timeout_s=10)
            except NoRespondersError:  # it is still starting
                await anyio.lowlevel.checkpoint()
            else:
                return decode_held(answer)


async def other_inbox(bench: Bench) -> Inbox:
    inbox = Inbox()
    await bench.bus.subscribe(OTHER, inbox.receive)
    return inbox


def facts(deltas: list[TokenDelta]) -> list[Any]:
    return [(d.seq, d.token_ids, d.finish, d.cached_tokens, d.logprobs) for d in deltas]


async def test_a_running_stream_is_sent_again_from_its_start_and_goes_on_elsewhere() -> None:
    async with working(scripted(SLOW)) as bench:
        other = await other_inbox(bench)
        await bench.put(job(sampling=Sampling(max_tokens=1000, logprobs=2)))
        await bench.inbox.until(lambda: len(bench.inbox.deltas()) > 5)
        held = await ask(bench, OTHER, Want("r", 0, -1, 1))
        assert held.wants == (0,)
        before = len(bench.inbox.deltas())
        await other.ended()
        # Each of them once, the ones that the first owner had as it had them.
        assert facts(other.deltas())[: len(bench.inbox.deltas())] == facts(bench.inbox.deltas())
        assert [d.seq for d in other.deltas()] == list(range(61))
        assert len(bench.inbox.deltas()) <= before + 1  # none but what was under way


async def test_a_stream_that_has_ended_is_there_until_it_is_acknowledged() -> None:
    async with working(scripted({"text": "abc"})) as bench:
        other = await other_inbox(bench)
        await bench.put(job())
        await bench.inbox.ended()
        assert (await ask(bench, OTHER, Want("r", 0, -1, 1))).wants == (0,)
        await other.ended()
        assert facts(other.deltas()) == facts(bench.inbox.deltas())
        stale, done = (encode(Done(reply_subject=to, request_ids=("r",))) for to in (REPLY, OTHER))
        await bench.bus.request(CONTROL, stale, timeout_s=10)
        assert (await ask(bench, OTHER, Want("r", 0, -1, 1))).wants == (0,)
        await bench.bus.publish(CONTROL, done)
        with anyio.fail_after(10):
            while (await ask(bench, OTHER, Want("r", 0, -1, 1))).wants:
                pass


async def test_a_gap_is_filled_for_the_owner_and_for_nobody_else() -> None:
    async with working(scripted({"text": "abc"})) as bench:
        other = await other_inbox(bench)
        await bench.put(job())
        await bench.inbox.ended()
        first = bench.inbox.deltas()
        assert (await ask(bench, OTHER, Want("r", 0, 2))).wants == ()
        assert (await ask(bench, REPLY, Want("r", 0, 2))).wants == (0,)
        await bench.inbox.until(lambda: len(bench.inbox.deltas()) == 6)
        assert facts(bench.inbox.deltas()[4:]) == facts(first[2:])
        assert other.deltas() == []


async def test_a_run_that_is_not_known_any_more_is_lost_for_who_waits_for_it_alone() -> None:
    async with working(scripted({"text": "abc"})) as bench:
        await bench.put(job())
        await bench.inbox.ended()
        await bench.bus.request(
            CONTROL, encode(Done(reply_subject=REPLY, request_ids=("r",))), timeout_s=10
        )
        sent = len(bench.inbox.deltas())
        assert (await ask(bench, REPLY, Want("r", 0, -1), Want("r", 0, 3, attempt=2))).wants == ()
        await bench.inbox.until(lambda: len(bench.inbox.deltas()) > sent)
        (lost,) = bench.inbox.deltas()[sent:]
        assert (lost.epoch, lost.seq, lost.finish, lost.error_code) == (2, 3, "error", "lost")


async def test_a_run_that_has_a_slot_is_not_lost_before_its_first_delta() -> None:
    async with working(scripted({"text": "abc", "ttft_ms": 3_600_000})) as bench:
        await bench.put(job())
        with anyio.fail_after(10):
            while not (await ask(bench, REPLY, Want("r", 0, 0, attempt=0))).wants:
                pass
        lost = len(bench.inbox.deltas())  # asked for before it had come
        assert (await ask(bench, REPLY, Want("r", 0, 0, attempt=0))).wants == (0,)
        await bench.cancel("r")
        await bench.inbox.until(lambda: len(bench.inbox.deltas()) > lost)
        assert bench.inbox.deltas()[-1].finish == "abort"


async def test_a_job_that_is_not_there_yet_is_readdressed_when_it_comes() -> None:
    async with working(scripted({"text": "abc"})) as bench:
        other = await other_inbox(bench)
        assert (await ask(bench, OTHER, Want("r", 0, -1, 1))).wants == ()
        await bench.put(job())
        await other.ended()
        assert other.text() == "abc"
        assert bench.inbox.deltas() == []


async def test_an_owner_taken_for_dead_can_neither_end_the_stream_nor_take_it_back() -> None:
    async with working(scripted(SLOW)) as bench:
        other = await other_inbox(bench)
        await bench.put(job())
        await bench.inbox.until(bench.inbox.deltas)
        await ask(bench, OTHER, Want("r", 0, -1, 1))
        await bench.cancel("r")  # of term 0
        assert (await ask(bench, REPLY, Want("r", 0, 0))).wants == ()
        assert (await other.ended()).finish == "stop"
        assert other.text() == "a" * 60


async def test_the_owner_of_the_latest_term_cancels() -> None:
    async with working(scripted(SLOW)) as bench:
        other = await other_inbox(bench)
        await bench.put(job())
        await bench.inbox.until(bench.inbox.deltas)
        await ask(bench, OTHER, Want("r", 0, -1, 1))
        cancel = encode(Cancel(request_id="r", term=1))
        await bench.bus.publish(subjects.cancel("tiny"), cancel)
        assert (await other.ended()).finish == "abort"


async def test_who_asks_and_was_outranked_is_told_by_whom() -> None:
    async with working(scripted(SLOW)) as bench:
        await bench.put(job())
        await bench.inbox.until(bench.inbox.deltas)
        await ask(bench, OTHER, Want("r", 0, -1, 16))
        sent = len(bench.inbox.deltas())
        await ask(bench, REPLY, Want("r", 0, 0))
        await bench.inbox.until(lambda: len(bench.inbox.deltas()) > sent)
        (told,) = bench.inbox.deltas()[sent:]
        assert (told.outranked, told.token_ids, told.finish) == (16, (), None)


async def test_a_former_owner_does_not_end_what_the_latest_one_reads() -> None:
    async with working(scripted(SLOW)) as bench:
        other = await other_inbox(bench)
        await bench.put(job())
        await bench.inbox.until(bench.inbox.deltas)
        await ask(bench, OTHER, Want("r", 0, -1, 16))
        await bench.put(job(attempt=1))
        assert (await other.ended()).finish == "stop"
        assert {delta.epoch for delta in other.deltas()} == {0}
        assert other.text() == "a" * 60
        await until(lambda: not len(bench.bus._broker.lines))  # it was acknowledged


async def test_a_complete_answer_stops_its_run_and_is_sent_again_all_the_same() -> None:
    async with working(scripted({"text": "a" * 60, "delay_ms": 20})) as bench:
        other = await other_inbox(bench)
        await bench.put(job())
        await bench.inbox.until(lambda: len(bench.inbox.deltas()) > 3)
        cancel = Cancel(request_id="r", choice=0, attempt=0, complete=True)
        await bench.bus.publish(subjects.cancel("tiny"), encode(cancel))
        assert (await bench.inbox.ended()).finish == "abort"
        assert (await ask(bench, OTHER, Want("r", 0, -1, 16))).wants == (0,)
        await other.ended()
        assert facts(other.deltas()) == facts(bench.inbox.deltas())


async def test_a_cancel_of_a_former_owner_does_not_reach_later_attempts() -> None:
    async with working(scripted(SLOW)) as bench:
        other = await other_inbox(bench)
        cancel = encode(Cancel(request_id="r"))
        await bench.bus.publish(subjects.cancel("tiny"), cancel)
        await ask(bench, OTHER, Want("r", 0, -1, 16))
        await bench.put(job(attempt=1, reply_subject=OTHER))
        assert (await other.ended()).finish == "stop"


@pytest.mark.parametrize("logprobs", [None, 1])
async def test_a_new_owner_gets_what_earlier_attempts_wrote_or_hears_that_it_cannot(
    logprobs: int | None,
) -> None:
    sampling = Sampling(max_tokens=1000, logprobs=logprobs)
    async with working(scripted({"text": "abcd"})) as bench:
        other = await other_inbox(bench)
        await ask(bench, OTHER, Want("r", 0, -1, 1))
        await bench.put(job(attempt=1, prefix_token_ids=ids("ab"), sampling=sampling))
        await other.until(other.deltas)
        if logprobs is None:
            await other.ended()
            assert other.text() == "abcd"
        else:
            first = other.deltas()[0]
            assert (first.finish, first.error_code) == ("error", "lost")


async def test_ids_of_earlier_attempts_come_with_the_first_delta() -> None:
    control_job = job(attempt=2, prefix_token_ids=(7, 8))
    kept = Kept(limit=100, keep_s=60, clock=lambda: 0.0)
    sent = kept.begin(control_job, REPLY)
    kept.add(sent, TokenDelta("r", 0, 2, 0, (9,)))
    kept.add(sent, TokenDelta("r", 0, 2, 1, (10,), "stop"))
    assert [d.token_ids for d in sent.deltas(-1)] == [(7, 8, 9), (10,)]
    assert [d.token_ids for d in sent.deltas(0)] == [(9,), (10,)]
    assert {d.epoch for d in sent.deltas(-1)} == {2}


def test_of_earlier_attempts_no_logprobs_are_known() -> None:
    with_logprobs = Sampling(max_tokens=9, logprobs=1)
    kept = Kept(limit=100, keep_s=60, clock=lambda: 0.0)
    sent = kept.begin(job(prefix_token_ids=(7,), sampling=with_logprobs), REPLY)
    kept.add(sent, TokenDelta("r", 0, 1, 0, (9,), logprobs=(TokenLogprob(9, -0.1),)))
    assert not sent.can_send(-1)
    assert sent.can_send(0)


def test_what_is_kept_is_bounded_and_the_oldest_that_ended_goes_first() -> None:
    kept = Kept(limit=20, keep_s=60, clock=lambda: 0.0)
    for name in ("a", "b"):
        sent = kept.begin(job(name), REPLY)
        kept.add(sent, TokenDelta(name, 0, 0, 0, ids("x" * 6), "stop"))
    running = kept.begin(job("c"), REPLY)
    kept.add(running, TokenDelta("c", 0, 0, 0, ids("y" * 10)))
    assert [bool(kept.of(name)) for name in "abc"] == [False, True, True]
    kept.add(running, TokenDelta("c", 0, 0, 1, ids("y" * 30)))
    assert not running.can_send(0)
    assert kept.weight == 0
    kept.add(running, TokenDelta("c", 0, 0, 2, ids("y" * 30), "stop"))
    assert kept.weight == 0


def test_a_logprob_weighs_more_than_an_id() -> None:
    kept = Kept(limit=100, keep_s=60, clock=lambda: 0.0)
    sent = kept.begin(job(), REPLY)
    tops = tuple(TopLogprob(n, -1.0) for n in range(4))
    kept.add(sent, TokenDelta("r", 0, 0, 0, (1,), logprobs=(TokenLogprob(1, -0.1, tops),)))
    assert not sent.can_send(0)


def test_what_nobody_acknowledges_expires() -> None:
    now = 0.0
    kept = Kept(limit=100, keep_s=60, clock=lambda: now)
    kept.add(kept.begin(job("a"), REPLY), TokenDelta("a", 0, 0, 0, (1,), "stop"))
    kept.add(kept.begin(job("b"), REPLY), TokenDelta("b", 0, 0, 0, (1,)))
    kept.add(kept.begin(job("c"), OTHER), TokenDelta("c", 0, 0, 0, (1,), "stop"))
    now = ORPHAN_S
    kept.expire({REPLY})
    assert [bool(kept.of(name)) for name in "abc"] == [True, True, False]
    now = 61.0
    kept.expire({REPLY})
    assert (kept.of("a"), len(kept.of("b"))) == ([], 1)
    kept.drop("b")
    assert (len(kept), kept.weight) == (0, 0)


async def test_an_order_nobody_can_read_is_answered_all_the_same() -> None:
    outbox = Outbox(MemoryBroker().connect(), "worker-1")
    answer = await Control(outbox, CollectorRegistry(), kept_tokens=1, keep_s=1).answer(b"\xc1")
    assert decode_held(answer) == Held()
