from __future__ import annotations

import re

import anyio
import pytest

from tests.services.gateway_double import MODEL, stack, text
from toolrail.events import ArgumentsDelta, CallEnd, CallStart

pytestmark = pytest.mark.anyio


async def test_an_unknown_path_is_404() -> None:
    async with stack() as s:
        for path in ("/", "/v1/chat", "/v1/models/", "/v1/chat/completions/"):
            answer = await s.visit("GET", path, body=b"").end()
            assert answer.status == 404, path
            assert answer.error["code"] == "unknown_url"
            assert answer.error["type"] == "invalid_request_error"


async def test_a_wrong_method_is_405_and_says_which() -> None:
    async with stack() as s:
        answer = await s.visit("GET", body=b"").end()
        assert answer.status == 405
        assert answer.headers["allow"] == "POST"
        assert answer.error["code"] == "method_not_allowed"
        answer = await s.visit("DELETE", "/health").end()
        assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", "Application/JSON", "text/json", "",
     "application/vnd.api+json"],
)  # fmt: skip
async def test_json_by_any_name_is_taken(content_type: str) -> None:
    async with stack() as s:
        s.visit(headers={"content-type": content_type})
        await s.peers.request()


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "text/plain"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-encoding": "gzip"},
    ],
)
async def test_what_is_clearly_not_json_is_415(headers: dict[str, str]) -> None:
    async with stack() as s:
        answer = await s.visit(headers=headers).end()
        assert answer.status == 415
        assert next(iter(headers.values())).split(";")[0] in answer.error["message"]


async def test_the_client_s_request_id_comes_back_but_is_not_used_on_the_bus() -> None:
    async with stack() as s:
        first = s.visit(headers={"x-request-id": "mine-1"})
        second = s.visit(headers={"x-request-id": "mine-1"})
        ids = {await s.peers.request(1), await s.peers.request(2)}
        assert len(ids) == 2
        assert "mine-1" not in ids
        for rid in ids:
            await s.peers.finish(rid)
        for answer in (first, second):
            assert (await answer.end()).headers["x-request-id"] == "mine-1"


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "a\r\nb: c", "ümlaut"])
async def test_an_unfit_request_id_is_replaced(given: str) -> None:
    async with stack() as s:
        answer = await s.visit("GET", "/live", headers={"x-request-id": given}).end()
        assert re.fullmatch(r"[0-9a-f]{32}", answer.headers["x-request-id"])


async def test_every_answer_has_a_request_id() -> None:
    async with stack() as s:
        for path in ("/live", "/health", "/metrics", "/v1/models", "/nothing"):
            answer = await s.visit("GET", path).end()
            assert answer.headers["x-request-id"]


async def test_models_lists_what_can_be_served() -> None:
    async with stack() as s:
        answer = await s.visit("GET", "/v1/models").end()
        assert answer.json == {
            "object": "list",
            "data": [
                {
                    "id": MODEL,
                    "object": "model",
                    "created": 1700000000,
                    "owned_by": "toolrail",
                    "max_model_len": 4096,
                }
            ],
        }
        one = await s.visit("GET", f"/v1/models/{MODEL}").end()
        assert one.json == answer.json["data"][0]


async def test_a_model_without_a_service_at_every_hop_is_not_listed() -> None:
    async with stack() as s:
        await s.peers.bus.instances.delete("postprocessor.post-1")
        await anyio.wait_all_tasks_blocked()
        assert (await s.visit("GET", "/v1/models").end()).json["data"] == []
        one = await s.visit("GET", f"/v1/models/{MODEL}").end()
        assert one.status == 404


async def test_an_unknown_model_is_404() -> None:
    async with stack() as s:
        answer = await s.visit("GET", "/v1/models/nope").end()
        assert answer.status == 404
        assert answer.error["code"] == "model_not_found"
        assert answer.error["param"] == "model"


async def test_health_says_what_can_be_served_and_by_whom() -> None:
    async with stack() as s:
        answer = await s.visit("GET", "/health").end()
        assert answer.status == 200
        assert answer.json == {
            "status": "healthy",
            "models": [MODEL],
            "instances": {
                "gateway": [],
                "preprocessor": [{"instance": "pre-1", "draining": False}],
                "postprocessor": [{"instance": "post-1", "draining": False}],
                "worker": [{"instance": "worker-1", "draining": False}],
            },
        }


async def test_health_is_503_when_nothing_can_be_served() -> None:
    async with stack(peers=False) as s:
        answer = await s.visit("GET", "/health").end()
        assert (answer.status, answer.json["status"]) == (503, "unavailable")
        assert (await s.visit("GET", "/live").end()).status == 200


async def test_health_is_503_while_draining() -> None:
    async with stack() as s:
        s.runtime.stopping.set()
        answer = await s.visit("GET", "/health").end()
        assert (answer.status, answer.json["status"]) == (503, "draining")
        assert (await s.visit("GET", "/live").end()).status == 200


async def test_metrics_count_requests_tokens_calls_and_reasons() -> None:
    async with stack() as s:
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await answer.written(1)
        await s.peers.finish(
            rid, CallStart(0, "f"), ArgumentsDelta(0, "{}"), CallEnd(0), CallStart(1, "g"),
            CallEnd(1, complete=False),
        )  # fmt: skip
        await answer.end()
        chat = "/v1/chat/completions"
        assert s.metric("toolrail_http_requests_total", route=chat, method="POST", status="200")
        assert s.metric("toolrail_http_requests_in_flight", route=chat) == 0
        assert s.metric("toolrail_tokens_total", model=MODEL, kind="prompt") == 7
        assert s.metric("toolrail_tokens_total", model=MODEL, kind="reasoning") == 2
        assert s.metric("toolrail_choices_finished_total", model=MODEL, reason="tool_calls") == 1
        assert s.metric("toolrail_tool_calls_total", model=MODEL, outcome="complete") == 1
        assert s.metric("toolrail_tool_calls_total", model=MODEL, outcome="incomplete") == 1
        assert s.metric("toolrail_time_to_first_event_seconds_count", model=MODEL) == 1
        assert s.metric("toolrail_inter_chunk_seconds_count", model=MODEL) == 1
        page = await s.visit("GET", "/metrics").end()
        assert page.headers["content-type"].startswith("text/plain")
        assert b"toolrail_tokens_total{" in page.body


async def test_labels_do_not_grow_with_what_clients_send() -> None:
    async with stack() as s:
        for number in range(20):
            await s.visit(f"M{number}", f"/nothing/{number}").end()
            await s.visit("GET", f"/v1/models/nothing-{number}").end()
        requests = [
            sample
            for family in s.registry.collect()
            if family.name == "toolrail_http_requests"
            for sample in family.samples
            if sample.name.endswith("_total")
        ]
        assert len(requests) == 2


async def test_a_bug_is_500_without_its_text() -> None:
    async with stack() as s:
        s.gateway.directory.cards = lambda: 1 // 0  # type: ignore[method-assign,assignment,return-value]
        answer = await s.visit("GET", "/v1/models").end()
        assert answer.status == 500
        assert answer.error["message"] == "internal error"
        assert s.metric("toolrail_internal_errors_total") == 1
