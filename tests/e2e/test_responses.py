"""Responses from HTTP to engine and back: items, their order, and how a response ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import openai
import pydantic
import pytest

from tests import pipeline
from tests.e2e.responses import PATH, create, events, follow, stream
from tests.e2e.script import hermes
from tests.e2e.test_chat import MARKERS, is_valid
from tests.e2e.tools import all_tools, closed
from toolrail.openai.responses.sealed import unseal

PATCH: Final = "*** Begin Patch\n+ ü\u2028\n*** End Patch\n"
LOOK: Final[dict[str, Any]] = {
    "type": "function",
    "name": "look",
    "parameters": closed(at={"type": "string"}),
}
CLOCK: Final[dict[str, Any]] = {
    "type": "namespace",
    "name": "clock",
    "description": "Time.",
    "tools": [{"type": "function", "name": "now", "parameters": closed()}],
}
APPLY: Final[dict[str, Any]] = {"type": "custom", "name": "apply_patch"}

LONG_CALL: Final = hermes("look", {"at": "a very long way " * 20})
SCRIPT: Final[list[dict[str, Any]]] = [
    {"match": "17 degrees", "text": "It is 17 degrees."},
    {
        "match": "Do it all",
        "text": "<think>First\nthis.</think>I look."
        + hermes("look", {"at": "Zürich 🚀"})
        + hermes("clock__now", {})
        + hermes("apply_patch", {"input": PATCH}),
        "chunk_tokens": 3,
    },
    {"match": "Think, then say", "text": "<think>I think.</think>I look.", "chunk_tokens": 4},
    {"match": "Think only", "text": "<think>Hmm.</think>", "chunk_tokens": 1},
    {"match": "Say nothing", "text": ""},
    {"match": "Call at length", "text": LONG_CALL, "chunk_tokens": 1},
    {"match": "Break off", "text": '<tool_call>\n{"name": "look", "arguments": {"at": '},
    {"match": "Break down midway", "text": "So far, so good", "finish": "error"},
    {"match": "As JSON", "text": '{"city": "Bern"}'},
]


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    file: Path = tmp_path_factory.mktemp("responses") / "script.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    flags = ("--script", str(file), "--reasoning-parser", "qwen3")
    with pipeline.running(*flags) as running, running.client() as client:
        yield client


def ask(text: Any, **more: Any) -> dict[str, Any]:
    return {"model": "demo", "input": text, **more}


def offered() -> list[dict[str, Any]]:
    """The tools of the chat tests, as Responses write them."""
    return [{"type": "function", **tool["function"]} for tool in all_tools()]


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


# Against the walking engine, in this process and as processes.


def test_a_required_call_keeps_to_its_schema(served: httpx.Client) -> None:
    request = ask("Do it.", tools=offered(), tool_choice="required", max_output_tokens=600)
    response = stream(served, request)
    assert response["status"] == "completed"
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    assert calls
    for call in calls:
        is_valid(call["name"], call["arguments"])
    texts = [i["content"][0]["text"] for i in response["output"] if i["type"] == "message"]
    assert not any(marker in text for text in texts for marker in MARKERS)


def test_a_stream_ends_with_what_create_returns(served: httpx.Client) -> None:
    request = ask("Do it.", tools=offered(), tool_choice="required", max_output_tokens=600, seed=3)
    one, two = stream(served, request), create(served, request)
    for response in (one, two):
        for name in ("id", "created_at", "completed_at"):
            del response[name]
        for item in response["output"]:
            del item["id"]
            item.pop("call_id", None)
    assert one == two


def test_tools_are_not_called_where_they_may_not_be(served: httpx.Client) -> None:
    request = ask("Do it.", tools=offered(), tool_choice="none", max_output_tokens=60)
    assert kinds(stream(served, request)) == ["message"]


# Against what an engine says.


def test_items_come_in_the_order_the_model_wrote_them(thinking: httpx.Client) -> None:
    request = ask("Do it all", tools=[LOOK, CLOCK, APPLY], instructions="Be good.")
    for response in (stream(thinking, request), create(thinking, request)):
        reasoning, message, look, now, patch = response["output"]
        assert reasoning["content"] == [{"type": "reasoning_text", "text": "First\nthis."}]
        assert message["content"][0]["text"] == "I look."
        assert json.loads(look["arguments"]) == {"at": "Zürich 🚀"}
        assert (now["namespace"], now["name"], now["arguments"]) == ("clock", "now", "{}")
        assert (patch["type"], patch["name"], patch["input"]) == (
            "custom_tool_call", "apply_patch", PATCH,
        )  # fmt: skip
        assert len({look["call_id"], now["call_id"], patch["call_id"]}) == 3
        assert response["instructions"] == "Be good."
        assert response["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
        assert response["status"] == "completed"


def test_results_go_back_with_all_items(thinking: httpx.Client) -> None:
    tools = [LOOK, CLOCK, APPLY]
    first = create(thinking, ask("Do it all", tools=tools, store=False))
    results = [
        {
            "type": item["type"] + "_output",
            "call_id": item["call_id"],
            "output": "17 degrees",
        }
        for item in first["output"]
        if "call_id" in item
    ]
    history = [{"role": "user", "content": "Do it all"}, *first["output"], *results]
    second = stream(thinking, ask(history, tools=tools))
    assert second["output"][-1]["content"][0]["text"] == "It is 17 degrees."


def test_long_arguments_come_bit_by_bit(thinking: httpx.Client) -> None:
    told = list(events(thinking, ask("Call at length", tools=[LOOK])))
    deltas = [e for e in told if e["type"] == "response.function_call_arguments.delta"]
    assert len(deltas) > 20
    follow(told)


@pytest.mark.parametrize(("text", "limit"), [("Call at length", 20), ("Do it all", 8)])
def test_a_limit_leaves_the_response_incomplete(
    thinking: httpx.Client, text: str, limit: int
) -> None:
    request = ask(text, tools=[LOOK, CLOCK, APPLY], max_output_tokens=limit)
    for response in (stream(thinking, request), create(thinking, request)):
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert response["output"][-1]["status"] == "incomplete"
        assert response["usage"]["output_tokens"] == limit


def test_a_broken_call_leaves_the_response_incomplete(thinking: httpx.Client) -> None:
    told = list(events(thinking, ask("Break off", tools=[LOOK])))
    response = follow(told)
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {})
    assert response["output"][-1]["status"] == "incomplete"


def test_reasoning_alone_and_nothing_at_all(thinking: httpx.Client) -> None:
    wanted = {"include": ["reasoning.encrypted_content"]}
    response = stream(thinking, ask("Think only", **wanted))
    (item,) = response["output"]
    assert unseal(item["encrypted_content"]) == item["content"][0]["text"] == "Hmm."
    (message,) = stream(thinking, ask("Say nothing"))["output"]
    assert message["content"][0]["text"] == ""


def test_logprobs_are_those_of_the_message(thinking: httpx.Client) -> None:
    request = ask("Think, then say", top_logprobs=2, include=["message.output_text.logprobs"])
    for response in (stream(thinking, request), create(thinking, request)):
        (part,) = response["output"][1]["content"]
        assert "".join(entry["token"] for entry in part["logprobs"]) == "I look."
        assert all(len(entry["top_logprobs"]) <= 2 for entry in part["logprobs"])


def test_an_engine_that_fails_midway_fails_the_response(thinking: httpx.Client) -> None:
    response = follow(list(events(thinking, ask("Break down midway"))))
    assert response["status"] == "failed"
    assert response["error"]["code"] == "server_error"
    assert thinking.post(PATH, json=ask("Break down midway")).status_code == 500


def test_the_openai_helpers_follow(thinking: httpx.Client) -> None:
    class City(pydantic.BaseModel):
        city: str

    client = openai.OpenAI(base_url=f"{thinking.base_url}/v1", api_key="none", max_retries=0)
    tools: Any = [LOOK, CLOCK, APPLY]
    with client, client.responses.stream(**ask("Do it all", tools=tools)) as told:
        seen = [event.type for event in told]
        final = told.get_final_response()
        parsed = client.responses.parse(model="demo", input="As JSON", text_format=City)
    assert seen[0] == "response.created"
    assert seen[-1] == "response.completed"
    assert [item.type for item in final.output] == [
        "reasoning", "message", "function_call", "function_call", "custom_tool_call",
    ]  # fmt: skip
    assert parsed.output_parsed == City(city="Bern")
