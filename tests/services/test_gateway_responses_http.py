from __future__ import annotations

import json

import pytest

from tests.published_answers import check, check_response_events
from tests.services.gateway_double import MODEL, stack, text
from toolrail.events import ArgumentsDelta, CallEnd, CallStart
from toolrail.messages import Failed

pytestmark = pytest.mark.anyio

PATH = "/v1/responses"
ECHO = json.dumps({"instructions": None, "store": False}).encode()


async def test_a_streamed_response() -> None:
    async with stack(echo=ECHO) as s:
        answer = s.visit(path=PATH)
        rid = await s.peers.request()
        assert s.peers.prepared[0].api == "responses"
        await s.peers.say(rid, *text("Hel"))
        await s.peers.say(rid, *text("lo"), CallStart(0, "f"), ArgumentsDelta(0, "{}"))
        await s.peers.finish(rid, CallEnd(0))
        await answer.end()
        blocks = answer.body.decode().split("\n\n")[:-1]
        events = [json.loads(block.split("data: ", 1)[1]) for block in blocks]
        check_response_events(events)
        assert events[-1]["type"] == "response.completed"
        response = events[-1]["response"]
        assert (response["id"], response["model"]) == (f"resp_{rid}", MODEL)
        assert [item["type"] for item in response["output"]] == ["message", "function_call"]
        assert s.metric("toolrail_tool_calls_total", model=MODEL, outcome="complete") == 1
        assert s.metric("toolrail_choices_finished_total", model=MODEL, reason="tool_calls") == 1


async def test_a_response_that_is_not_streamed() -> None:
    async with stack(echo=ECHO, stream=False) as s:
        answer = s.visit(path=PATH)
        rid = await s.peers.request()
        await s.peers.finish(rid, *text("Hello"))
        await answer.end()
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        check("Response", answer.json)
        assert answer.json["output"][0]["content"][0]["text"] == "Hello"


async def test_a_failure_before_any_event_is_a_status() -> None:
    async with stack(echo=ECHO) as s:
        answer = s.visit(path=PATH)
        rid = await s.peers.request()
        await s.peers.say(rid, failed=Failed(request_id=rid, code="engine", message="dead"))
        await answer.end()
        assert (answer.status, answer.error["code"]) == (500, "engine")


async def test_a_failure_after_events_is_an_event() -> None:
    async with stack(echo=ECHO) as s:
        answer = s.visit(path=PATH)
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await answer.written(1)
        await s.peers.say(rid, failed=Failed(request_id=rid, code="lost", message="gone"))
        await answer.end()
        assert answer.status == 200
        last = answer.body.decode().split("\n\n")[-2]
        assert last.startswith("event: response.failed\n")


async def test_a_client_that_leaves_cancels() -> None:
    async with stack(echo=ECHO) as s:
        answer = s.visit(path=PATH)
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await answer.written(1)
        answer.leave()
        assert (await s.peers.cancelled()).request_id == rid


async def test_early_dispatch_is_asked_for() -> None:
    for header, names in (("", []), ("tool_calls", ["tool_call_dispatch"])):
        async with stack(echo=ECHO) as s:
            answer = s.visit(path=PATH, headers={"x-toolrail-dispatch": header})
            rid = await s.peers.request()
            await s.peers.finish(rid, CallStart(0, "f"), ArgumentsDelta(0, "{}"), CallEnd(0))
            await answer.end()
            lines = answer.body.decode().splitlines()
            told = [line.removeprefix("event: ") for line in lines if line.endswith("_dispatch")]
            assert told == names
