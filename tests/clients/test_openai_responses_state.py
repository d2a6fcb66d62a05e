"""Stored and background responses through the openai package, on the real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.to_thread
import openai
import pytest

from tests.clients.test_openai_responses import TOOLS
from tests.stack import Stack

pytestmark = pytest.mark.clients

LATE_S = 60.0


@pytest.fixture
def client(served: Stack) -> Iterator[openai.OpenAI]:
    url = f"{served.base_url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=30) as made:
        yield made


def ended(client: openai.OpenAI, name: str) -> Any:
    """The response, once it is over."""

    async def wait() -> Any:
        with anyio.fail_after(LATE_S):
            while True:
                found = await anyio.to_thread.run_sync(client.responses.retrieve, name)
                if found.status not in ("queued", "in_progress"):
                    return found
                await anyio.sleep(0.05)

    return anyio.run(wait)


def test_a_conversation_by_previous_response_id(client: openai.OpenAI) -> None:
    first = client.responses.create(
        model="demo", input="How is the weather?", instructions="Be brief.", tools=TOOLS
    )
    (call,) = first.output
    assert call.type == "function_call"
    result: Any = {
        "type": "function_call_output",
        "call_id": call.call_id,
        "output": "17 degrees",
    }
    with client.responses.stream(
        model="demo", input=[result], previous_response_id=first.id, tools=TOOLS
    ) as stream:
        for _ in stream:
            pass
        second = stream.get_final_response()
    assert second.output_text == "It is 17 degrees in Zürich."
    assert second.previous_response_id == first.id
    assert second.instructions is None
    third = client.responses.create(model="demo", input="And?", previous_response_id=second.id)
    assert third.output_text == "It is 17 degrees in Zürich."  # the prompt holds it all

    listed = list(client.responses.input_items.list(third.id, order="asc", limit=2))
    assert [item.type for item in listed] == [
        "message", "function_call", "function_call_output", "message", "message",
    ]  # fmt: skip
    assert listed[1].id == call.id
    by_reference = client.responses.create(
        model="demo",
        input=[{"type": "item_reference", "id": call.id or ""}, result],
        tools=TOOLS,
    )
    assert by_reference.output_text == "It is 17 degrees in Zürich."


def test_a_stored_response_is_read_and_deleted(client: openai.OpenAI) -> None:
    made = client.responses.create(model="demo", input="17 degrees", metadata={"a": "b"})
    assert client.responses.retrieve(made.id) == made
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as info:
        client.responses.create(model="demo", input="x", previous_response_id=made.id)
    assert (info.value.param, info.value.code) == (
        "previous_response_id",
        "previous_response_not_found",
    )
    kept_out = client.responses.create(model="demo", input="17 degrees", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(kept_out.id)


def test_a_background_response_is_polled(client: openai.OpenAI) -> None:
    made = client.responses.create(model="demo", input="17 degrees", background=True)
    assert made.status == "queued"
    done = ended(client, made.id)
    assert (done.status, done.output_text) == ("completed", "It is 17 degrees in Zürich.")
    assert client.responses.cancel(made.id) == done


def test_a_background_response_is_cancelled(client: openai.OpenAI) -> None:
    made = client.responses.create(model="demo", input="Count", background=True)
    assert client.responses.cancel(made.id).status == "cancelled"
    assert ended(client, made.id).status == "cancelled"
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(client.responses.create(model="demo", input="17 degrees").id)


def test_a_background_stream_is_taken_up_again(client: openai.OpenAI) -> None:
    seen: list[Any] = []
    with client.responses.create(
        model="demo", input="Count", background=True, stream=True, max_output_tokens=40
    ) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
    name, last = seen[0].response.id, seen[-1].sequence_number
    rest = list(client.responses.retrieve(name, stream=True, starting_after=last))
    assert rest[-1].type == "response.incomplete"
    numbers = [event.sequence_number for event in [*seen, *rest]]
    assert numbers == list(range(len(numbers)))
    deltas = [e.delta for e in [*seen, *rest] if e.type == "response.output_text.delta"]
    assert "".join(deltas) == ended(client, name).output_text


def test_unsupported_tools_are_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as info:
        client.responses.create(model="demo", input="x", tools=[{"type": "web_search"}])
    assert info.value.param == "tools[0].type"
    assert "web_search" in json.dumps(info.value.body)
