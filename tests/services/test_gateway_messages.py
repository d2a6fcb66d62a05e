"""The Messages API at the gateway: events, objects, errors, counting."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from services.gateway.answer import Head
from services.gateway.messages.errors import error_body, error_status
from services.gateway.messages.folding import MessageFold
from services.gateway.messages.writer import MessageWriter
from tests.services.gateway_double import MODEL, POSTPROCESSOR, Stack, stack, text
from toolrail.bus import subjects
from toolrail.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    TextDelta,
)
from toolrail.messages import (
    STATUS,
    Accepted,
    ChoiceEnd,
    EventDelta,
    Failed,
    Prepare,
    Reply,
    Usage,
)

pytestmark = pytest.mark.anyio

HEAD = Head("msg_1", 1, "m")
USAGE = Usage(prompt_tokens=10, completion_tokens=5, cached_tokens=4, reasoning_tokens=2)
PATH = "/v1/messages"
STOPPED = ChoiceEnd("stop")


def call(index: int, *parts: str, name: str = "f", complete: bool = True) -> list[Event]:
    pieces = [ArgumentsDelta(index, part) for part in parts]
    return [CallStart(index, name), *pieces, CallEnd(index, complete)]


def deltas(events: Sequence[Event], end: ChoiceEnd = STOPPED, *, step: int = 1) -> list[EventDelta]:
    """The events, some in each delta, and an end."""
    pieces = [tuple(events[at : at + step]) for at in range(0, len(events), step)]
    made = [EventDelta("r", seq, 0, piece) for seq, piece in enumerate(pieces)]
    return [*made, EventDelta("r", len(made), 0, end=end, usage=USAGE)]


def streamed(given: Sequence[EventDelta]) -> list[dict[str, Any]]:
    """The data of every event; the names are checked."""
    writer = MessageWriter(HEAD, prompt_tokens=10)
    body = b"".join(writer.write([delta]) for delta in given)
    assert writer.done
    return events_of(body)


def events_of(body: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for block in body.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        parsed = json.loads(data.removeprefix("data: "))
        assert name == f"event: {parsed['type']}"
        found.append(parsed)
    return found


def accumulated(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The message that a client makes of the events; every rule of their order is checked."""
    first, *rest = [event for event in events if event["type"] != "ping"]
    assert first["type"] == "message_start"
    message = first["message"]
    assert message["content"] == []
    is_open, inputs = False, ""
    for event in rest[:-2]:
        kind = event["type"]
        if kind == "content_block_start":
            assert not is_open
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
            is_open, inputs = True, ""
            continue
        assert is_open
        assert event["index"] == len(message["content"]) - 1
        block = message["content"][-1]
        if kind == "content_block_stop":
            is_open = False
            if inputs:
                block["input"] = json.loads(inputs)
            continue
        assert kind == "content_block_delta"
        match event["delta"]:
            case {"type": "text_delta", "text": more}:
                block["text"] += more
            case {"type": "thinking_delta", "thinking": more}:
                block["thinking"] += more
            case {"type": "signature_delta", "signature": more}:
                block["signature"] = more
            case {"type": "input_json_delta", "partial_json": more}:
                inputs += more
            case other:
                raise AssertionError(other)
    assert not is_open
    assert [event["type"] for event in rest[-2:]] == ["message_delta", "message_stop"]
    message |= rest[-2]["delta"]
    message["usage"] |= rest[-2]["usage"]
    return message


def folded(given: Sequence[EventDelta]) -> dict[str, Any]:
    fold = MessageFold(HEAD)
    fold.feed(given)
    return json.loads(fold.body())


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    for block in message["content"]:
        if block["type"] == "tool_use":
            assert block.pop("id").startswith("toolu_")
    return message


def test_a_stream_of_thinking_text_and_calls_word_for_word() -> None:
    events = [
        ReasoningDelta("Hm"), ReasoningDelta("."), TextDelta("Let me "), TextDelta("see.\n"),
        *call(0, '{"city":', '"Zürich"}'), *call(1, "{}", name="g"),
    ]  # fmt: skip
    told = streamed(deltas(events))
    ids = [e["content_block"].pop("id") for e in told if "id" in e.get("content_block", ())]
    assert len(set(ids)) == 2
    signature = told[5]["delta"]["signature"]
    assert len(signature) == 64
    assert told == [
        {"type": "message_start", "message": {
            "type": "message", "id": "msg_1", "role": "assistant", "model": "m", "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": {
                "input_tokens": 10, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0, "output_tokens": 0}}},
        {"type": "ping"},
        start(0, type="thinking", thinking="", signature=""),
        grown(0, "thinking", thinking="Hm"),
        grown(0, "thinking", thinking="."),
        grown(0, "signature", signature=signature),
        {"type": "content_block_stop", "index": 0},
        start(1, type="text", text=""),
        grown(1, "text", text="Let me "),
        grown(1, "text", text="see.\n"),
        {"type": "content_block_stop", "index": 1},
        start(2, type="tool_use", name="f", input={}),
        grown(2, "input_json", partial_json='{"city":'),
        grown(2, "input_json", partial_json='"Zürich"}'),
        {"type": "content_block_stop", "index": 2},
        start(3, type="tool_use", name="g", input={}),
        grown(3, "input_json", partial_json="{}"),
        {"type": "content_block_stop", "index": 3},
        {"type": "message_delta",
         "delta": {"stop_reason": "tool_use", "stop_sequence": None},
         "usage": {"input_tokens": 6, "cache_creation_input_tokens": 0,
                   "cache_read_input_tokens": 4, "output_tokens": 5,
                   "output_tokens_details": {"thinking_tokens": 2}}},
        {"type": "message_stop"},
    ]  # fmt: skip


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def grown(index: int, kind: str, **more: str) -> dict[str, Any]:
    delta = {"type": f"{kind}_delta", **more}
    return {"type": "content_block_delta", "index": index, "delta": delta}


@pytest.mark.parametrize("seed", range(40))
def test_a_stream_and_an_object_say_the_same(seed: int) -> None:
    pick = random.Random(seed)
    events: list[Event] = []
    calls = 0
    for _ in range(pick.randrange(12)):
        words = pick.choice(["", " ", "\n\n", "a", " b ", "c\u2028d", "é🚀"])
        match pick.randrange(3):
            case 0:
                events.append(TextDelta(words))
            case 1:
                events.append(ReasoningDelta(words))
            case _:
                events += call(
                    calls, *pick.choice([["{}"], ['{"a"', ": 1}"], ['{"a":"\\n\\u0041"}']])
                )
                calls += 1
    end = pick.choice([ChoiceEnd("stop"), ChoiceEnd("length"), ChoiceEnd("stop", "END")])
    given = deltas(events, end, step=pick.randrange(1, 4))
    assert without_ids(accumulated(streamed(given))) == without_ids(folded(given))


def test_white_space_alone_makes_no_block_and_stays_where_text_follows() -> None:
    given = deltas([ReasoningDelta("\n"), TextDelta("\n"), TextDelta("\n"), *call(0, "{}"),
                    TextDelta("\n"), TextDelta(" x "), TextDelta("\n")])  # fmt: skip
    for message in (accumulated(streamed(given)), folded(given)):
        kinds = [block["type"] for block in message["content"]]
        assert kinds == ["tool_use", "text"]
        assert message["content"][1]["text"] == "\n x \n"


@pytest.mark.parametrize(
    ("events", "end", "reason", "sequence"),
    [
        (text("a"), ChoiceEnd("stop"), "end_turn", None),
        ((), ChoiceEnd("stop"), "end_turn", None),
        (text("a"), ChoiceEnd("stop", 7), "end_turn", None),
        (text("a"), ChoiceEnd("stop", "END"), "stop_sequence", "END"),
        (text("a"), ChoiceEnd("length"), "max_tokens", None),
        (call(0, "{}"), ChoiceEnd("stop"), "tool_use", None),
        (call(0, "{}"), ChoiceEnd("stop", "END"), "tool_use", None),
        (call(0, "{}"), ChoiceEnd("length"), "max_tokens", None),
        (call(0, '{"a', complete=False), ChoiceEnd("stop"), "end_turn", None),
        (call(0, '{"a', complete=False), ChoiceEnd("length"), "max_tokens", None),
    ],
)
def test_why_it_ended(
    events: Sequence[Event], end: ChoiceEnd, reason: str, sequence: str | None
) -> None:
    given = deltas(events, end)
    *_, ended, _ = streamed(given)
    for found in (ended["delta"], folded(given)):
        assert (found["stop_reason"], found["stop_sequence"]) == (reason, sequence)


def test_a_call_that_is_cut_is_not_in_the_object_and_its_block_is_closed_in_the_stream() -> None:
    given = deltas([TextDelta("a"), *call(0, '{"x": "hal', complete=False)], ChoiceEnd("length"))
    told = streamed(given)
    assert told[-3] == {"type": "content_block_stop", "index": 1}
    assert [block["type"] for block in folded(given)["content"]] == ["text"]


def test_a_call_without_an_end_is_closed_too() -> None:
    told = streamed(deltas([CallStart(0, "f"), ArgumentsDelta(0, "{")], ChoiceEnd("length")))
    assert told[-3] == {"type": "content_block_stop", "index": 0}


@pytest.mark.parametrize(
    ("failed", "status", "kind"),
    [
        (Failed(request_id="r", code="invalid_request", message="m", status=400), 400,
         "invalid_request_error"),
        (Failed(request_id="r", code="invalid_request", message="m", status=401), 401,
         "authentication_error"),
        (Failed(request_id="r", code="invalid_request", message="m", status=403), 403,
         "permission_error"),
        (Failed(request_id="r", code="not_found", message="m", status=404), 404,
         "not_found_error"),
        (Failed(request_id="r", code="invalid_request", message="m", status=413), 413,
         "request_too_large"),
        (Failed(request_id="r", code="invalid_request", message="m", status=429), 429,
         "rate_limit_error"),
        (Failed(request_id="r", code="overloaded", message="m", status=429), 529,
         "overloaded_error"),
        (Failed(request_id="r", code="deadline", message="m"), 504, "timeout_error"),
        (Failed(request_id="r", code="engine", message="m"), 500, "api_error"),
        (Failed(request_id="r", code="unavailable", message="m", status=503), 503, "api_error"),
    ],
)  # fmt: skip
def test_failures_in_the_words_of_the_api(failed: Failed, status: int, kind: str) -> None:
    assert error_status(failed) == status
    assert json.loads(error_body(failed)) == {
        "type": "error",
        "error": {"type": kind, "message": "m"},
        "request_id": "r",
    }


def test_a_code_that_clients_act_on_is_told() -> None:
    code = "thread_unsupported_request"
    failed = Failed(
        request_id="r", code="invalid_request", message="m", status=400, error_code=code
    )
    assert json.loads(error_body(failed))["error"]["details"] == {"error_code": code}


def test_every_failure_has_a_type() -> None:
    for code in STATUS:
        assert error_status(Failed(request_id="", code=code, message="")) >= 400


async def test_a_request_goes_out_as_messages_and_streams_back() -> None:
    async with stack(prompt_tokens=3) as s:
        answer = s.visit(path=PATH, headers={"anthropic-version": "2023-06-01"})
        rid = await s.peers.request()
        assert s.peers.prepared[0].api == "messages"
        await s.peers.say(rid, *text("a"))
        assert b"text_delta" in await answer.written(1)
        await s.peers.finish(rid)
        told = await answer.end()
        assert (told.status, told.complete) == (200, True)
        assert told.headers["content-type"].startswith("text/event-stream")
        assert told.headers["request-id"] == told.headers["x-request-id"]
        message = accumulated(events_of(told.body))
        assert message["id"] == f"msg_{rid}"
        assert message["model"] == MODEL
        assert message["content"] == [{"type": "text", "text": "a"}]
        assert s.metric("toolrail_choices_finished_total", model=MODEL, reason="stop") == 1


async def test_a_request_that_does_not_stream_gets_one_object() -> None:
    async with stack(stream=False) as s:
        answer = s.visit(path=PATH)
        await s.peers.finish(await s.peers.request(), *call(0, "{}"))
        told = (await answer.end()).json
        assert told["type"] == "message"
        assert told["stop_reason"] == "tool_use"
        assert told["content"][0]["input"] == {}
        assert s.metric("toolrail_tool_calls_total", model=MODEL, outcome="complete") == 1


async def test_a_failure_midway_is_an_error_event_and_the_last_one() -> None:
    async with stack() as s:
        answer = s.visit(path=PATH)
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await answer.written(1)
        await s.peers.say(rid, failed=Failed(request_id=rid, code="engine", message="broke"))
        last = events_of((await answer.end()).body)[-1]
        assert last["error"] == {"type": "api_error", "message": "broke"}


async def test_silence_is_a_ping() -> None:
    writer = MessageWriter(HEAD, prompt_tokens=1)
    assert events_of(writer.keep_alive()) == [{"type": "ping"}]
    assert events_of(writer.error(Failed(request_id="", code="deadline", message="late"))) == [
        {"type": "error", "error": {"type": "timeout_error", "message": "late"},
         "request_id": None}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "status", "kind"),
    [
        ({"method": "GET", "body": b""}, 405, "invalid_request_error"),
        ({"headers": {"content-type": "text/plain"}}, 415, "invalid_request_error"),
        ({"path": f"{PATH}/count_tokens", "method": "GET", "body": b""}, 405,
         "invalid_request_error"),
    ],
)  # fmt: skip
async def test_refusals_before_the_body_are_of_its_shape(
    request_: dict[str, Any], status: int, kind: str
) -> None:
    async with stack() as s:
        told = await s.visit(**({"path": PATH} | request_)).end()
        assert told.status == status
        assert told.json["error"]["type"] == kind
        assert told.json["request_id"] == told.headers["request-id"]


@pytest.mark.parametrize(
    ("method", "path", "says_version"),
    [
        ("GET", "/v1/models/nope", True),
        ("POST", "/v1/complete", True),
        ("POST", f"{PATH}/batches", True),
        ("POST", f"{PATH}/batches", False),
        ("POST", f"{PATH}/", False),
    ],
)
async def test_what_is_not_there_is_told_in_its_words(
    method: str, path: str, *, says_version: bool
) -> None:
    headers = {"anthropic-version": "2023-06-01"} if says_version else {}
    async with stack() as s:
        told = await s.visit(method, path, headers=headers, body=b"").end()
        assert (told.status, told.json["type"]) == (404, "error")
        assert told.json["error"]["type"] == "not_found_error"
        assert told.json["request_id"] == told.headers["request-id"]


async def test_a_wrong_method_of_a_shared_route_is_told_in_its_words() -> None:
    headers = {"anthropic-version": "2023-06-01"}
    async with stack() as s:
        told = await s.visit("POST", "/v1/models", headers=headers).end()
        assert (told.status, told.headers["allow"]) == (405, "GET, HEAD")
        assert told.json["error"]["type"] == "invalid_request_error"
        plain = await s.visit("POST", "/v1/models").end()
        assert plain.json["error"]["code"] == "method_not_allowed"


async def test_a_full_queue_is_529_and_says_when_to_come_again() -> None:
    async with stack() as s:

        async def busy(prepare: Prepare) -> Reply:
            return Failed(request_id=prepare.request_id, code="overloaded", message="full",
                          status=429, retryable=True, retry_after_s=2)  # fmt: skip

        s.peers.respond = busy
        told = await s.visit(path=PATH).end()
        assert (told.status, told.headers["retry-after"]) == (529, "2")
        assert told.json["error"]["type"] == "overloaded_error"


def counting(s: Stack, tokens: int) -> None:
    async def respond(prepare: Prepare) -> Reply:
        return Accepted(request_id=prepare.request_id, instance="", prompt_tokens=tokens)

    s.peers.respond = respond


async def test_tokens_are_counted_and_nothing_is_generated() -> None:
    async with stack() as s:
        counting(s, 42)
        told = await s.visit(path=f"{PATH}/count_tokens", body=b'{"model": "x"}').end()
        assert (told.status, told.json) == (200, {"input_tokens": 42})
        (prepare,) = s.peers.prepared
        assert (prepare.api, prepare.count_only) == ("messages", True)
        assert len(s.gateway.streams) == 0
        assert s.peers.cancels == []


async def test_a_count_that_fails_says_so_in_its_api_s_words() -> None:
    async with stack() as s:

        async def refuse(prepare: Prepare) -> Reply:
            return Failed(request_id=prepare.request_id, code="not_found", message="none",
                          status=404)  # fmt: skip

        s.peers.respond = refuse
        told = await s.visit(path=f"{PATH}/count_tokens").end()
        assert told.status == 404
        assert told.json["error"] == {"type": "not_found_error", "message": "none"}
        big = await s.visit(
            path=f"{PATH}/count_tokens", headers={"content-length": str(1 << 40)}
        ).end()
        assert (big.status, big.json["error"]["type"]) == (413, "request_too_large")


async def test_models_for_clients_of_this_api() -> None:
    version = {"anthropic-version": "2023-06-01"}
    async with stack() as s:
        listed = (await s.visit("GET", "/v1/models", headers=version).end()).json
        assert listed == {
            "data": [
                {"type": "model", "id": MODEL, "display_name": MODEL, "lifecycle": "active",
                 "created_at": "2023-11-14T22:13:20Z", "max_input_tokens": 4096}
            ],
            "has_more": False, "first_id": MODEL, "last_id": MODEL,
        }  # fmt: skip
        one = (await s.visit("GET", f"/v1/models/{MODEL}", headers=version).end()).json
        assert one == listed["data"][0]


async def test_a_client_that_leaves_is_cancelled() -> None:
    async with stack(control_subject=subjects.control(POSTPROCESSOR)) as s:
        answer = s.visit(path=PATH)
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await answer.written(1)
        answer.leave()
        await answer.end()
        assert (await s.peers.cancelled()).request_id == rid
