"""The product's promises with a real engine: every grammar here is held by vLLM and xgrammar."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import pytest

from tests import stack as stacks
from tests.e2e import responses
from tests.e2e.sse import Turn, stream
from tests.e2e.test_chat import MARKERS, is_valid
from tests.e2e.tools import SMALL, all_tools, ask, closed, tool
from tests.processes import command_line, descendants, until_dead

pytestmark = pytest.mark.engine

THINK, END_THINK, CALL, END_CALL = 3, 4, 5, 6
"""Ids of the markers in the model `demo-think`."""

LEVEL = closed(level=SMALL, on={"type": "boolean"})
NO_STRINGS = tool("set", LEVEL)
AT_ONCE = 8


@pytest.fixture(scope="module")
def client(engine: stacks.Stack) -> Iterator[httpx.Client]:
    with engine.client() as client:
        client.timeout = httpx.Timeout(300)
        yield client


def request(text: str, **more: Any) -> dict[str, Any]:
    return {"temperature": 0.7, "seed": 1, **ask(text, **more), "model": "demo-think"}


def test_twenty_required_calls_with_mixed_schemas_are_valid(client: httpx.Client) -> None:
    def one(offered: dict[str, Any]) -> tuple[str, Turn]:
        name = offered["function"]["name"]
        asked = request(
            f"Use the tool {name}.", tools=[offered], tool_choice="required", max_tokens=400
        )
        return name, stream(client, asked)

    tools = all_tools()
    assert len(tools) == 20
    with ThreadPoolExecutor(AT_ONCE) as clients:
        for name, turn in clients.map(one, tools):
            assert turn.finish_reason == "tool_calls", (name, turn)
            for call in turn.calls:
                assert call.name == name
                is_valid(name, call.text)
            assert not any(marker in turn.content for marker in MARKERS)


def test_the_grammar_of_a_custom_tool_is_held(client: httpx.Client) -> None:
    lark = 'start: order ("\\n" order)~1..2\norder: ("open" | "close") " \\"" /[a-z]{3,8}/ "\\""'
    grammar = {"syntax": "lark", "definition": lark}
    offered = {"name": "orders", "format": {"type": "grammar", "grammar": grammar}}
    asked = request(
        "Open the door, then close the window.",
        tools=[{"type": "custom", "custom": offered}],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=200,
    )
    answer = client.post("/v1/chat/completions", json=asked)
    assert answer.status_code == 200, answer.text
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    order = '(open|close) "[a-z]{3,8}"'
    assert re.fullmatch(f"{order}(\n{order}){{1,2}}", call["custom"]["input"])


@pytest.mark.parametrize("marker", [THINK, END_THINK, CALL, END_CALL])
def test_none_shows_no_marker_however_hard_it_is_pushed(client: httpx.Client, marker: int) -> None:
    turn = stream(
        client,
        request(
            "What is the capital of France?",
            tools=all_tools()[:3],
            tool_choice="none",
            logit_bias={str(marker): 100},
            max_tokens=24,
        ),
    )
    assert turn.calls == []
    assert not any(part in turn.content + turn.reasoning for part in MARKERS)
    if marker == CALL:
        assert turn.content, "what it may not write leaves room for an answer"


def test_auto_answers_in_text(client: httpx.Client) -> None:
    turn = stream(
        client, request("What is the capital of France?", tools=[NO_STRINGS], max_tokens=24)
    )
    assert turn.calls == []
    assert "Paris" in turn.content


def test_auto_holds_a_call_once_one_has_begun(client: httpx.Client) -> None:
    turn = stream(
        client,
        request(
            "Set the level.",
            tools=[NO_STRINGS],
            parallel_tool_calls=False,
            logit_bias={str(CALL): 100},
            max_tokens=120,
        ),
    )
    (call,) = turn.calls
    assert call.name == "set"
    jsonschema.validate(json.loads(call.text), LEVEL)
    assert turn.finish_reason == "tool_calls"


def test_reasoning_comes_apart_from_the_call_after_it(client: httpx.Client) -> None:
    """It has never seen the markers: bias makes it end its reasoning at some time, then call."""
    asked = request(
        "Set the level.",
        tools=[NO_STRINGS],
        tool_choice="required",
        parallel_tool_calls=False,
        chat_template_kwargs={"enable_thinking": True},
        logit_bias={str(END_THINK): 6.5, str(CALL): 100},
        temperature=1,
        max_tokens=150,
        n=12,
    )
    answer = client.post("/v1/chat/completions", json=asked).json()
    reasoned_and_called = 0
    for choice in answer["choices"]:
        message = choice["message"]
        reasoning, calls = message.get("reasoning_content"), message.get("tool_calls", [])
        assert not message["content"]
        assert not any(part in (reasoning or "") for part in MARKERS)
        assert choice["finish_reason"] == ("tool_calls" if calls else "length")
        for call in calls:
            jsonschema.validate(json.loads(call["function"]["arguments"]), LEVEL)
        reasoned_and_called += bool(reasoning and calls)
    assert reasoned_and_called
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


def test_reasoning_is_streamed_as_reasoning(client: httpx.Client) -> None:
    asked = request(
        "Set the level.",
        tools=[NO_STRINGS],
        tool_choice="required",
        chat_template_kwargs={"enable_thinking": True},
        max_tokens=24,
    )
    turn = stream(client, asked)
    assert turn.reasoning
    assert (turn.content, turn.finish_reason) == ("", "length")


def test_responses_hold_the_same_promises(client: httpx.Client) -> None:
    asked: dict[str, Any] = {"model": "demo-think", "seed": 1}
    asked["tools"] = [{"type": "function", **NO_STRINGS["function"]}]
    forced = {"tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 120}
    first = responses.stream(client, {**asked, "input": "Set the level.", **forced})
    assert first["status"] == "completed"
    (call,) = [item for item in first["output"] if item["type"] == "function_call"]
    jsonschema.validate(json.loads(call["arguments"]), LEVEL)
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "done"}
    more = {"previous_response_id": first["id"], "tool_choice": "none", "max_output_tokens": 8}
    second = responses.create(client, {**asked, "input": [result], **more})
    assert second["previous_response_id"] == first["id"]
    assert 0 < second["usage"]["output_tokens"] <= 8


def test_a_prompt_longer_than_the_context_is_refused(client: httpx.Client) -> None:
    response = client.post("/v1/chat/completions", json=request("word " * 10_000))
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_what_only_the_engine_refuses_names_its_field(client: httpx.Client) -> None:
    """Words are counted as the tokenizer has them: most twice, with a space before them, too."""
    words = [f"{first}{second}" for first in "abcdefghij" for second in "klmnopqrst"]
    response = client.post("/v1/chat/completions", json=request("Hi", bad_words=words))
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == ("bad_words", "invalid_value")
    assert "parameter=" not in error["message"]


def test_clients_that_leave_free_the_engine(client: httpx.Client) -> None:
    """More than there are slots leave; what comes then is answered."""
    long = request("Tell a long story.", max_tokens=1500, ignore_eos=True, stream=True)
    for _ in range(12):
        with client.stream("POST", "/v1/chat/completions", json=long) as response:
            next(response.iter_lines())
    turn = stream(client, request("What is the capital of France?", max_tokens=12))
    assert turn.content


def test_a_dead_engine_process_is_replaced(engine: stacks.Stack, client: httpx.Client) -> None:
    (worker,) = engine.pids("worker")
    (core,) = [pid for pid in descendants(worker) if "EngineCore" in command_line(pid)]
    os.kill(core, signal.SIGKILL)
    until_dead(worker, timeout_s=60)
    deadline = time.monotonic() + stacks.ENGINE_START_S
    while not client.get("/v1/models").json()["data"]:
        assert time.monotonic() < deadline, engine.tail()
        time.sleep(1)
    assert engine.pids("worker") != [worker]
    assert stream(client, request("What is the capital of France?", max_tokens=12)).content


def test_ctrl_c_ends_the_engine_too(engine_to_end: stacks.Stack) -> None:
    (worker,) = engine_to_end.pids("worker")
    assert any("EngineCore" in command_line(pid) for pid in descendants(worker))
    assert engine_to_end.end() == 0
