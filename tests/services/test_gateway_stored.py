"""Responses that are kept: read again, listed, followed, deleted; and what a failing store does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from services.gateway.app import App
from services.gateway.gateway import Gateway
from tests.published_answers import check
from tests.services.gateway_double import Answer, Stack, stack, text
from toolrail.api_keys import hash_of, new_key
from toolrail.bus.memory_documents import MemoryDocuments
from toolrail.errors import BusClosedError
from toolrail.events import ArgumentsDelta, CallEnd, CallStart
from toolrail.messages import Failed, Instance, Prepare, Reply, encode
from toolrail.service import serving
from toolrail.settings import GatewaySettings
from toolrail.stored import StoredAnswer

pytestmark = pytest.mark.anyio

PATH = "/v1/responses"


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "input": "hi", **fields}).encode()


@asynccontextmanager
async def serving_responses(**settings: Any) -> AsyncIterator[Stack]:
    """A gateway whose peers take the body's word for what they tell of it."""
    async with stack(settings=GatewaySettings(instance="gw", **settings)) as s:

        async def respond(prepare: Prepare) -> Reply:
            asked = json.loads(prepare.body)
            asked = {"store": True, "background": False} | asked
            chain = tuple(filter(None, [asked.get("previous_response_id")]))
            s.peers.accept = {
                "echo": json.dumps(asked).encode(),
                "stream": asked.get("stream") is True,
                "chain": chain,
            }
            return s.peers.accepted(prepare)

        s.peers.respond = respond
        s.tasks.start_soon(s.gateway.runs.serve)
        yield s


async def created(s: Stack, *events: Any, number: int = 1, **fields: Any) -> Answer:
    """The answer to a request that is generated at once."""
    answer = s.visit(path=PATH, body=body(**fields))
    rid = await s.peers.request(number)
    await s.peers.finish(rid, *(events or text("Hello")))
    return await answer.end()


async def ask(s: Stack, method: str, path: str, app: App | None = None) -> Answer:
    usual, s.app = s.app, app or s.app
    answer = await s.visit(method, f"{PATH}/{path}", body=b"").end()
    s.app = usual
    return answer


async def test_a_response_is_read_again_as_it_was() -> None:
    async with serving_responses() as s:
        answer = await created(s)
        response = answer.json
        assert response["store"] is True
        again = await ask(s, "GET", response["id"])
        assert (again.status, again.body) == (200, answer.body)
        gone = await ask(s, "DELETE", response["id"])
        assert gone.json == {"id": response["id"], "object": "response", "deleted": True}
        for method in ("GET", "DELETE"):
            missing = await ask(s, method, response["id"])
            assert (missing.status, missing.error["param"]) == (404, "response_id")


async def test_a_stream_is_read_again_as_its_last_event_says() -> None:
    async with serving_responses() as s:
        answer = await created(s, stream=True)
        last = answer.body.decode().split("\n\n")[-2]
        response = json.loads(last.split("data: ", 1)[1])["response"]
        again = await ask(s, "GET", response["id"])
        assert again.json == response
        check("Response", again.json)


@pytest.mark.parametrize("fields", [{"store": False}, {}])
async def test_what_is_not_to_be_stored_is_not(fields: dict[str, Any]) -> None:
    async with serving_responses(store_by_default=False) as s:
        answer = await created(s, **fields)
        assert answer.json["store"] is False
        assert (await ask(s, "GET", answer.json["id"])).status == 404


async def test_what_fails_or_loses_its_client_leaves_nothing() -> None:
    async with serving_responses() as s:
        answer = s.visit(path=PATH, body=body())
        rid = await s.peers.request()
        failed = Failed(request_id=rid, code="engine", message="dead")
        await s.peers.say(rid, failed=failed)
        assert (await answer.end()).status == 500
        with pytest.raises(KeyError):
            await s.gateway.stored.input(f"resp_{rid}", "")


class Failing(MemoryDocuments):
    """Documents that cannot be written from some key on."""

    prefixes = ("i-", "o-", "e-")

    async def put(self, key: str, value: bytes, *, ttl_s: float) -> None:
        if key.startswith(self.prefixes):
            raise BusClosedError("no store")
        await super().put(key, value, ttl_s=ttl_s)


def broken(s: Stack, *prefixes: str) -> None:
    documents = Failing(s.broker.shelf, lambda _: None)
    documents.prefixes = prefixes
    s.gateway.stored._documents = documents


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prefix", ["i-", "o-"])
async def test_a_store_that_fails_loses_no_answer_and_is_not_silent(
    prefix: str, stream: bool
) -> None:
    async with serving_responses() as s:
        broken(s, prefix)
        answer = await created(s, stream=stream)
        assert answer.status == 200
        final = answer.body
        if stream:
            final = answer.body.decode().split("\n\n")[-2].split("data: ", 1)[1].encode()
        response = json.loads(final)
        response = response.get("response", response)
        assert response["output"][0]["content"][0]["text"] == "Hello"
        assert response["store"] is False
        assert s.metric("toolrail_responses_not_stored_total", reason="store") == 1
        assert (await ask(s, "GET", response["id"])).status == 404


async def test_what_is_too_large_is_answered_and_not_stored() -> None:
    async with serving_responses(max_stored_response_bytes=400) as s:
        answer = await created(s)
        assert answer.json["store"] is False
        assert s.metric("toolrail_responses_not_stored_total", reason="too_large") == 1


async def test_input_items_of_a_conversation() -> None:
    async with serving_responses() as s:
        call = (CallStart(0, "f"), ArgumentsDelta(0, "{}"), CallEnd(0))
        first = (await created(s, *call)).json
        output = {
            "type": "function_call_output",
            "call_id": first["output"][0]["call_id"],
            "output": "7",
        }
        second = await created(s, number=2, input=[output], previous_response_id=first["id"])
        path = f"{second.json['id']}/input_items"
        listed = (await ask(s, "GET", path)).json
        check("ResponseItemList", listed)
        kinds = ["function_call_output", "function_call", "message"]
        assert [item["type"] for item in listed["data"]] == kinds
        assert listed["data"][1] == first["output"][0]
        assert (listed["has_more"], listed["first_id"]) == (False, listed["data"][0]["id"])
        page = (await ask(s, "GET", f"{path}?order=asc&limit=1")).json
        assert ([item["type"] for item in page["data"]], page["has_more"]) == (["message"], True)
        rest = (await ask(s, "GET", f"{path}?order=asc&after={page['last_id']}")).json
        assert [item["type"] for item in rest["data"]] == kinds[1::-1]
        for query, param in (("limit=0", "limit"), ("order=up", "order"), ("after=x", "after")):
            bad = await ask(s, "GET", f"{path}?{query}")
            assert (bad.status, bad.error["param"]) == (400, param)


async def test_pages_end_whatever_items_are_called() -> None:
    async with serving_responses() as s:
        items = [{"role": "user", "content": "x", "id": "same"} for _ in range(3)]
        response = (await created(s, input=items)).json
        path = f"{response['id']}/input_items?limit=2"
        page = (await ask(s, "GET", path)).json
        assert (len(page["data"]), page["has_more"]) == (2, True)
        rest = (await ask(s, "GET", f"{path}&after={page['last_id']}")).json
        assert (rest["data"], rest["has_more"]) == ([], False)


async def test_only_its_owner_finds_a_response() -> None:
    async with serving_responses() as s:
        response = (await created(s)).json
        theirs = await s.gateway.stored.answer(response["id"], "")
        with pytest.raises(KeyError):
            await s.gateway.stored.answer(response["id"], "somebody")
        with pytest.raises(KeyError):
            await s.gateway.stored.input(response["id"], "somebody")
        assert theirs.status == "completed"


async def test_owners_of_keys_are_kept_apart(tmp_path: Path) -> None:
    keys = {owner: new_key() for owner in ("a", "b")}
    entries = [
        f'[[keys]]\nid = "{key_id}"\nname = "{owner}"\nhash = "{hash_of(key)}"\n'
        for owner, (key, key_id) in keys.items()
    ]
    file = tmp_path / "keys.toml"
    file.write_text("".join(entries), "utf-8")
    bound = 4 * 2000
    async with serving_responses(api_keys_file=str(file), max_owner_document_bytes=bound) as s:

        async def visit(owner: str, method: str, path: str, sent: bytes = b"") -> Answer:
            headers = {"authorization": f"Bearer {keys[owner][0]}"}
            answer = s.visit(method, path, headers=headers, body=sent)
            if sent:
                rid = await s.peers.request(len(s.peers.prepared) + 1)
                await s.peers.finish(rid, *text("Hello"))
            return await answer.end()

        response = (await visit("a", "POST", PATH, body())).json
        assert response["store"] is True
        place = f"{PATH}/{response['id']}"
        for path in (place, f"{place}/input_items"):
            assert (await visit("a", "GET", path)).status == 200
            assert (await visit("b", "GET", path)).status == 404
        assert (await visit("b", "DELETE", place)).status == 404
        assert (await visit("a", "DELETE", place)).status == 200
        assert (await visit("a", "GET", place)).status == 404
        large = (await visit("a", "POST", PATH, body(input="x" * 2000))).json
        assert large["store"] is False  # four such must fit the owner's bound


@pytest.mark.parametrize("path", ["resp_1", "x", "resp_1/cancel/now", "resp_1/steps", ""])
async def test_names_that_are_none(path: str) -> None:
    async with serving_responses() as s:
        assert (await ask(s, "GET", path)).status == 404


# --- in the background


async def begun(s: Stack, number: int = 1, **fields: Any) -> dict[str, Any]:
    answer = await s.visit(path=PATH, body=body(background=True, **fields)).end()
    assert answer.status == 200
    check("Response", answer.json)
    assert (answer.json["status"], answer.json["background"]) == ("queued", True)
    await s.peers.request(number)
    return answer.json


async def over(s: Stack, response_id: str) -> None:
    with anyio.fail_after(10):
        run = s.gateway.runs.get(response_id)
        if run is not None:
            await run.over.wait()


async def test_a_background_response_needs_no_client() -> None:
    async with serving_responses() as s:
        response = await begun(s)
        rid = response["id"].removeprefix("resp_")
        await s.peers.say(rid, *text("Hel"))
        assert s.metric("toolrail_background_responses") == 1
        await s.peers.finish(rid, *text("lo"))
        await over(s, response["id"])
        done = (await ask(s, "GET", response["id"])).json
        check("Response", done)
        assert (done["status"], done["output"][0]["content"][0]["text"]) == ("completed", "Hello")
        assert done["background"] is True
        again = await ask(s, "POST", f"{response['id']}/cancel")
        assert again.json == done
        assert s.metric("toolrail_tokens_total", model="acme/demo", kind="completion") == 5


async def test_what_is_too_large_to_be_stored_does_not_run_in_the_background() -> None:
    async with serving_responses(max_stored_response_bytes=40) as s:
        answer = s.visit(path=PATH, body=body(background=True, input="x" * 50))
        await s.peers.request()
        error = (await answer.end()).json["error"]
        assert (answer.status, error["param"]) == (400, "input")
        assert "40 bytes" in error["message"]
        assert (await s.peers.cancelled()).request_id


async def test_cancelling_frees_the_slot() -> None:
    async with serving_responses() as s:
        response = await begun(s)
        cancelled = await ask(s, "POST", f"{response['id']}/cancel")
        check("Response", cancelled.json)
        assert (cancelled.status, cancelled.json["status"]) == (200, "cancelled")
        assert (await s.peers.cancelled()).request_id == response["id"].removeprefix("resp_")
        assert (await ask(s, "GET", response["id"])).json == cancelled.json
        assert s.gateway.runs.get(response["id"]) is None


async def test_only_background_responses_can_be_cancelled() -> None:
    async with serving_responses() as s:
        response = (await created(s)).json
        answer = await ask(s, "POST", f"{response['id']}/cancel")
        assert (answer.status, answer.error["param"]) == (400, "response_id")


async def test_deleting_cancels_first() -> None:
    async with serving_responses() as s:
        response = await begun(s)
        assert (await ask(s, "DELETE", response["id"])).status == 200
        await s.peers.cancelled()
        assert (await ask(s, "GET", response["id"])).status == 404


async def test_too_many_are_refused() -> None:
    async with serving_responses(max_background=1) as s:
        await begun(s)
        answer = await s.visit(path=PATH, body=body(background=True)).end()
        assert (answer.status, answer.error["code"]) == (429, "overloaded")


async def test_what_cannot_begin_is_a_status() -> None:
    async with serving_responses() as s:
        respond = s.peers.respond

        async def refuse(prepare: Prepare) -> Reply:
            return Failed(
                request_id=prepare.request_id,
                code="invalid_request",
                message="no",
                status=400,
                param="input",
            )

        s.peers.respond = refuse
        answer = await s.visit(path=PATH, body=body(background=True)).end()
        assert (answer.status, answer.error["param"]) == (400, "input")
        s.peers.respond = respond
        broken(s, "i-")
        answer = await s.visit(path=PATH, body=body(background=True)).end()
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
        await s.peers.cancelled()


async def test_a_failure_is_kept() -> None:
    async with serving_responses() as s:
        response = await begun(s)
        rid = response["id"].removeprefix("resp_")
        await s.peers.say(rid, failed=Failed(request_id=rid, code="engine", message="dead"))
        await over(s, response["id"])
        failed = (await ask(s, "GET", response["id"])).json
        check("Response", failed)
        assert (failed["status"], failed["error"]["message"]) == ("failed", "dead")


async def test_a_gateway_that_stops_says_that_its_runs_failed() -> None:
    async with serving_responses() as s:
        async with anyio.create_task_group() as tasks:
            s.gateway.runs._tasks = None
            tasks.start_soon(s.gateway.runs.serve)
            await anyio.wait_all_tasks_blocked()
            response = await begun(s)
            tasks.cancel_scope.cancel()
        failed = (await ask(s, "GET", response["id"])).json
        assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")


async def test_a_gateway_that_died_is_found_out() -> None:
    async with serving_responses() as s:
        response = await begun(s)
        name = response["id"]
        left = StoredAnswer(
            status="in_progress",
            response=json.dumps(response | {"status": "in_progress"}).encode(),
            runner="gw-dead",
            runner_pid=1,
            expires_s=1 << 40,
        )
        other = name[:-1] + ("0" if name[-1] != "0" else "1")
        await s.gateway.stored.put_answer(other, left, 60)
        failed = (await ask(s, "GET", other)).json
        assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
        assert (await s.gateway.stored.answer(other, "")).status == "failed"
        assert (await ask(s, "GET", name)).json["status"] == "queued"


async def test_a_gateway_that_is_not_registered_is_asked_before_it_is_given_up() -> None:
    async with serving_responses() as s, second_gateway(s) as other:
        response = await begun(s)  # by a gateway that never announced itself
        assert (await ask(s, "GET", response["id"], other)).json["status"] != "failed"
        restarted = Instance(service="gateway", instance="gw", pid=1)
        await s.peers.bus.instances.put("gateway.gw", encode(restarted))
        with anyio.fail_after(10):
            while not other._gateway.directory.instances("gateway"):
                await anyio.lowlevel.checkpoint()
        assert (await ask(s, "GET", response["id"], other)).json["status"] == "failed"


@asynccontextmanager
async def second_gateway(s: Stack) -> AsyncIterator[App]:
    settings = GatewaySettings(instance="gw-2")
    async with serving("gateway", settings, s.broker.connect()) as runtime:
        yield App(Gateway.of(runtime))


async def test_another_gateway_tells_and_cancels() -> None:
    async with serving_responses() as s, second_gateway(s) as other:
        await s.runtime.announce()
        response = await begun(s)
        with anyio.fail_after(10):
            while not other._gateway.directory.instances("gateway"):
                await anyio.lowlevel.checkpoint()
        seen = await ask(s, "GET", response["id"], other)
        assert seen.json["status"] in ("queued", "in_progress")
        cancelled = await ask(s, "POST", f"{response['id']}/cancel", other)
        assert cancelled.json["status"] == "cancelled"
        await s.peers.cancelled()


def numbers(answer: Answer) -> list[int]:
    blocks = [block for block in answer.body.decode().split("\n\n") if "data: " in block]
    return [json.loads(block.split("data: ", 1)[1])["sequence_number"] for block in blocks]


async def test_a_background_stream_goes_on_without_its_client_and_is_streamed_again() -> None:
    async with serving_responses() as s:
        answer = s.visit(path=PATH, body=body(background=True, stream=True))
        rid = await s.peers.request()
        await s.peers.say(rid, *text("Hel"))
        await answer.written(1)
        answer.leave()
        await answer.end()
        resumed = s.visit("GET", f"{PATH}/resp_{rid}?stream=true&starting_after=1", body=b"")
        await resumed.written(1)
        await s.peers.finish(rid, *text("lo"))
        await resumed.end()
        whole = await ask(s, "GET", f"resp_{rid}?stream=true")
        everything = numbers(whole)
        assert everything == list(range(len(everything)))
        assert numbers(resumed) == everything[2:]
        assert whole.body.decode().split("\n\n")[-2].startswith("event: response.completed\n")
        nothing = await ask(s, "GET", f"resp_{rid}?stream=true&starting_after={everything[-1]}")
        assert (nothing.status, nothing.body) == (200, b"")
        assert not s.peers.cancels


async def test_events_that_are_too_many_are_followed_live_and_not_kept() -> None:
    async with serving_responses(max_stored_response_bytes=4000) as s:
        answer = s.visit(path=PATH, body=body(background=True, stream=True))
        rid = await s.peers.request()
        for number in range(30):
            await s.peers.say(rid, *text(f"{number} "))
            await answer.until(lambda n=number: f'"{n} "'.encode() in answer.body)
        run = s.gateway.runs.get(f"resp_{rid}")
        assert run is not None
        assert sum(map(len, run.events)) <= 4000
        assert await run.more(0, 1) is None
        await s.peers.finish(rid)
        await answer.end()
        assert numbers(answer) == list(range(len(numbers(answer))))
        again = await ask(s, "GET", f"resp_{rid}?stream=true")
        assert (again.status, again.error["param"]) == (400, "stream")


async def test_what_was_not_streamed_in_the_background_has_no_events() -> None:
    async with serving_responses() as s:
        response = (await created(s)).json
        answer = await ask(s, "GET", f"{response['id']}?stream=true")
        assert (answer.status, answer.error["param"]) == (400, "stream")
