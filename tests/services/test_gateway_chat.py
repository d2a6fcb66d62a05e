from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import anyio
import pytest

from services.gateway.peers import DeadPeers
from services.gateway.sse import KEEP_ALIVE
from tests.services.gateway_double import (
    MODEL,
    POSTPROCESSOR,
    STOP,
    USAGE,
    deltas_of,
    stack,
    text,
)
from toolrail.bus import subjects
from toolrail.events import ArgumentsDelta, CallEnd, CallStart, ReasoningDelta, TextDelta
from toolrail.messages import (
    SCHEMA_VERSION,
    TERM_STEP,
    ChoiceEnd,
    EventDelta,
    EventFrame,
    Failed,
    Prepare,
    Reply,
    encode,
)
from toolrail.settings import GatewaySettings

pytestmark = pytest.mark.anyio

SETTINGS = GatewaySettings(instance="gw")


# What is handed over, and what comes back.


async def test_the_body_is_handed_over_unread() -> None:
    async with stack() as s:
        s.visit(body=b'{"model": "\xff not json')
        await s.peers.request()
        prepare = s.peers.prepared[0]
        assert prepare.body == b'{"model": "\xff not json'
        assert prepare.reply_subject == subjects.events("gw")
        assert prepare.deadline_ms == prepare.received_ms + 600_000
        assert prepare.api == "chat"


async def test_a_streamed_answer() -> None:
    async with stack(include_usage=True) as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("Hel"))
        await s.peers.finish(rid, *text("lo"))
        await answer.end()
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.complete
        *chunks, usage, done = answer.events
        assert done == "[DONE]"
        assert usage["usage"]["total_tokens"] == 12
        assert "".join(d.get("content", "") for d in deltas_of(chunks)) == "Hello"
        assert {chunk["id"] for chunk in answer.events[:-1]} == {f"chatcmpl-{rid}"}
        assert chunks[0]["model"] == MODEL
        assert s.peers.cancels == []


async def test_an_answer_that_is_not_streamed() -> None:
    async with stack(stream=False, num_choices=2) as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("b"), choice=1, end=ChoiceEnd("length"))
        await s.peers.finish(rid, CallStart(0, "f"), ArgumentsDelta(0, "{}"), CallEnd(0))
        await answer.end()
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["content-length"] == str(len(answer.body))
        first, second = answer.json["choices"]
        assert first["finish_reason"] == "tool_calls"
        assert first["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
        assert (second["message"]["content"], second["finish_reason"]) == ("b", "length")


async def test_long_arguments_arrive_incrementally() -> None:
    parts = ['{"a":"', *["0123456789"] * 30, '"}']
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, CallStart(0, "f"))
        await answer.written(1)
        for number, part in enumerate(parts):
            await s.peers.say(rid, ArgumentsDelta(0, part))
            await answer.written(number + 2)  # each is sent before the next one is made
        await s.peers.finish(rid, CallEnd(0))
        await answer.end()
        got = [
            call["function"]["arguments"]
            for delta in deltas_of(answer.events)
            for call in delta.get("tool_calls", ())
        ]
        assert got == ["", *parts]
        assert len(json.loads("".join(got))["a"]) == 300


async def test_what_came_meanwhile_is_one_write() -> None:
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        answer.reading = anyio.Event()
        for _ in range(50):
            await s.peers.say(rid, *text("word "))
        await s.peers.finish(rid)
        answer.reading.set()
        await answer.end()
        assert len(answer.writes) <= 2
        assert len(deltas_of(answer.events)) == 52


async def test_events_before_accepted_are_kept() -> None:
    async with stack() as s:
        go = anyio.Event()

        async def late(prepare: Prepare) -> Reply:
            await s.peers.finish(prepare.request_id, *text("early"))
            await go.wait()
            return s.peers.accepted(prepare)

        s.peers.respond = late
        answer = s.visit()
        await s.peers.request()
        await anyio.wait_all_tasks_blocked()
        assert answer.status == 0
        go.set()
        await answer.end()
        assert deltas_of(answer.events)[1] == {"content": "early"}
        assert s.peers.cancels == []


async def test_no_status_before_the_first_event() -> None:
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        await anyio.wait_all_tasks_blocked()
        assert answer.status == 0
        await s.peers.say(rid, TextDelta("a"))
        await answer.started()
        assert answer.status == 200


async def test_an_entry_that_only_counts_is_no_first_event() -> None:
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid)
        await anyio.wait_all_tasks_blocked()
        assert answer.status == 0
        await s.peers.finish(rid, TextDelta("a"))
        await answer.end()
        assert answer.status == 200


# Failures.

REFUSED = Failed(
    request_id="",
    code="invalid_request",
    message="max_tokens must be positive",
    status=400,
    error_type="invalid_request_error",
    error_code="invalid_value",
    param="max_tokens",
)


async def test_a_refusal_of_the_preprocessor_is_the_answer() -> None:
    async with stack() as s:

        async def refuse(prepare: Prepare) -> Reply:
            return REFUSED

        s.peers.respond = refuse
        answer = await s.visit().end()
        assert answer.status == 400
        assert answer.headers["content-type"] == "application/json"
        assert answer.error == {
            "message": "max_tokens must be positive",
            "type": "invalid_request_error",
            "param": "max_tokens",
            "code": "invalid_value",
        }
        assert "retry-after" not in answer.headers
        labels = {"fault": "client", "model": "", "code": "invalid_request", "stage": "status"}
        assert s.metric("toolrail_errors_total", **labels) == 1


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("failed", "status", "code"),
    [
        (Failed(request_id="", code="engine", message="m"), 500, "engine"),
        (Failed(request_id="", code="lost", message="m"), 502, "lost"),
        (Failed(request_id="", code="overloaded", message="m", status=429), 429, "overloaded"),
        (Failed(request_id="", code="unavailable", message="m"), 503, "unavailable"),
        (Failed(request_id="", code="deadline", message="m"), 504, "deadline"),
    ],
)
async def test_a_failure_before_the_first_event_is_a_status(
    stream: bool, failed: Failed, status: int, code: str
) -> None:
    async with stack(stream=stream) as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, failed=failed)
        await answer.end()
        assert answer.status == status
        assert answer.error["code"] == code
        assert ("retry-after" in answer.headers) == (status in (429, 503))
        assert s.peers.cancels == []


async def test_a_failure_after_the_first_event_is_an_event() -> None:
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await answer.written(1)
        await s.peers.say(rid, failed=Failed(request_id=rid, code="engine", message="it broke"))
        await answer.end()
        assert answer.status == 200
        assert answer.complete
        assert answer.events[-1]["error"]["message"] == "it broke"
        labels = {"fault": "engine", "model": MODEL, "code": "engine", "stage": "stream"}
        assert s.metric("toolrail_errors_total", **labels) == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_failure_together_with_the_first_event_is_like_one_after_it(
    *, stream: bool
) -> None:
    async with stack(stream=stream) as s:
        answer = s.visit()
        rid = await s.peers.request()
        failed = Failed(request_id=rid, code="engine", message="it broke")
        term = s.peers.prepared[-1].term
        deltas = (
            EventDelta(rid, 0, 0, tuple(text("a")), term=term),
            EventDelta(rid, 1, 0, failed=failed, term=term),
        )
        frame = EventFrame(SCHEMA_VERSION, POSTPROCESSOR, deltas)
        await s.peers.bus.publish(s.gateway.streams.reply_subject, encode(frame))
        await answer.end()
        assert answer.status == (200 if stream else 500)
        error = answer.events[-1]["error"] if stream else answer.error
        assert error["message"] == "it broke"
        if stream:
            (content,) = (
                choice["delta"]["content"]
                for event in answer.events[:-1]
                for choice in event["choices"]
                if choice["delta"].get("content")
            )
            assert content == "a"


async def test_a_failure_after_the_first_event_of_an_object_is_a_status() -> None:
    async with stack(stream=False) as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await s.peers.say(rid, failed=Failed(request_id=rid, code="engine", message="it broke"))
        await answer.end()
        assert answer.status == 500
        assert answer.error["message"] == "it broke"


@pytest.mark.parametrize("finish", ["error", "abort"])
async def test_an_engine_that_does_not_finish_is_never_an_empty_200(finish: str) -> None:
    async with stack(stream=False) as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, end=ChoiceEnd(finish), usage=USAGE)  # type: ignore[arg-type]
        await answer.end()
        assert answer.status == 500
        assert answer.error["code"] == "engine"


async def test_usage_before_all_choices_ended_is_a_failure() -> None:
    async with stack(stream=False, num_choices=2) as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.finish(rid, *text("a"))
        await answer.end()
        assert answer.status == 500


async def test_a_gap_ends_the_stream_and_cancels() -> None:
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await answer.written(1)
        await s.peers.say(rid, *text("c"), seq=2)
        await answer.end()
        assert answer.events[-1]["error"]["code"] == "lost"
        assert (await s.peers.cancelled()).request_id == rid


async def test_a_duplicate_is_dropped() -> None:
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await s.peers.say(rid, *text("a"), seq=0)
        await s.peers.finish(rid, *text("b"))
        await answer.end()
        assert "".join(d.get("content", "") for d in deltas_of(answer.events)) == "ab"


async def test_a_second_postprocessor_of_the_same_request_is_not_heard() -> None:
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        lost = Failed(request_id=rid, code="lost", message="idle")
        await s.peers.say(rid, failed=lost, seq=0, postprocessor="post-2")
        await s.peers.finish(rid, *text("b"))
        await answer.end()
        assert answer.events[-1] == "[DONE]"


async def test_nobody_there_is_503_at_once() -> None:
    async with stack(peers=False) as s:
        answer = await s.visit().end()
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.error == {
            "message": "no service could take the request, try again shortly",
            "type": "server_error",
            "param": None,
            "code": "unavailable",
        }


async def test_no_answer_to_the_hand_over_is_503() -> None:
    async with stack(settings=replace(SETTINGS, hand_over_timeout_s=0.05)) as s:

        async def never(prepare: Prepare) -> Reply:
            await anyio.sleep_forever()
            raise AssertionError

        s.peers.respond = never
        answer = await s.visit().end()
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert len(s.peers.prepared) == 1  # it may just be slow: it is not asked twice


async def test_a_preprocessor_that_dies_is_replaced_once() -> None:
    async with stack(settings=replace(SETTINGS, hand_over_timeout_s=0.05)) as s:
        await s.peers.register("preprocessor", "pre-2")

        async def die(prepare: Prepare) -> Reply:
            s.peers.respond = None
            await s.peers.bus.instances.delete("preprocessor.pre-1")
            await anyio.sleep_forever()
            raise AssertionError

        s.peers.respond = die
        answer = s.visit()
        rid = await s.peers.request(2)
        assert [(p.request_id, p.term) for p in s.peers.prepared] == [(rid, 0), (rid, TERM_STEP)]
        await s.peers.finish(rid, *text("a"))
        assert (await answer.end()).status == 200


async def test_no_first_event_in_time_is_504_and_cancels() -> None:
    async with stack(settings=replace(SETTINGS, first_event_timeout_s=0.05)) as s:
        answer = s.visit()
        await answer.end()
        assert answer.status == 504
        assert answer.error["code"] == "deadline"
        await s.peers.cancelled()


@pytest.mark.parametrize("stream", [True, False])
async def test_the_deadline_of_the_request_ends_and_cancels_it(stream: bool) -> None:
    async with stack(settings=replace(SETTINGS, request_timeout_s=0.1), stream=stream) as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await answer.end()
        error = answer.events[-1]["error"] if stream else answer.error
        assert answer.status == (200 if stream else 504)
        assert error["code"] == "deadline"
        await s.peers.cancelled()


async def test_a_dead_postprocessor_fails_its_streams() -> None:
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await answer.written(1)
        s.gateway.streams.lose({"another"})
        await anyio.wait_all_tasks_blocked()
        assert not answer.complete
        s.gateway.streams.lose({POSTPROCESSOR})
        await answer.end()
        assert answer.events[-1]["error"]["code"] == "lost"


# Clients that leave, stall or are too many.


async def test_leaving_while_the_body_is_sent_hands_nothing_over() -> None:
    async with stack() as s:
        answer = s.visit(body=None)
        answer.push(b'{"half', more=True)
        answer.leave()
        await answer.end()
        assert s.peers.prepared == []
        assert s.metric("toolrail_client_disconnects_total", stage="hand_over") == 1


async def test_leaving_before_accepted_cancels_when_accepted_comes() -> None:
    async with stack() as s:
        go = anyio.Event()

        async def late(prepare: Prepare) -> Reply:
            await go.wait()
            return s.peers.accepted(prepare)

        s.peers.respond = late
        answer = s.visit()
        rid = await s.peers.request()
        answer.leave()
        await anyio.wait_all_tasks_blocked()
        assert s.peers.cancels == []
        go.set()
        cancel = await s.peers.cancelled()
        assert (cancel.request_id, cancel.reason) == (rid, "hand_over")
        await answer.end()
        assert answer.status == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_before_the_first_event_cancels(stream: bool) -> None:
    async with stack(stream=stream) as s:
        answer = s.visit()
        rid = await s.peers.request()
        await anyio.wait_all_tasks_blocked()
        answer.leave()
        cancel = await s.peers.cancelled()
        assert (cancel.request_id, cancel.reason) == (rid, "wait")
        await answer.end()
        assert s.metric("toolrail_client_disconnects_total", stage="wait") == 1
        assert (
            s.metric(
                "toolrail_http_requests_total",
                route="/v1/chat/completions",
                method="POST",
                status="499",
            )
            == 1
        )


async def test_leaving_in_the_stream_cancels_and_frees() -> None:
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await answer.written(1)
        answer.leave()
        assert (await s.peers.cancelled()).reason == "stream"
        await answer.end()
        assert len(s.gateway.streams) == 0
        assert s.gateway.admission.taken == 0


async def test_leaving_an_object_half_made_cancels() -> None:
    async with stack(stream=False) as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await anyio.wait_all_tasks_blocked()
        answer.leave()
        await s.peers.cancelled()
        assert (await answer.end()).status == 0


async def test_a_stream_that_nobody_reads_is_cancelled_at_its_sender() -> None:
    """A Cancel may be lost, and a lost Accepted never told whom to cancel."""
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.finish(rid)
        await answer.end()
        await s.peers.say("unknown", *text("a"))
        assert (await s.peers.cancelled()).request_id == "unknown"
        await s.peers.say("unknown", *text("b"))
        await s.peers.say("ended", usage=USAGE, end=STOP)
        await anyio.wait_all_tasks_blocked()
        assert len(s.peers.cancels) == 1  # not again at once, and not where nothing runs


async def test_a_client_too_slow_for_its_buffer_is_cut_off() -> None:
    async with stack(settings=replace(SETTINGS, stream_buffer_events=10)) as s:
        answer = s.visit()
        other = s.visit()
        rid, rid_of_other = await s.peers.request(1), await s.peers.request(2)
        await s.peers.say(rid, *text("a"))
        await answer.written(1)
        answer.reading = anyio.Event()
        await s.peers.say(rid, *text("b"))
        await anyio.wait_all_tasks_blocked()
        for _ in range(6):
            await s.peers.say(rid, *text("c"))
        cancel = await s.peers.cancelled()
        assert (cancel.request_id, cancel.reason) == (rid, "slow")
        await answer.end()
        assert not answer.complete
        await s.peers.finish(rid_of_other, *text("fine"))
        assert (await other.end()).complete
        assert s.metric("toolrail_client_disconnects_total", stage="slow") == 1


async def test_more_at_once_than_the_buffer_holds_is_an_answer_too() -> None:
    async with stack(settings=replace(SETTINGS, stream_buffer_events=10)) as s:

        async def flood(prepare: Prepare) -> Reply:
            for _ in range(10):
                await s.peers.say(prepare.request_id, *text("a"))
            return s.peers.accepted(prepare)

        s.peers.respond = flood
        answer = await s.visit().end()
        assert answer.status == 500
        assert answer.error["code"] == "internal"
        assert (await s.peers.cancelled()).reason == "slow"


async def test_silence_is_kept_alive() -> None:
    async with stack(settings=replace(SETTINGS, sse_keep_alive_s=0.02)) as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await answer.until(lambda: answer.writes.count(KEEP_ALIVE) >= 2)
        await s.peers.finish(rid, *text("b"))
        await answer.end()
        assert answer.events[-1] == "[DONE]"
        assert KEEP_ALIVE == b": keep-alive\n\n"


async def test_more_requests_than_allowed_get_429() -> None:
    async with stack(settings=replace(SETTINGS, max_streams=1)) as s:
        first = s.visit()
        rid = await s.peers.request()
        second = await s.visit().end()
        assert second.status == 429
        assert second.headers["retry-after"] == "1"
        assert second.error["type"] == "rate_limit_error"
        await s.peers.finish(rid)
        assert (await first.end()).status == 200
        third = s.visit()
        await s.peers.finish(await s.peers.request(2))
        assert (await third.end()).status == 200


async def test_shutting_down_tells_the_streams_that_are_left() -> None:
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await answer.written(1)
        s.gateway.streams.fail_all(Failed(request_id="", code="unavailable", message="going"))
        await answer.end()
        assert answer.events[-1]["error"]["message"] == "going"
        await s.peers.cancelled()


# Bodies.


async def test_a_body_in_pieces() -> None:
    async with stack() as s:
        answer = s.visit(body=None)
        answer.push(b'{"a":', more=True)
        answer.push(b"1}")
        await s.peers.finish(await s.peers.request())
        await answer.end()
        assert s.peers.prepared[0].body == b'{"a":1}'


async def test_a_body_larger_than_a_message_goes_through_the_blobs() -> None:
    body = b'{"a":"' + b"x" * 60_000 + b'"}'
    async with stack(max_payload_bytes=32_768) as s:
        stored: list[bytes] = []

        async def fetch(prepare: Prepare) -> Reply:
            assert prepare.body_blob is not None
            stored.append(await s.peers.bus.blobs.get(prepare.body_blob))
            return s.peers.accepted(prepare)

        s.peers.respond = fetch
        answer = s.visit(body=body)
        await s.peers.finish(await s.peers.request())
        await answer.end()
        assert stored == [body]
        assert s.peers.prepared[0].body == b""
        with pytest.raises(KeyError):
            await s.peers.bus.blobs.get(s.peers.prepared[0].body_blob or "")


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_too_large_is_413(declared: bool) -> None:
    async with stack(settings=replace(SETTINGS, max_body_bytes=100)) as s:
        answer = s.visit(body=None, headers={"content-length": "101"} if declared else {})
        answer.push(b"x" * 60, more=True)
        answer.push(b"x" * 41)
        await answer.end()
        assert answer.status == 413
        assert answer.error["code"] == "request_too_large"
        assert answer.headers["connection"] == "close"
        assert s.peers.prepared == []


async def test_a_body_that_stalls_is_408() -> None:
    async with stack(settings=replace(SETTINGS, body_timeout_s=0.02)) as s:
        answer = s.visit(body=None)
        answer.push(b"x", more=True)
        await answer.started()
        assert answer.status == 408
        answer.leave()
        await answer.end()
        assert answer.error["code"] == "request_timeout"


async def test_bodies_too_large_together_get_429() -> None:
    async with stack(settings=replace(SETTINGS, held_body_bytes=100)) as s:
        first = s.visit(body=None)
        first.push(b"x" * 80, more=True)
        await anyio.wait_all_tasks_blocked()
        second = await s.visit(body=b"x" * 80).end()
        assert second.status == 429
        first.push(b"")
        await s.peers.finish(await s.peers.request())
        assert (await first.end()).status == 200
        third = s.visit(body=b"x" * 80)
        await s.peers.finish(await s.peers.request(2))
        assert (await third.end()).status == 200


# What the bus may bring.


async def test_a_frame_that_cannot_be_read_is_counted_and_harms_nobody() -> None:
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.bus.publish(subjects.events("gw"), b"\xc1 not a frame")
        await s.peers.finish(rid, *text("a"))
        assert (await answer.end()).events[-1] == "[DONE]"
        assert s.metric("toolrail_undecodable_frames_total") == 1


def test_a_peer_is_dead_when_it_is_missing_for_a_while() -> None:
    dead = DeadPeers(grace_s=5)
    assert dead.update({"a", "b"}, {"a"}, now=0) == set()
    assert dead.update({"a", "b"}, {"a"}, now=4) == set()
    assert dead.update({"a", "b"}, {"a"}, now=5) == {"b"}
    assert dead.update({"a", "b"}, {"a", "b"}, now=6) == set()  # it is back
    assert dead.update({"a", "b"}, {"a"}, now=7) == set()
    assert dead.update({"a"}, {"a"}, now=20) == set()


# What a deployment and a request may ask for beside the published stream.


@pytest.mark.parametrize(
    ("setting", "header", "names"),
    [
        (False, "", []),
        (False, "tool_calls", ["tool_call_dispatch"]),
        (False, "Reasoning, tool_calls", ["reasoning_dispatch", "tool_call_dispatch"]),
        (True, "", ["tool_call_dispatch"]),
    ],
)
async def test_early_dispatch_is_asked_for(setting: bool, header: str, names: list[str]) -> None:
    async with stack(settings=replace(SETTINGS, tool_call_dispatch=setting)) as s:
        answer = s.visit(headers={"x-toolrail-dispatch": header})
        rid = await s.peers.request()
        await s.peers.finish(
            rid, ReasoningDelta("hm"), CallStart(0, "f"), ArgumentsDelta(0, "{}"), CallEnd(0)
        )
        await answer.end()
        lines = answer.body.decode().splitlines()
        assert [line[7:] for line in lines if line.startswith("event: ")] == names


@pytest.mark.parametrize(
    ("forced", "setting", "reason"),
    [
        ("named", "tool_calls", "tool_calls"),
        ("named", "stop", "stop"),
        ("required", "stop", "tool_calls"),
    ],
)
async def test_a_forced_call_finishes_as_the_deployment_says(
    forced: str, setting: Any, reason: str
) -> None:
    settings = replace(SETTINGS, named_choice_finish_reason=setting)
    async with stack(settings=settings, stream=False, forced_call=forced) as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.finish(rid, CallStart(0, "f"), ArgumentsDelta(0, "{}"), CallEnd(0))
        await answer.end()
        assert answer.json["choices"][0]["finish_reason"] == reason
