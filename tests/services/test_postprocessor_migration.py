"""A run that loses its worker: what is queued, what is told, what the client sees."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.postprocessor.batch import Batch
from services.postprocessor.stream import RequestStream, Timeouts
from services.postprocessor.streams import Streams
from tests.services.postprocessing import ToyParser, choice, delta, ids, plain_choice
from tests.services.postprocessor_bench import (
    MODEL,
    SETTINGS,
    bench,
    content,
    stream,
    turns,
    until,
)
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.events import CallEnd, CallStart, TextDelta, assemble
from toolrail.messages import (
    ChoiceEnd,
    FinishReason,
    Job,
    Output,
    Sampling,
    TokenDelta,
    TokenFrame,
    Usage,
    decode_job,
)
from toolrail.telemetry import Telemetry

TIMEOUTS = Timeouts(idle_s=10, unstarted_s=100, resend_s=2, max_resends=2)


def first_job(choice: int = 0, **fields: Any) -> Job:
    usual: dict[str, Any] = {"sampling": Sampling(max_tokens=50, seed=7), "reply_subject": "post"}
    return Job(
        request_id="r", choice=choice, model="m", prompt_token_ids=(1, 2), **(usual | fields)
    )


def owned(*choices: Any, limit: int = 3) -> tuple[Streams, RequestStream]:
    made = RequestStream(
        request_id="r", model="m", reply_subject="g", prompt_tokens=2, deadline_ms=0
    )
    made.migration_limit = limit
    made.begin(choices, [first_job(position) for position in range(len(choices))], now_s=0)
    streams = Streams(TIMEOUTS)
    streams.add(made)
    return streams, made


def frame(*deltas: TokenDelta, worker: str = "w1") -> TokenFrame:
    return TokenFrame(1, worker, 0, deltas)


def moved(batch: Batch) -> list[Job]:
    found = (happening.outcome.migration for happening in batch.happenings)
    return [migration.job for migration in found if migration is not None]


def failure(batch: Batch) -> str | None:
    deltas = batch.events.get("g", [])
    return next((one.failed.code for one in deltas if one.failed is not None), None)


def test_the_next_attempt_is_the_same_job_with_the_ids_so_far() -> None:
    streams, _ = owned(plain_choice())
    streams.on_frame(frame(delta("ab"), delta("c", 1)), 1)
    batch = streams.lose({"w1"}, 1, now_s=3)
    (job,) = moved(batch)
    assert job == first_job(attempt=1, prefix_token_ids=ids("abc"))
    assert batch.events == {}  # the client sees nothing of it
    ((model, cancel),) = batch.cancels
    assert (model, cancel.choice, cancel.attempt) == ("m", 0, 0)


def test_the_stream_goes_on_where_it_was_and_is_counted_once() -> None:
    streams, made = owned(choice(parser=ToyParser()))
    first = streams.on_frame(frame(delta("{ab}[f:12", cached_tokens=1)), 1)
    streams.lose({"w1"}, 0, now_s=2)
    last = streams.on_frame(
        frame(delta("34]", 0, epoch=1, finish="stop", cached_tokens=2), worker="w2"), 5
    )
    events = [event for batch in (first, last) for d in batch.events["g"] for event in d.events]
    assert [type(event) for event in events].count(CallStart) == 1
    assert assemble(events).calls[0].arguments == "1234"
    assert events[-1] == CallEnd(0)
    assert last.events["g"][-1].usage == Usage(2, 12, 1, 3)
    assert [h.outcome.resumed_s for h in last.happenings] == [4]
    assert made.over


def test_what_the_lost_worker_still_sends_is_dropped_and_it_alone_is_told() -> None:
    streams, _ = owned(plain_choice())
    streams.on_frame(frame(delta("a")), 0)
    streams.lose({"w1"}, 0, now_s=1)
    late = streams.on_frame(frame(delta("b", 1)), 2)
    assert (late.events, late.dropped) == ({}, ["old_epoch"])
    ((_, cancel),) = late.cancels
    assert (cancel.worker, cancel.attempt, cancel.choice) == ("w1", 0, 0)
    assert streams.on_frame(frame(delta("c", 2)), 2.5).cancels == []
    assert streams.on_frame(frame(delta("d", 3)), 3).cancels != []
    new = streams.on_frame(frame(delta("x", 0, epoch=1), worker="w2"), 4)
    assert [d.events for d in new.events["g"]] == [(TextDelta("x"),)]


def test_a_second_worker_on_one_attempt_is_told_to_stop() -> None:
    streams, _ = owned(plain_choice())
    streams.on_frame(frame(delta("a")), 0)
    ((_, cancel),) = streams.on_frame(frame(delta("z"), worker="w2"), 0).cancels
    assert (cancel.worker, cancel.attempt) == ("w2", 0)


@pytest.mark.parametrize(
    ("finish", "code"), [("error", "lost"), ("abort", None)], ids=["dead engine", "given up"]
)
def test_a_worker_that_says_so_hands_its_run_over_at_once(
    finish: FinishReason, code: str | None
) -> None:
    streams, _ = owned(plain_choice())
    streams.on_frame(frame(delta("ab")), 0)
    batch = streams.on_frame(frame(delta("", 1, finish=finish, error_code=code)), 0)
    assert [job.prefix_token_ids for job in moved(batch)] == [ids("ab")]


def test_a_failure_of_the_run_itself_does_not_move_it() -> None:
    streams, _ = owned(plain_choice())
    streams.on_frame(frame(delta("ab")), 0)
    batch = streams.on_frame(frame(delta("", 1, finish="error")), 0)
    assert (moved(batch), failure(batch)) == ([], "engine")


def test_silence_moves_a_run() -> None:
    streams, _ = owned(plain_choice())
    streams.on_frame(frame(delta("ab")), 0)
    assert moved(streams.expire(9.9, 0)) == []
    assert len(moved(streams.expire(10, 0))) == 1


def test_a_gap_that_is_not_filled_moves_a_run() -> None:
    streams, _ = owned(plain_choice())
    streams.on_frame(frame(delta("a")), 0)
    jobs = moved(streams.on_frame(frame(delta("c", 2)), 0))
    for now_s in (2, 4, 6, 8):
        jobs += moved(streams.expire(now_s, 0))
    assert [job.prefix_token_ids for job in jobs] == [ids("a")]


def test_past_the_limit_it_is_one_clean_error() -> None:
    streams, made = owned(plain_choice(), limit=2)
    for attempt in range(2):
        streams.on_frame(frame(delta("a", 0, epoch=attempt), worker=f"w{attempt}"), attempt)
        assert len(moved(streams.lose({f"w{attempt}"}, 0, now_s=attempt))) == 1
    streams.on_frame(frame(delta("a", 0, epoch=2), worker="w2"), 2)
    batch = streams.lose({"w2"}, 0, now_s=3)
    assert (moved(batch), failure(batch), made.dead) == ([], "lost", "migrations")
    assert len(batch.events["g"]) == 1
    assert len(streams) == 0


def test_choices_move_each_for_itself() -> None:
    streams, _ = owned(plain_choice(), plain_choice(), plain_choice())
    streams.on_frame(frame(delta("a"), delta("b", choice=1)), 0)
    streams.on_frame(frame(delta("c", choice=2), worker="w2"), 0)
    streams.on_frame(frame(delta("", 1, finish="stop")), 0)
    assert [job.choice for job in moved(streams.lose({"w1"}, 0, now_s=1))] == [1]


def test_what_waits_for_its_verdict_is_part_of_the_prefix() -> None:
    streams, made = owned(plain_choice())
    streams.on_frame(frame(delta("ab")), 0)
    made.runs[0].held = made.runs[0].choice.feed(delta("", 1))
    streams.on_frame(frame(delta("cd", 1)), 0)
    (job,) = moved(streams.lose({"w1"}, 0, now_s=1))
    assert job.prefix_token_ids == ids("abcd")


# In the service.

anyio_mark = pytest.mark.anyio
TRACE = "0af7651916cd43dd8448eb211c80319c"


@anyio_mark
async def test_a_run_of_a_dead_worker_is_queued_again_and_finished_by_another() -> None:
    async with bench() as b:
        (job,) = await b.opened(stream(output=Output(stop=("END",))))
        await b.worker.send(b.worker.delta(job, "one E"))
        await until(lambda: b.gateway.frames)
        b.postprocessor.tick()
        await b.worker.bus.instances.delete("worker.worker-1")
        await until(lambda: not b.runtime.directory.instances("worker"))
        b.postprocessor.tick()
        b.time.pass_s(SETTINGS.heartbeat_s)
        b.postprocessor.tick()
        again = (await b.worker.jobs(2))[1]
        assert (again.attempt, again.prefix_token_ids) == (1, ids("one E"))
        assert again.sampling == job.sampling
        b.worker.name = "worker-2"
        await b.worker.send(b.worker.delta(again, "NDless", finish="stop"))
        last = await b.gateway.last()
        assert (content(b, 0), last.end) == ("one ", ChoiceEnd("stop", "END", migrations=1))
        assert last.usage is not None
        assert last.usage.completion_tokens == len("one END")
        assert b.metric("migrations_total", cause="dead") == 1
        assert b.metric("migration_seconds_count") == 1


@anyio_mark
async def test_a_full_queue_delays_a_move_and_does_not_end_it() -> None:
    broker = MemoryBroker(max_queue_jobs=2)
    async with bench(broker=broker) as b:
        (job,) = await b.opened(stream())
        await b.worker.send(b.worker.delta(job, "a"))
        await b.worker.items[0].ack()
        others = await b.opened(stream("x"), stream("y"))
        await b.worker.send(b.worker.delta(job, "", finish="error", error_code="lost"))
        await turns()
        assert b.metric("migrations_total", cause="failed") == 1
        assert len(b.worker.items) == 1 + len(others)
        await b.worker.items[1].ack()
        await until(lambda: len(b.worker.items) == 4)
        again = decode_job(b.worker.items[3].payload)
        assert (again.request_id, again.attempt) == ("r", 1)


@anyio_mark
async def test_a_move_that_finds_no_place_in_time_is_one_error_and_a_dead_letter() -> None:
    broker = MemoryBroker(max_queue_jobs=1)
    async with bench(broker=broker, migration_timeout_s=0.01) as b:
        (job,) = await b.opened(stream())
        await b.worker.send(b.worker.delta(job, "a"))
        await b.worker.send(b.worker.delta(job, "", finish="abort"))
        failed = (await b.gateway.last()).failed
        assert failed is not None
        assert (failed.code, failed.status) == ("overloaded", 429)
        await until(lambda: broker.lines.buried)
        assert b.metric("dead_letters_total", reason="migrations") == 1


@anyio_mark
@pytest.mark.parametrize("prompts", [False, True])
async def test_a_request_that_nobody_ran_leaves_a_record_and_its_place(prompts: bool) -> None:
    broker = MemoryBroker()
    async with bench(broker=broker, dead_letter_prompts=prompts) as b:
        await b.opened(stream(num_choices=2, deadline_ms=b.time.now_ms + 5000))
        assert len(broker.lines) == 2
        b.time.pass_s(5)
        b.postprocessor.tick()
        assert (await b.gateway.last()).failed is not None
        await until(lambda: broker.lines.buried and not len(broker.lines))
        ((model, record),) = broker.lines.buried
        letter = json.loads(record)
        assert (model, letter["reason"], letter["request_id"]) == (MODEL, "expired", "r")
        assert letter.get("prompt_token_ids") == (list(ids("hi")) if prompts else None)
        assert b.metric("dead_letters_total", reason="expired") == 1


@anyio_mark
async def test_a_cancelled_request_leaves_the_queue_at_once() -> None:
    broker = MemoryBroker()
    async with bench(broker=broker) as b:
        await b.opened(stream())
        await b.gateway.cancel()
        await until(lambda: not len(broker.lines))
        assert not broker.lines.buried


@anyio_mark
async def test_streams_do_not_wait_for_ever_for_a_model_that_nobody_serves() -> None:
    async with bench(worker_wait_s=30) as b:
        await b.opened(stream())
        await b.worker.bus.models.delete(f"{subjects.model_token(MODEL)}.worker-1")
        await until(lambda: b.runtime.directory.card(MODEL) is None)
        b.postprocessor.tick()
        b.time.pass_s(29)
        b.postprocessor.tick()
        assert len(b.postprocessor) == 1
        b.time.pass_s(1)
        b.postprocessor.tick()
        failed = (await b.gateway.last()).failed
        assert failed is not None
        assert (failed.code, failed.status, failed.retry_after_s) == ("unavailable", 503, 1)


@anyio_mark
async def test_a_prompt_too_large_with_the_ids_so_far_travels_apart() -> None:
    async with bench(broker=MemoryBroker(max_payload_bytes=2500)) as b:
        (job,) = await b.opened(stream(prompt_token_ids=ids("p" * 1000)))
        await b.worker.send(b.worker.delta(job, "a" * 700))
        await until(lambda: b.gateway.frames)
        await b.worker.send(b.worker.delta(job, "b" * 700))
        await b.worker.send(b.worker.delta(job, "", finish="abort"))
        again = (await b.worker.jobs(2))[1]
        assert (again.prompt_token_ids, len(again.prefix_token_ids)) == ((), 1400)
        assert again.prompt_blob is not None
        assert await b.worker.bus.blobs.get(again.prompt_blob)


@anyio_mark
async def test_a_worker_that_is_faster_than_the_queue_leaves_nothing_to_withdraw() -> None:
    broker = MemoryBroker()
    withdrawn: list[int] = []
    broker.lines.withdraw = withdrawn.append  # type: ignore[method-assign]
    async with bench(broker=broker) as b:
        for number in range(3):
            (job,) = await b.opened(stream(f"r{number}"))
            await b.worker.send(b.worker.delta(job, "x", finish="stop"))
            await b.gateway.last(f"r{number}")
        await turns()
    assert withdrawn == []


def test_what_was_queued_too_late_is_not_wanted() -> None:
    streams, made = owned(plain_choice(), plain_choice())
    assert made.queued(first_job(0), "1")
    assert list(made.unwanted(None)) == ["1"]
    streams.on_frame(frame(delta("", finish="stop", choice=1)), 0)
    assert made.queued(first_job(1), "2")  # begun, and over by now
    assert list(made.unwanted(None)) == []
    made.fail("cancelled", "")
    assert not made.queued(first_job(0), "3")


@anyio_mark
async def test_a_move_is_an_event_of_the_streams_span_and_holds_no_ids() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with bench(telemetry=Telemetry(provider)) as b:
        (job,) = await b.opened(stream())
        await b.worker.send(b.worker.delta(job, "abc", trace=f"00-{TRACE}-{'1' * 16}-01"))
        await b.worker.send(b.worker.delta(job, "", finish="error", error_code="lost"))
        again = (await b.worker.jobs(2))[1]
        await b.worker.send(
            b.worker.delta(again, "", finish="stop", trace=f"00-{TRACE}-{'2' * 16}-01")
        )
        await b.gateway.last()
    assert again.follows == f"00-{TRACE}-{'1' * 16}-01"
    (span,) = [one for one in exporter.get_finished_spans() if one.name == "stream"]
    events = {event.name: dict(event.attributes or {}) for event in span.events}
    assert list(events) == [
        "toolrail.first_token",
        "toolrail.migration",
        "toolrail.resumed",
        "toolrail.finish",
    ]
    moved = events["toolrail.migration"]
    assert (moved["toolrail.cause"], moved["toolrail.worker"]) == ("failed", "worker-1")
    assert (moved["toolrail.attempt"], moved["toolrail.tokens"]) == (1, 3)
    runs = [(f"{one.context.span_id:016x}", dict(one.attributes or {})) for one in span.links]
    assert [(run, facts["toolrail.attempt"]) for run, facts in runs] == [
        ("1" * 16, 0),
        ("2" * 16, 1),
    ]
    queue = [one for one in exporter.get_finished_spans() if one.name.startswith("send work")]
    assert span.context is not None
    assert [one.parent.span_id for one in queue if one.parent] == [span.context.span_id] * 2
