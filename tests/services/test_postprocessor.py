from __future__ import annotations

import anyio
import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from services.postprocessor.absences import Absences
from services.postprocessor.main import main
from tests.services.postprocessing import ids, tokenizer_json
from tests.services.postprocessor_bench import (
    MODEL,
    SETTINGS,
    Bench,
    FakeGateway,
    FakeWorker,
    bench,
    content,
    stream,
    turns,
    until,
)
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.errors import NoRespondersError, QueueFullError
from toolrail.messages import (
    OWNER_STOPPING,
    TERM_STEP,
    Accepted,
    ChoiceEnd,
    Done,
    Failed,
    Guidance,
    Instance,
    Resend,
    Sampling,
    Stream,
    TokenDelta,
    Usage,
    Want,
    decode_reply,
    encode,
)
from toolrail.parsing import ParseSpec
from toolrail.service import serving
from toolrail.service.liveness import answerer
from toolrail.telemetry import Telemetry

pytestmark = pytest.mark.anyio


# The way of a stream.


async def test_each_choice_is_a_job_of_its_own() -> None:
    guidance = Guidance(regex="a+")
    async with bench() as b:
        jobs = await b.opened(
            stream(
                num_choices=3,
                sampling=Sampling(max_tokens=9, seed=40),
                guidance=guidance,
                deadline_ms=b.time.now_ms + 1000,
            )
        )
        assert [(job.choice, job.attempt, job.sampling.seed) for job in jobs] == [
            (0, 0, 40),
            (1, 0, 41),
            (2, 0, 42),
        ]
        for job in jobs:
            assert job.model == MODEL
            assert job.prompt_token_ids == ids("hi")
            assert job.guidance == guidance
            assert job.deadline_ms == b.time.now_ms + 1000
            assert job.reply_subject == subjects.tokens("post-1")
        await b.worker.send(
            *(b.worker.delta(job, "ab"[: job.choice], finish="stop") for job in jobs)
        )
        last = await b.gateway.last()
        assert [content(b, choice) for choice in (0, 1, 2)] == [None, "a", "ab"]
        assert last.usage == Usage(2, 3)


async def test_two_gateways_get_a_frame_each() -> None:
    async with bench() as b:
        other = FakeGateway(b.gateway.bus)
        await other.start(subjects.events("gateway-2"))
        one, two = await b.opened(
            stream("a"), stream("b", reply_subject=subjects.events("gateway-2"))
        )
        await b.worker.send(b.worker.delta(one, "x"), b.worker.delta(two, "y"))
        await until(lambda: b.gateway.frames and other.frames)
        assert [d.request_id for d in b.gateway.frames[0].deltas] == ["a"]
        assert [d.request_id for d in other.frames[0].deltas] == ["b"]


async def test_a_frame_larger_than_a_message_leaves_in_parts() -> None:
    broker = MemoryBroker(max_payload_bytes=5000)
    async with bench(broker=broker, queue_order="arrival") as b:
        jobs = await b.opened(*(stream(f"r{n}") for n in range(8)))
        await b.worker.send(*(b.worker.delta(job, "x" * 400) for job in jobs[:4]))
        await b.worker.send(*(b.worker.delta(job, "x" * 400) for job in jobs[4:]))
        await until(lambda: sum(len(f.deltas) for f in b.gateway.frames) == 8)


async def test_an_engine_error_is_a_failure_and_no_empty_answer() -> None:
    async with bench() as b:
        (job,) = await b.opened(stream())
        await b.worker.send(b.worker.delta(job, "", finish="error", error="bad grammar"))
        failed = (await b.gateway.last()).failed
        assert failed is not None
        assert (failed.code, failed.status, failed.message) == ("engine", 500, "bad grammar")
        assert b.metric("streams_total", outcome="engine") == 1


async def test_a_blob_prompt_is_passed_on_and_counted() -> None:
    async with bench() as b:
        (job,) = await b.opened(
            stream(prompt_blob="blob-1", prompt_token_ids=(), prompt_tokens=9000)
        )
        assert (job.prompt_blob, job.prompt_token_ids) == ("blob-1", ())
        await b.worker.send(b.worker.delta(job, "x", finish="stop"))
        assert (await b.gateway.last()).usage == Usage(9000, 1)


# Hand-overs that are not taken.


async def refused(b: Bench, one: Stream) -> Failed:
    reply = await b.gateway.hand_over(one)
    assert isinstance(reply, Failed)
    assert len(b.postprocessor) == 0
    return reply


async def test_a_parser_nobody_knows_is_the_requests_fault() -> None:
    async with bench() as b:
        failed = await refused(b, stream(parse=ParseSpec(tool_parser="no_such_parser")))
        assert (failed.code, failed.status) == ("invalid_request", 400)
        assert "no_such_parser" in failed.message
        assert b.worker.items == []
        assert b.metric("refused_total", code="invalid_request") == 1


async def test_more_streams_than_may_be_owned_are_refused() -> None:
    async with bench(max_streams=1) as b:
        await b.opened(stream("a"))
        reply = await b.gateway.hand_over(stream("b"))
        assert isinstance(reply, Failed)
        assert (reply.code, reply.status, reply.retry_after_s) == ("overloaded", 429, 1)
        await b.gateway.cancel("a")
        await b.gateway.last("a")
        assert isinstance(await b.gateway.hand_over(stream("c")), Accepted)


async def test_a_model_that_nobody_serves_is_unavailable() -> None:
    async with bench() as b:
        await b.worker.bus.models.delete(f"{subjects.model_token(MODEL)}.worker-1")
        await until(lambda: b.runtime.directory.card(MODEL) is None)
        assert (await refused(b, stream())).code == "unavailable"


async def test_a_tokenizer_that_is_gone_is_unavailable() -> None:
    async with bench() as b:
        await b.worker.bus.blobs.delete("tokenizer-hash")
        assert (await refused(b, stream())).code == "unavailable"


async def test_tokenizers_are_loaded_before_the_first_request() -> None:
    async with bench() as b:
        await b.postprocessor.warm()
        await b.worker.bus.blobs.delete("tokenizer-hash")
        assert isinstance(await b.gateway.hand_over(stream()), Accepted)


async def test_a_model_without_a_tokenizer_does_not_keep_the_service_from_starting() -> None:
    async with bench() as b:
        await b.worker.bus.blobs.delete("tokenizer-hash")
        await b.postprocessor.warm()
        await b.worker.bus.blobs.put("tokenizer-hash", tokenizer_json().encode())
        assert isinstance(await b.gateway.hand_over(stream()), Accepted)


async def test_expired_work_is_not_begun() -> None:
    async with bench() as b:
        assert (await refused(b, stream(deadline_ms=b.time.now_ms))).status == 504
        assert b.worker.items == []


async def test_bytes_that_are_no_stream_are_answered() -> None:
    async with bench() as b:
        reply = decode_reply(await b.gateway.bus.request(subjects.STREAM, b"?", timeout_s=5))
        assert isinstance(reply, Failed)
        assert reply.code == "internal"


async def test_a_repeated_hand_over_is_taken_once() -> None:
    async with bench() as b:
        replies = []
        async with anyio.create_task_group() as tasks:

            async def hand_over() -> None:
                replies.append(await b.gateway.hand_over(stream()))

            tasks.start_soon(hand_over)
            tasks.start_soon(hand_over)
        assert [type(reply) for reply in replies] == [Accepted, Accepted]
        await turns()
        assert len(b.worker.items) == 1


async def test_repetitions_of_a_hand_over_that_is_refused_are_refused_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as b:
        at_once = most = 0

        async def put(*_: object, **__: object) -> str:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await turns()
            at_once -= 1
            raise QueueFullError("full")

        monkeypatch.setattr(b.runtime.bus.work, "put", put)
        replies = []
        async with anyio.create_task_group() as tasks:

            async def hand_over() -> None:
                replies.append(await b.gateway.hand_over(stream()))

            for _ in range(4):
                tasks.start_soon(hand_over)
        codes = [reply.code for reply in replies if isinstance(reply, Failed)]
        assert (codes, most) == (["overloaded"] * 4, 1)
        assert len(b.postprocessor) == 0


async def test_a_hand_over_repeated_after_the_end_starts_nothing() -> None:
    async with bench() as b:
        (job,) = await b.opened(stream())
        await b.worker.send(b.worker.delta(job, "x", finish="stop"))
        await b.gateway.last()
        assert isinstance(await b.gateway.hand_over(stream()), Accepted)
        assert len(b.postprocessor) == 0
        await turns()
        assert len(b.worker.items) == 1


# The end of things.


async def test_a_cancel_before_the_first_token_reaches_the_workers_too() -> None:
    async with bench() as b:
        await b.opened(stream())
        await b.gateway.cancel()
        await until(lambda: b.worker.cancels)
        assert len(b.postprocessor) == 0


async def test_silence_ends_a_stream_that_may_not_move_within_its_bound() -> None:
    async with bench(migration_limit=0) as b:
        (job,) = await b.opened(stream())
        await b.worker.send(b.worker.delta(job, "a"))
        await until(lambda: b.gateway.frames)
        b.time.pass_s(SETTINGS.idle_timeout_s - 0.1)
        b.postprocessor.tick()
        assert len(b.postprocessor) == 1
        b.time.pass_s(0.2)
        b.postprocessor.tick()
        failed = (await b.gateway.last()).failed
        assert failed is not None
        assert failed.code == "lost"
        await until(lambda: b.worker.cancels)


async def test_a_deadline_ends_a_stream_that_still_waits_for_a_slot() -> None:
    async with bench() as b:
        await b.opened(stream(deadline_ms=b.time.now_ms + 5000))
        b.time.pass_s(5)
        b.postprocessor.tick()
        failed = (await b.gateway.last()).failed
        assert failed is not None
        assert (failed.code, failed.status) == ("deadline", 504)


async def test_a_worker_that_vanishes_costs_the_streams_that_may_not_move_soon() -> None:
    async with bench(migration_limit=0) as b:
        (job,) = await b.opened(stream())
        await b.worker.send(b.worker.delta(job, "a"))
        await until(lambda: b.gateway.frames)
        b.postprocessor.tick()
        await b.worker.bus.instances.delete("worker.worker-1")
        await until(lambda: not b.runtime.directory.instances("worker"))
        b.postprocessor.tick()
        assert len(b.postprocessor) == 1  # it may live and have lost its registration
        b.time.pass_s(SETTINGS.heartbeat_s)
        b.postprocessor.tick()
        failed = (await b.gateway.last()).failed
        assert failed is not None
        assert failed.code == "lost"


async def test_a_worker_that_is_back_in_the_directory_is_not_dead() -> None:
    async with bench() as b:
        (job,) = await b.opened(stream())
        await b.worker.send(b.worker.delta(job, "a"))
        await until(lambda: b.gateway.frames)
        b.postprocessor.tick()
        await b.worker.bus.instances.delete("worker.worker-1")
        await until(lambda: not b.runtime.directory.instances("worker"))
        b.postprocessor.tick()
        await b.worker.register()
        await until(lambda: b.runtime.directory.instances("worker"))
        b.time.pass_s(SETTINGS.heartbeat_s)
        b.postprocessor.tick()
        assert len(b.postprocessor) == 1


async def test_streams_of_a_dead_gateway_free_their_slots() -> None:
    async with bench() as b:
        await b.gateway.register()
        await b.opened(stream())
        await until(lambda: b.runtime.directory.instances("gateway"))
        b.postprocessor.tick()
        await b.gateway.bus.instances.delete("gateway.gateway-1")
        await until(lambda: not b.runtime.directory.instances("gateway"))
        b.postprocessor.tick()
        assert len(b.postprocessor) == 1
        b.time.pass_s(SETTINGS.registration_ttl_s)
        b.postprocessor.tick()
        assert len(b.postprocessor) == 0
        await until(lambda: b.worker.cancels)


def test_absences_are_known_from_when_a_peer_went() -> None:
    absences = Absences()
    absences.update({"a", "b"}, 0)
    absences.update({"b"}, 1)
    assert absences.longer_than(2, 2) == set()
    assert absences.longer_than(2, 3) == {"a"}
    absences.update({"a", "b"}, 4)
    assert absences.longer_than(0, 4) == set()
    absences.update(set(), 5)
    absences.update(set(), 10_000)
    assert absences.longer_than(0, 10_000) == set()  # forgotten


async def test_frames_of_runs_that_nobody_owns_are_counted_and_dropped() -> None:
    async with bench() as b:
        await b.worker.send(TokenDelta("nobody", 0, 0, 0, ids("x")))
        await b.worker.bus.publish(subjects.tokens("post-1"), b"?")
        await b.worker.bus.publish(subjects.control("post-1"), b"?")
        await until(lambda: b.metric("bad_messages_total") == 2)
        assert b.metric("deltas_dropped_total", reason="unknown_stream") == 1
        assert b.gateway.frames == []


# The process.


async def test_a_stopping_service_lets_its_streams_end() -> None:
    broker = MemoryBroker()
    worker, gateway = FakeWorker(broker.connect()), FakeGateway(broker.connect())
    await worker.start()
    await worker.announce()
    await gateway.start()
    ended = anyio.Event()
    async with (
        serving("postprocessor", SETTINGS, broker.connect()) as runtime,
        anyio.create_task_group() as tasks,
    ):

        async def serve() -> None:
            await main(runtime)
            ended.set()

        tasks.start_soon(serve)
        await until(lambda: runtime.directory.instances("postprocessor"))
        await gateway.hand_over(stream())
        (job,) = await worker.jobs()
        await worker.send(worker.delta(job, "a"))
        runtime.stopping.set()
        await turns()
        with pytest.raises(NoRespondersError):
            await gateway.hand_over(stream("late"))
        assert not ended.is_set()
        await worker.send(worker.delta(job, "b", finish="stop"))
        last = await gateway.last()
        assert last.end == ChoiceEnd("stop")
        with anyio.fail_after(5):
            await ended.wait()


async def test_streams_that_do_not_end_in_time_are_told() -> None:
    async with bench(drain_s=1.0) as b:
        await b.opened(stream())
        await b.postprocessor.drain()
        failed = (await b.gateway.last()).failed
        assert failed is not None
        assert (failed.code, failed.error_code, failed.retryable) == (
            "unavailable",
            OWNER_STOPPING,
            True,
        )
        assert b.worker.cancels == []


# Take-over.


async def test_a_stream_is_taken_over_from_its_workers_and_not_queued_again() -> None:
    async with bench() as b:
        (job,) = await b.opened(stream())
        await b.worker.hold()
        taken = stream("r2", term=1, started=(0,))
        assert isinstance(await b.gateway.hand_over(taken), Accepted)
        assert b.worker.orders == [
            Resend(reply_subject=job.reply_subject, wants=(Want("r2", 0, -1, 1),))
        ]
        resent = msgspec.structs.replace(job, request_id="r2")
        await b.worker.send(b.worker.delta(resent, "whole", finish="stop"))
        assert (await b.gateway.last("r2")).term == 1
        assert len(b.worker.items) == 1
        assert b.metric("taken_over_total") == 1
        done = Done(reply_subject=job.reply_subject, request_ids=("r2",))
        await turns()
        assert done not in b.worker.orders  # its gateway may have missed the end
        b.time.pass_s(20)
        b.postprocessor.tick()
        await until(lambda: done in b.worker.orders)


async def test_a_hand_over_repeated_elsewhere_takes_over_and_queues() -> None:
    async with bench() as b:
        await b.worker.hold()
        await b.gateway.hand_over(stream(term=1))
        await b.worker.jobs(1)
        assert [type(order) for order in b.worker.orders] == [Resend]


async def test_a_stream_that_comes_back_under_a_new_term_begins_again() -> None:
    async with bench() as b:
        (job,) = await b.opened(stream())
        await b.worker.send(b.worker.delta(job, "half"))
        await until(b.gateway.deltas)
        await b.worker.hold()
        assert isinstance(await b.gateway.hand_over(stream(term=1, started=(0,))), Accepted)
        await b.worker.send(TokenDelta("r", 0, 0, 0, ids("half a"), "stop"))
        last = await b.gateway.last()
        assert (last.seq, last.term) == (0, 1)
        assert b.metric("open_streams") == 0


async def test_an_attempt_that_a_former_owner_had_run_is_run_again_when_it_is_lost() -> None:
    """Both have a first move; the queue must not take the second one for a repetition."""
    async with bench(ack_wait_s=5.0) as b:
        (job,) = await b.opened(stream())
        await b.worker.send(b.worker.delta(job, finish="error", error_code="lost"))
        _, again = await b.worker.jobs(2)
        assert again.attempt == 1
        for item in b.worker.items:
            await item.ack()
        await b.worker.hold()
        # Its worker and its owner die, of which nothing was heard.
        assert isinstance(await b.gateway.hand_over(stream(term=TERM_STEP, started=())), Accepted)
        b.time.pass_s(5)
        b.postprocessor.tick()
        jobs = await b.worker.jobs(3)
        assert [job.attempt for job in jobs] == [0, 1, 1]


async def test_streams_of_a_gateway_that_the_bus_does_not_know_end_at_once() -> None:
    async with bench(probe_s=0.001, gone_s=0.0) as b:
        await b.opened(stream())
        b.runtime.tasks.start_soon(b.postprocessor.watch_gateways)
        await until(lambda: b.worker.cancels)
        assert (await b.gateway.last()).failed.code == "lost"  # type: ignore[union-attr]


@pytest.mark.parametrize("answers", [True, False])
async def test_a_gateway_whose_registration_lapses_is_dead_unless_it_answers(
    *, answers: bool
) -> None:
    async with bench(probe_s=0.001, gone_s=3600.0) as b:
        if answers:
            await b.gateway.bus.serve(
                subjects.ping("gateway-1"), "q", answerer(CollectorRegistry()), max_in_flight=9
            )
        b.runtime.tasks.start_soon(b.postprocessor.watch_gateways)
        await b.gateway.bus.instances.put(
            "gateway.gateway-1", encode(Instance(service="gateway", instance="gateway-1", pid=1))
        )
        await until(lambda: b.runtime.directory.instances("gateway"))
        b.postprocessor.tick()
        await b.opened(stream())
        await turns(200)  # it has been asked
        await b.gateway.bus.instances.delete("gateway.gateway-1")
        await until(lambda: not b.runtime.directory.instances("gateway"))
        b.postprocessor.tick()
        b.time.pass_s(60)
        b.postprocessor.tick()
        assert len(b.postprocessor) == (1 if answers else 0)


# Traces.


async def test_a_stream_has_one_span_that_holds_its_jobs_and_no_text() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(provider)
    async with bench(telemetry=telemetry) as b:
        with telemetry.span("request"):
            (job,) = await b.opened(stream())
        await b.worker.send(b.worker.delta(job, "secret", finish="stop"))
        await b.gateway.last()
        (traceparent,) = {item.trace_headers["traceparent"] for item in b.worker.items}
    spans = {span.name: span for span in exporter.get_finished_spans()}
    span = spans["stream"]
    assert [event.name for event in span.events] == ["toolrail.first_token", "toolrail.finish"]
    assert span.attributes is not None
    assert span.attributes["gen_ai.usage.output_tokens"] == 6
    queue = next(s for name, s in spans.items() if name.startswith("send work"))
    assert queue.parent is not None
    assert span.context is not None
    assert queue.parent.span_id == span.context.span_id
    assert traceparent.split("-")[1] == f"{_trace_id(spans['request']):032x}"
    assert all("secret" not in s.to_json() for s in spans.values())


def _trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id
