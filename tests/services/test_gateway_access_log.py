"""One line a request, of what it came to and not of what it said."""

from __future__ import annotations

import logging

import pytest

from tests.services.gateway_double import MODEL, stack, text
from toolrail.messages import Failed

pytestmark = pytest.mark.anyio

SECRET = "a secret of the client"


def line(caplog: pytest.LogCaptureFixture) -> dict[str, object]:
    """What the one line says."""
    (record,) = [record for record in caplog.records if record.name == "toolrail.request"]
    assert SECRET not in str(vars(record))
    return vars(record)


async def test_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolrail.request")
    async with stack() as s:
        answer = s.visit(body=SECRET.encode())
        rid = await s.peers.request()
        await s.peers.finish(rid, *text(SECRET))
        await answer.end()
    said = line(caplog)
    assert said["levelname"] == "INFO"
    assert said["request_id"] == rid
    assert (said["route"], said["status"]) == ("/v1/chat/completions", 200)
    assert (said["model"], said["finish"], said["calls"]) == (MODEL, "stop", 0)
    assert (said["prompt_tokens"], said["completion_tokens"], said["cached_tokens"]) == (7, 5, 3)


async def test_the_clients_own_id_stands_beside_ours(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolrail.request")
    async with stack() as s:
        answer = s.visit(headers={"x-request-id": "my-own-id-42"})
        rid = await s.peers.request()
        await s.peers.finish(rid, *text("a"))
        await answer.end()
    said = line(caplog)
    assert (said["request_id"], said["client_request_id"]) == (rid, "my-own-id-42")


async def test_a_failure_of_ours_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "toolrail.request")
    async with stack() as s:
        answer = s.visit(body=SECRET.encode())
        rid = await s.peers.request()
        failed = Failed(request_id=rid, code="engine", message="it broke", status=500)
        await s.peers.say(rid, failed=failed)
        await answer.end()
    said = line(caplog)
    assert (said["levelname"], said["code"], said["status"]) == ("WARNING", "engine", 500)


async def test_a_client_that_left(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolrail.request")
    async with stack() as s:
        answer = s.visit(body=SECRET.encode())
        await s.peers.request()
        answer.leave()
        await answer.end()
    said = line(caplog)
    assert said["status"] == 499
    assert said["left"]


async def test_questions_about_health_leave_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolrail.request")
    async with stack() as s:
        for path in ("/live", "/health", "/metrics"):
            await s.visit("GET", path, body=b"").end()
    assert not [record for record in caplog.records if record.name == "toolrail.request"]
