"""The worker's shell, on the scripted engine and an in-memory bus."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import anyio
import pytest

from services.worker.engine import (
    EngineDeadError,
    EngineFailedError,
    RefusedError,
    Step,
)
from tests.services.worker_kit import (
    END_ID,
    REPLY,
    Inbox,
    ids,
    job,
    scripted,
    turns,
    until,
    working,
)
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker, MemoryBus
from toolrail.bus.port import WorkItem, WorkPull
from toolrail.messages import Instance, Job, Sampling, encode, encode_token_ids
from toolrail.telemetry import Telemetry

pytestmark = pytest.mark.anyio

NEVER = {"text": "never", "ttft_ms": 3_600_000}
SLOW = {"text": "a" * 60, "delay_ms": 5}


async def test_a_job_comes_back_as_numbered_deltas_ended_by_a_finish() -> None:
    async with working(scripted({"text": "abc"})) as bench:
        await bench.put(job(choice=2, attempt=3))
        await bench.inbox.ended("r", 2)
        deltas = bench.inbox.deltas("r", 2)
    assert [delta.seq for delta in deltas] == [0, 1, 2, 3]
    assert {delta.epoch for delta in deltas} == {3}
    assert [delta.token_ids for delta in deltas] == [*((i,) for i in ids("abc")), (END_ID,)]
    assert [delta.finish for delta in deltas] == [None, None, None, "stop"]
    assert [delta.cached_tokens for delta in deltas] == [0, None, None, None]


@pytest.mark.parametrize("delay_ms", [0, 2])
async def test_one_frame_a_step_for_all_streams_of_a_destination(delay_ms: int) -> None:
    engine = scripted({"text": "x" * 200, "delay_ms": delay_ms}, slots=16)
    async with working(engine) as bench:
        await bench.put(*(job(f"r{number}") for number in range(16)))
        for number in range(16):
            await bench.inbox.ended(f"r{number}")
        # Streams begin a few steps apart; from then on they share every step.
        assert len(bench.inbox.frames) == engine.steps
        assert 201 <= engine.steps < 16 * 201 / 4
        assert sum(len(frame.deltas) for frame in bench.inbox.frames) == 16 * 201
        assert {frame.worker for frame in bench.inbox.frames} == {"worker-1"}


async def test_streams_of_two_destinations_share_steps_but_not_frames() -> None:
    async with working(scripted({"text": "x" * 50}, slots=16)) as bench:
        other = Inbox()
        await bench.bus.subscribe(subjects.tokens("post-2"), other.receive)
        for number in range(16):
            await bench.put(
                job(f"r{number}", reply_subject=subjects.tokens(f"post-{number % 2 + 1}"))
            )
        for number in range(16):
            await (other if number % 2 else bench.inbox).ended(f"r{number}")
        assert {frame.step for frame in other.frames} & {f.step for f in bench.inbox.frames}
        for inbox, parity in ((bench.inbox, 0), (other, 1)):
            seen = {delta.request_id for frame in inbox.frames for delta in frame.deltas}
            assert seen == {f"r{number}" for number in range(16) if number % 2 == parity}
            assert len({frame.step for frame in inbox.frames}) == len(inbox.frames)


async def test_frames_too_large_for_a_message_are_split_in_order() -> None:
    broker = MemoryBroker(max_payload_bytes=600)
    async with working(scripted({"text": "abcdef"}, slots=16), broker=broker) as bench:
        for number in range(16):
            await bench.put(job(f"request-with-a-long-name-{number}"))
        for number in range(16):
            await bench.inbox.ended(f"request-with-a-long-name-{number}")
            assert bench.inbox.text(f"request-with-a-long-name-{number}") == "abcdef"
    assert len(bench.inbox.frames) > 7


async def test_never_more_jobs_are_taken_than_there_are_slots() -> None:
    engine = scripted(NEVER, slots=2)
    async with working(engine) as bench:
        await bench.put(*(job(f"r{number}") for number in range(5)))
        await until(lambda: len(engine.live) == 2)
        await turns()
        assert engine.live == {"r0/0", "r1/0"}
        await bench.cancel("r0")
        await until(lambda: engine.live == {"r1/0", "r2/0"})
        await turns()
        assert engine.live == {"r1/0", "r2/0"}


async def test_a_job_is_acknowledged_only_when_its_first_token_leaves() -> None:
    broker = MemoryBroker(ack_wait_s=3600)
    engine = scripted({"match": "slow", **NEVER}, {"text": "ok"})
    async with working(engine, broker=broker) as bench:
        await bench.put(job("a", "slow"), job("b", "quick"))
        await bench.inbox.ended("b")
        assert len(broker.lines) == 1
        await until(lambda: engine.live == {"a/0"})


async def test_a_job_without_a_first_token_is_kept_from_being_given_to_another() -> None:
    broker = MemoryBroker(ack_wait_s=0.06)
    engine = scripted({"text": "late", "ttft_ms": 300})
    async with working(engine, broker=broker, ack_wait_s=0.06) as bench:
        await bench.put(job())
        await bench.inbox.ended()
        assert bench.inbox.text() == "late"
        assert engine.started == 1


async def test_a_job_cancelled_before_it_was_pulled_never_reaches_the_engine() -> None:
    engine = scripted(NEVER, slots=1)
    async with working(engine) as bench:
        await bench.put(job("first"), job("second"), job("third"))
        await until(lambda: engine.live == {"first/0"})
        await bench.cancel("second")
        await turns()
        await bench.cancel("first")
        await until(lambda: engine.live == {"third/0"})
        assert engine.started == 2
        assert (await bench.inbox.ended("second")).finish == "abort"
        assert (await bench.inbox.ended("first")).finish == "abort"


async def test_cancelling_mid_stream_ends_the_stream_and_frees_the_slot() -> None:
    engine = scripted({"match": "slow", **SLOW}, {"text": "ok"}, slots=1)
    async with working(engine) as bench:
        await bench.put(job("a", "slow"), job("b"))
        await bench.inbox.until(lambda: len(bench.inbox.deltas("a")) >= 3)
        await bench.cancel("a")
        assert (await bench.inbox.ended("a")).finish == "abort"
        await bench.inbox.ended("b")
        assert bench.inbox.text("b") == "ok"
        deltas = bench.inbox.deltas("a")
        assert [delta.seq for delta in deltas] == list(range(len(deltas)))
        assert len(deltas) < 50


async def test_cancelling_one_choice_leaves_the_others_running() -> None:
    async with working(scripted(SLOW)) as bench:
        await bench.put(job(choice=0), job(choice=1))
        await bench.inbox.until(lambda: bench.inbox.deltas("r", 1))
        await bench.cancel("r", 0)
        assert (await bench.inbox.ended("r", 0)).finish == "abort"
        assert (await bench.inbox.ended("r", 1)).finish == "stop"


async def test_a_run_whose_postprocessor_is_gone_for_long_frees_its_slot() -> None:
    engine = scripted({"match": "never", **NEVER}, {"text": "ok"}, slots=2)
    async with working(engine, registration_ttl_s=0.2, heartbeat_s=0.02) as bench:
        there = Instance(service="postprocessor", instance="post-1", pid=1)
        await bench.bus.instances.put("postprocessor.post-1", encode(there))
        await until(lambda: bench.runtime.directory.instances("postprocessor"))
        never_known = subjects.tokens("post-2")
        await bench.put(job("a", "never"), job("b", "never", reply_subject=never_known))
        await until(lambda: engine.live == {"a/0", "b/0"})
        await bench.bus.instances.delete("postprocessor.post-1")
        await until(lambda: engine.live == {"b/0"})
        await bench.put(job("c", reply_subject=REPLY))
        await bench.inbox.ended("c")
        assert engine.live == {"b/0"}


async def test_a_run_whose_postprocessor_comes_back_soon_goes_on() -> None:
    engine = scripted({"text": "a" * 30, "delay_ms": 10})
    async with working(engine, registration_ttl_s=5, heartbeat_s=0.01) as bench:
        there = encode(Instance(service="postprocessor", instance="post-1", pid=1))
        await bench.bus.instances.put("postprocessor.post-1", there)
        await until(lambda: bench.runtime.directory.instances("postprocessor"))
        await bench.put(job())
        await bench.inbox.until(bench.inbox.deltas)
        await bench.bus.instances.delete("postprocessor.post-1")
        await until(lambda: not bench.runtime.directory.instances("postprocessor"))
        await bench.bus.instances.put("postprocessor.post-1", there)
        assert (await bench.inbox.ended()).finish == "stop"


async def test_an_expired_job_is_refused_without_touching_the_engine() -> None:
    engine = scripted({"text": "too late"})
    async with working(engine) as bench:
        await bench.put(job(deadline_ms=int(time.time() * 1000) - 1))
        end = await bench.inbox.ended()
        assert (end.finish, end.error_code, end.token_ids) == ("error", "deadline", ())
        assert engine.started == 0


async def test_a_run_that_passes_its_deadline_is_cut_off() -> None:
    engine = scripted(NEVER)
    async with working(engine) as bench:
        await bench.put(job(deadline_ms=int(time.time() * 1000) + 100))
        end = await bench.inbox.ended()
        assert (end.finish, end.error_code) == ("error", "deadline")
        await until(lambda: not engine.live)


async def test_a_second_delivery_of_a_live_run_is_not_run_twice() -> None:
    engine = scripted(SLOW)
    broker = MemoryBroker()
    async with working(engine, broker=broker) as bench:
        await bench.put(job())
        await bench.inbox.until(bench.inbox.deltas)
        await bench.bus.work.put(
            "tiny", encode(job()), message_id="a publisher's retry, long after", timeout_s=1
        )
        await bench.inbox.ended()
        assert engine.started == 1
        assert bench.inbox.text() == "a" * 60
        assert len(broker.lines) == 0


async def test_a_newer_attempt_replaces_a_live_run() -> None:
    engine = scripted({"match": "first", **NEVER}, {"text": "again"})
    async with working(engine) as bench:
        await bench.put(job(prompt="first"))
        await until(lambda: engine.live)
        await bench.put(job(prompt="second", attempt=1))
        await bench.inbox.ended()
        assert [delta.epoch for delta in bench.inbox.deltas()] == [1] * 6
        assert bench.inbox.text() == "again"


async def test_a_large_prompt_comes_from_the_object_store() -> None:
    async with working(scripted({"match": "needle", "text": "found"})) as bench:
        await bench.bus.blobs.put("p", encode_token_ids(ids("hay needle hay")))
        await bench.put(job(prompt="", prompt_blob="p"), job("gone", prompt="", prompt_blob="q"))
        await bench.inbox.ended()
        assert bench.inbox.text() == "found"
        end = await bench.inbox.ended("gone")
        assert (end.finish, end.error_code) == ("error", "internal")


async def test_an_undecodable_job_is_dropped_and_gives_its_slot_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = MemoryBroker()
    async with working(scripted({"text": "ok"}, slots=1), broker=broker) as bench:
        await bench.bus.work.put("tiny", b"\xc1", message_id="x", timeout_s=1)
        await bench.put(job())
        await bench.inbox.ended()
        assert bench.inbox.text() == "ok"
        assert len(broker.lines) == 0
    assert "undecodable job" in caplog.text


async def test_stopping_finishes_what_has_begun_and_gives_back_what_has_not() -> None:
    broker = MemoryBroker()
    engine = scripted({"match": "never", **NEVER}, {"text": "a" * 30, "delay_ms": 5})
    async with working(engine, broker=broker) as bench:
        await bench.put(job("running"), job("waiting", "never"))
        await bench.inbox.until(lambda: bench.inbox.deltas("running"))
        await bench.stop()
        assert bench.failure is None
        assert (await bench.inbox.ended("running")).finish == "stop"
        assert bench.inbox.text("running") == "a" * 30
    assert bench.inbox.deltas("waiting") == []
    async with working(scripted({"text": "elsewhere"}), broker=broker) as other:
        await other.inbox.ended("waiting")
        assert other.inbox.text("waiting") == "elsewhere"


async def test_a_first_token_goes_before_its_acknowledgement_and_the_end_waits_for_it() -> None:
    acks = SlowAcks()
    row = {"text": "a" * 100, "delay_ms": 500}
    async with working(scripted(row), bus=acks, drain_s=0.1) as bench:
        await bench.put(job())
        await until(acks.asked.is_set)
        await bench.inbox.until(bench.inbox.text)  # who dies here is known to have had the job
        bench.runtime.stopping.set()
        end = await bench.inbox.ended()
        assert (end.finish, end.error_code) == ("error", "lost")
        assert not bench.stopped.is_set()
        acks.answered.set()
        await bench.stop()


class SlowAcks(MemoryBus):
    """A connection whose acknowledgements take until `answered`."""

    def __init__(self) -> None:
        super().__init__(MemoryBroker(), Telemetry())
        self.asked = anyio.Event()
        self.answered = anyio.Event()

    @property
    def work(self) -> Any:
        return self

    async def put(self, *arguments: Any, **more: Any) -> None:
        await super().work.put(*arguments, **more)

    async def pull(self, model: str, handler: Callable[[WorkItem], None]) -> WorkPull:
        def delayed(item: Any) -> None:
            ack = item.ack

            async def slowly() -> None:
                self.asked.set()
                await self.answered.wait()
                await ack()

            item.ack = slowly
            handler(item)

        return await super().work.pull(model, delayed)


async def test_what_does_not_finish_within_the_drain_is_ended_and_said_to_be_lost() -> None:
    async with working(scripted(SLOW), drain_s=0.1) as bench:
        await bench.put(job())
        await bench.inbox.until(bench.inbox.deltas)
        await bench.stop()
        end = await bench.inbox.ended()
        assert (end.finish, end.error_code) == ("error", "lost")


async def test_a_dying_engine_fails_its_streams_gives_back_the_rest_and_ends_the_worker() -> None:
    broker = MemoryBroker()
    engine = scripted({"match": "never", **NEVER}, SLOW)
    async with working(engine, broker=broker) as bench:
        await bench.put(job("running"), job("waiting", "never"))
        await bench.inbox.until(lambda: bench.inbox.deltas("running"))
        await until(lambda: len(engine.live) == 2)
        engine.kill()
        with anyio.fail_after(10):
            await bench.stopped.wait()
        assert isinstance(bench.failure, EngineDeadError)
        end = await bench.inbox.ended("running")
        assert (end.finish, end.error_code) == ("error", "lost")
    assert bench.inbox.deltas("waiting") == []
    async with working(scripted({"text": "elsewhere"}), broker=broker) as other:
        await other.inbox.ended("waiting")
        assert other.inbox.text("waiting") == "elsewhere"


async def test_an_idle_engine_that_dies_ends_the_worker() -> None:
    engine = scripted()
    async with working(engine, heartbeat_s=0.01) as bench:
        engine.kill()
        with anyio.fail_after(10):
            await bench.stopped.wait()
        assert isinstance(bench.failure, EngineDeadError)


async def test_a_scripted_death_strikes_after_the_given_ids_and_only_once() -> None:
    broker = MemoryBroker()
    engine = scripted({"text": "abcdef", "die_after": 3})
    async with working(engine, broker=broker) as bench:
        await bench.put(job())
        with anyio.fail_after(10):
            await bench.stopped.wait()
        assert bench.inbox.text() == "abc"
    resumed = job(attempt=1, prefix_token_ids=ids("abc"))
    async with working(scripted({"text": "abcdef", "die_after": 3}), broker=broker) as other:
        await other.put(resumed)
        await other.inbox.ended()
        assert other.inbox.text() == "def"


async def test_a_death_before_the_first_id_leaves_the_job_on_the_queue() -> None:
    broker = MemoryBroker(ack_wait_s=0.1)
    engine = scripted({"text": "abc", "die_after": 0})
    async with working(engine, broker=broker) as bench:
        await bench.put(job())
        with anyio.fail_after(10):
            await bench.stopped.wait()
        assert bench.inbox.deltas() == []
    async with working(scripted({"text": "abc", "die_after": 0}), broker=broker) as other:
        await other.inbox.ended()
        assert other.inbox.text() == "abc"


class Failing:
    """An engine whose runs raise or end as told, after one id."""

    slots = 4
    vocab_size = 300
    context_length = 100

    def __init__(self, first: Step | None, end: Exception | Step | None) -> None:
        self._first = first
        self._end = end

    async def start(self) -> None:
        pass

    async def generate(
        self, job: Job, *, trace_headers: Mapping[str, str], redelivered: bool = False
    ) -> AsyncGenerator[Step]:
        if self._first is not None:
            yield self._first
        if isinstance(self._end, Exception):
            raise self._end
        if self._end is not None:
            yield self._end

    async def abort(self, run: str) -> None:
        pass

    async def health(self) -> None:
        pass

    async def stop(self) -> None:
        pass


async def test_a_field_that_the_engine_refuses_is_named() -> None:
    refused = RefusedError("too many", param="bad_words")
    async with working(Failing(None, refused), broker=MemoryBroker()) as bench:
        await bench.put(job(sampling=Sampling(max_tokens=10)))
        last = await bench.inbox.ended()
        assert (last.error_code, last.error_param) == ("invalid_request", "bad_words")


@pytest.mark.parametrize(
    ("first", "end", "code", "error"),
    [
        (None, RefusedError("too long"), "invalid_request", "too long"),
        (None, Step(finish="error", error="bad grammar"), "engine", "bad grammar"),
        (Step((7,)), EngineFailedError("broken"), "engine", "broken"),
        (Step((7,)), Step((8,), finish="error", error="no"), "engine", "no"),
        (Step((7,)), None, "engine", "the engine ended the run without saying why"),
        (None, ValueError("our bug"), "internal", "internal error of the worker"),
    ],
)
async def test_a_failing_run_says_whose_fault_it_is(
    first: Step | None, end: Exception | Step | None, code: str, error: str
) -> None:
    broker = MemoryBroker()
    async with working(Failing(first, end), broker=broker) as bench:
        await bench.put(job(sampling=Sampling(max_tokens=10)))
        last = await bench.inbox.ended()
        assert (last.finish, last.error_code, last.error) == ("error", code, error)
        assert len(broker.lines) == 0
        assert bench.failure is None
