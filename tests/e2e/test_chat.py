"""Chat Completions from HTTP to engine and back: what each `tool_choice` promises."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import openai
import pytest

from tests.e2e.script import LONG_TEXT
from tests.e2e.sse import Turn, chunks, stream
from tests.e2e.tools import SCHEMAS, all_tools, ask, closed, tool

MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<|im_")
AT = tool("look", closed(at={"type": "string"}))
WRITE = tool("write", closed(text={"type": "string"}))


def is_valid(name: str, arguments: str) -> None:
    schema = SCHEMAS[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(
        json.loads(arguments), schema, format_checker=jsonschema.FormatChecker(["date"])
    )


def test_required_yields_a_valid_call_for_every_kind_of_schema(served: httpx.Client) -> None:
    def one(number_and_tool: tuple[int, dict[str, Any]]) -> tuple[dict[str, Any], Turn]:
        number, offered = number_and_tool
        request = ask(tools=[offered], tool_choice="required", max_tokens=600, seed=number)
        return offered, stream(served, request)

    tools = all_tools()
    assert len(tools) == 20
    with ThreadPoolExecutor(5) as clients:
        for offered, turn in clients.map(one, enumerate(tools)):
            assert turn.finish_reason == "tool_calls", offered
            assert turn.calls
            for call in turn.calls:
                assert call.name == offered["function"]["name"]
                is_valid(call.name, call.text)
            assert not any(marker in turn.content for marker in MARKERS)


def test_required_chooses_among_all_offered_tools(served: httpx.Client) -> None:
    names = set()
    for seed in range(6):
        request = ask(tools=all_tools(), tool_choice="required", max_tokens=600, seed=seed)
        for call in stream(served, request).calls:
            is_valid(call.name, call.text)
            names.add(call.name)
    assert len(names) > 1


def test_a_named_choice_calls_that_tool_once(served: httpx.Client) -> None:
    named = {"type": "function", "function": {"name": "unicode_names"}}
    turn = stream(served, ask(tools=all_tools(), tool_choice=named, max_tokens=600))
    (call,) = turn.calls
    assert call.name == "unicode_names"
    is_valid(call.name, call.text)


def test_one_call_where_parallel_ones_are_off(served: httpx.Client) -> None:
    for seed in range(4):
        turn = stream(
            served,
            ask(
                tools=all_tools(),
                tool_choice="required",
                parallel_tool_calls=False,
                max_tokens=600,
                seed=seed,
            ),
        )
        assert len(turn.calls) == 1


def test_none_never_calls(served: httpx.Client) -> None:
    turn = stream(served, ask(tools=all_tools(), tool_choice="none", max_tokens=60))
    assert turn.calls == []
    assert turn.content
    assert turn.finish_reason in ("stop", "length")
    assert not any(marker in turn.content for marker in MARKERS)


def test_the_whole_answer_equals_the_streamed_one(served: httpx.Client) -> None:
    request = ask(tools=all_tools(), tool_choice="required", max_tokens=600, seed=11)
    turn = stream(served, request)
    answer = served.post("/v1/chat/completions", json=request).json()
    message = answer["choices"][0]["message"]
    assert [(c["function"]["name"], c["function"]["arguments"]) for c in message["tool_calls"]] == [
        (call.name, call.text) for call in turn.calls
    ]
    assert message["content"] == (turn.content or None)
    assert answer["choices"][0]["finish_reason"] == turn.finish_reason
    ids = [c["id"] for c in message["tool_calls"]]
    assert not set(ids) & {call.id for call in turn.calls}, "ids are unique across turns"


def test_usage_comes_once_before_the_end_when_asked_for(served: httpx.Client) -> None:
    request = ask(max_tokens=20, stream=True, stream_options={"include_usage": True})
    *before, last = chunks(served, request)
    assert all(chunk["usage"] is None for chunk in before)
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] > 0
    assert 0 < last["usage"]["completion_tokens"] <= 20
    answer = served.post("/v1/chat/completions", json=ask(max_tokens=20)).json()
    assert answer["usage"] == last["usage"]


def test_n_choices_are_told_apart(served: httpx.Client) -> None:
    request = ask(tools=all_tools(), tool_choice="required", max_tokens=600, n=3, seed=5)
    answer = served.post("/v1/chat/completions", json=request).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    for choice in answer["choices"]:
        for call in choice["message"]["tool_calls"]:
            is_valid(call["function"]["name"], call["function"]["arguments"])


def test_auto_gives_text_where_the_model_writes_text(playing: httpx.Client) -> None:
    turn = stream(playing, ask("Say hello", tools=[AT]))
    assert (turn.content, turn.calls, turn.finish_reason) == ("Hello there!", [], "stop")


def test_auto_gives_text_and_calls_in_the_models_order(playing: httpx.Client) -> None:
    turn = stream(playing, ask("Explain, then call", tools=[AT]))
    (call,) = turn.calls
    assert turn.content.strip() == "First I look."
    assert (call.name, call.text) == ("look", '{"at": "the Zürich 🚀"}')
    assert turn.finish_reason == "tool_calls"


def test_auto_gives_several_calls(playing: httpx.Client) -> None:
    turn = stream(playing, ask("Call twice", tools=[AT]))
    assert [call.text for call in turn.calls] == ['{"at": "a"}', '{"at": "b"}']
    assert len({call.id for call in turn.calls}) == 2


def test_a_stop_string_ends_the_text_before_it(playing: httpx.Client) -> None:
    turn = stream(playing, ask("Say hello", stop=["there"]))
    assert (turn.content, turn.finish_reason) == ("Hello ", "stop")


def test_the_openai_helper_streams_a_long_argument_bit_by_bit(playing: httpx.Client) -> None:
    client = openai.OpenAI(base_url=f"{playing.base_url}/v1", api_key="none", max_retries=0)
    request = ask("Write at length", tools=[WRITE], tool_choice="auto")
    with client, client.chat.completions.stream(**request) as events:
        pieces = [
            event.arguments_delta
            for event in events
            if event.type == "tool_calls.function.arguments.delta"
        ]
        final = events.get_final_completion()
    assert len(pieces) > 20
    assert json.loads("".join(pieces)) == {"text": LONG_TEXT}
    (call,) = final.choices[0].message.tool_calls or ()
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "write",
        {"text": LONG_TEXT},
    )
    assert final.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("streamed", [False, True])
def test_an_engine_that_fails_before_its_first_token_is_a_5xx(
    playing: httpx.Client, *, streamed: bool
) -> None:
    request = ask("Break down at once", stream=streamed)
    response = playing.post("/v1/chat/completions", json=request)
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"


def test_an_engine_that_fails_midway_ends_the_stream_with_an_error(playing: httpx.Client) -> None:
    *before, last = chunks(playing, ask("Break down midway", stream=True))
    text = "".join(c["delta"].get("content") or "" for chunk in before for c in chunk["choices"])
    assert text == "So far, so good"
    assert not any(choice["finish_reason"] for chunk in before for choice in chunk["choices"])
    assert last["error"]["type"] == "server_error"
    whole = playing.post("/v1/chat/completions", json=ask("Break down midway"))
    assert whole.status_code == 500
