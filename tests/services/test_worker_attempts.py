"""Attempts at a run, cancels of one of them, and jobs that no worker survives."""

from __future__ import annotations

import json

import msgspec
import pytest

from services.worker.cancels import Cancels
from services.worker.scripted.engine import ScriptedEngine
from tests.services.worker_kit import (
    MODEL,
    Bench,
    ids,
    job,
    model,
    script,
    scripted,
    turns,
    until,
    working,
)
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.bus.port import WorkItem
from toolrail.messages import Cancel, Sampling, encode

pytestmark = pytest.mark.anyio

SLOW = {"text": "a" * 60, "delay_ms": 5}


async def tell(bench: Bench, cancel: Cancel) -> None:
    await bench.bus.publish(subjects.cancel(MODEL), encode(cancel))


async def test_a_cancel_of_older_attempts_leaves_the_newer_one_running() -> None:
    async with working(scripted(SLOW)) as bench:
        await bench.put(job(attempt=2, prefix_token_ids=ids("aaa")))
        await bench.inbox.until(bench.inbox.deltas)
        await tell(bench, Cancel(request_id="r", choice=0, attempt=1))
        assert (await bench.inbox.ended()).finish == "stop"


async def test_an_older_attempt_that_comes_late_never_reaches_the_engine() -> None:
    """It was delivered to a worker that died, and a newer one is under way elsewhere."""
    engine = scripted(SLOW)
    async with working(engine) as bench:
        await bench.put(job("first"))
        await bench.inbox.until(lambda: bench.inbox.deltas("first"))
        await tell(bench, Cancel(request_id="r", choice=0, attempt=1))
        await turns()
        await bench.put(job(attempt=1))
        assert (await bench.inbox.ended()).finish == "abort"
        assert engine.started == 1
        await bench.put(job(attempt=2))
        await bench.inbox.until(lambda: bench.inbox.deltas()[-1].epoch == 2)
        assert engine.started == 2


async def test_a_cancel_for_another_worker_is_not_obeyed() -> None:
    async with working(scripted(SLOW)) as bench:
        await bench.put(job())
        await bench.inbox.until(bench.inbox.deltas)
        await tell(bench, Cancel(request_id="r", choice=0, attempt=0, worker="worker-2"))
        assert (await bench.inbox.ended()).finish == "stop"
        await bench.put(job("s"))
        await bench.inbox.until(lambda: bench.inbox.deltas("s"))
        await tell(bench, Cancel(request_id="s", choice=0, attempt=0, worker="worker-1"))
        assert (await bench.inbox.ended("s")).finish == "abort"


def test_of_two_cancels_the_wider_one_is_remembered() -> None:
    cancels = Cancels(keep_s=10, limit=10, clock=lambda: 0)
    for attempt, hit in ((2, [True, False]), (1, [True, False]), (None, [True, True])):
        cancels.add(Cancel(request_id="r", choice=0, attempt=attempt))
        assert [cancels.hit(job(attempt=number)) for number in (2, 3)] == hit


def test_of_two_owners_cancels_that_of_the_later_one_is_remembered() -> None:
    cancels = Cancels(keep_s=10, limit=10, clock=lambda: 0)
    for term, attempt in ((16, 1), (0, None)):
        cancels.add(Cancel(request_id="r", choice=0, attempt=attempt, term=term))
        assert [cancels.hit(job(attempt=1), term) for term in (0, 16, 32)] == [True, True, False]
        assert not cancels.hit(job(attempt=2))


async def test_a_job_that_no_worker_survives_is_answered_and_leaves_a_record() -> None:
    broker = MemoryBroker()
    bus = broker.connect()
    items: list[WorkItem] = []
    pull = await bus.work.pull(MODEL, items.append)
    await bus.work.put(MODEL, encode(job()), message_id="r", timeout_s=1)
    for _ in range(2):  # each gives it back, as the queue does for one that dies
        pull.grant(1)
        await until(lambda: items)
        await items.pop().nak()
    await pull.stop()
    engine = scripted(SLOW)
    async with working(engine, broker=broker, max_deliveries=2) as bench:
        end = await bench.inbox.ended()
        assert (end.finish, end.error_code) == ("error", "engine")
        await until(lambda: broker.lines.buried and not len(broker.lines))
    assert engine.started == 0
    ((model, record),) = broker.lines.buried
    letter = json.loads(record)
    assert (model, letter["reason"], letter["request_id"]) == (MODEL, "undeliverable", "r")
    assert letter["deliveries"] == 3
    assert "prompt_token_ids" not in letter


async def test_a_job_that_cannot_be_read_leaves_a_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = MemoryBroker()
    async with working(scripted(SLOW), broker=broker) as bench:
        await bench.bus.work.put(MODEL, b"\xc1", message_id="x", timeout_s=1)
        later = msgspec.msgpack.encode({"type": "Job", "request_id": "r", "model": [MODEL]})
        await bench.bus.work.put(MODEL, later, message_id="y", timeout_s=1)
        await until(lambda: len(broker.lines.buried) == 2)
    letters = [json.loads(record) for _, record in broker.lines.buried]
    assert [letter["reason"] for letter in letters] == ["undecodable"] * 2
    assert {letter.get("request_id", "") for letter in letters} == {"", "r"}
    said = [each for each in caplog.records if each.message == "undecodable job dropped"]
    assert {each.__dict__["request_id"] for each in said} == {"", "r"}


async def test_a_run_that_only_lacks_its_end_gets_it_though_the_context_is_full() -> None:
    engine = ScriptedEngine(model(context_length=8), script({"text": "abcdefghij"}))
    async with working(engine) as bench:
        full = job(prompt="hi", prefix_token_ids=ids("abcdef"), sampling=Sampling(max_tokens=6))
        await bench.put(full)
        end = await bench.inbox.ended()
        assert (end.finish, end.token_ids) == ("length", ())
        await bench.put(job("s", prompt="too long", sampling=Sampling(max_tokens=6)))
        assert (await bench.inbox.ended("s")).error_code == "invalid_request"
