"""Fields of Chat Completions from HTTP to engine and back: what each changes in the answer."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest

from tests.e2e.sse import chunks
from tests.e2e.tools import closed, tool

LOOK = tool("look", closed(at={"type": "string"}))
WAIT = tool("wait", closed(seconds={"type": "integer"}))
CITY = closed(city={"type": "string", "maxLength": 12})
FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}


def request(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "demo", "messages": [{"role": "user", "content": text}], **fields}


def ask(client: httpx.Client, text: str, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/chat/completions", json=request(text, **fields))
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_logprobs_of_a_stream_are_those_of_the_whole(playing: httpx.Client) -> None:
    """Reasoning, text and calls: every token once, in order, as the whole answer has them."""
    fields = {"tools": [LOOK], "logprobs": True, "top_logprobs": 3, "n": 2, "seed": 5}
    whole = ask(playing, "Think, then call", **fields)
    streamed: dict[int, list[Any]] = {0: [], 1: []}
    body = request("Think, then call", **fields, stream=True)
    for chunk in chunks(playing, body):
        for choice in chunk["choices"]:
            streamed[choice["index"]] += (choice["logprobs"] or {}).get("content") or []
    for choice in whole["choices"]:
        content = choice["logprobs"]["content"]
        assert content == streamed[choice["index"]]
        assert "".join(entry["token"] for entry in content).startswith("<think>Where?</think>")
        assert all(len(entry["top_logprobs"]) <= 3 for entry in content)
        assert all(bytes(entry["bytes"]).decode(errors="replace") for entry in content)
        assert choice["message"]["reasoning_content"] == "Where?"
        assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"at": "é"}'


def test_usage_tells_reasoning_tokens(playing: httpx.Client) -> None:
    usage = ask(playing, "Think, then call", tools=[LOOK])["usage"]
    details = usage["completion_tokens_details"]
    assert 0 < details["reasoning_tokens"] < usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_the_beginning_of_an_answer_is_gone_on_from(playing: httpx.Client) -> None:
    messages = [
        {"role": "user", "content": "Count."},
        {"role": "assistant", "content": "So far: one, two,"},
    ]
    answer = playing.post(
        "/v1/chat/completions",
        json={
            "model": "demo",
            "messages": messages,
            "continue_final_message": True,
            "add_generation_prompt": False,
        },
    )
    assert answer.json()["choices"][0]["message"]["content"] == " three, four."


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_allowed_tools_are_called(obedient: httpx.Client, mode: str) -> None:
    allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "wait"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    names: list[str] = []
    for seed in range(4):
        body = ask(obedient, "Go.", tools=[LOOK, WAIT], tool_choice=choice, seed=seed)
        calls = body["choices"][0]["message"].get("tool_calls", [])
        names += [call["function"]["name"] for call in calls]
    assert set(names) <= {"wait"}
    assert names or mode == "auto"


def test_a_response_format_beside_tools(obedient: httpx.Client) -> None:
    """`auto`: the answer is held; a forced choice takes its place."""
    body = ask(obedient, "Go.", tools=[LOOK], response_format=FORMAT, seed=1)
    jsonschema.validate(json.loads(body["choices"][0]["message"]["content"]), CITY)
    forced = ask(
        obedient, "Go.", tools=[LOOK], response_format=FORMAT, tool_choice="required", seed=1
    )
    assert forced["choices"][0]["message"]["tool_calls"]


@pytest.mark.parametrize(
    "fields",
    [
        {"structured_outputs": {"json": CITY}},
        {"structured_outputs": {"regex": "[0-9]{3}"}},
        {"structured_outputs": {"choice": ["123"]}},
        {"guided_regex": "[0-9]{3}"},
        {"response_format": {"type": "json_object"}},
    ],
    ids=str,
)
def test_answers_are_held(obedient: httpx.Client, fields: dict[str, Any]) -> None:
    body = ask(obedient, "Go.", **fields, seed=2)
    json.loads(body["choices"][0]["message"]["content"])


def test_a_seed_repeats_an_answer_and_choices_differ(obedient: httpx.Client) -> None:
    fields: dict[str, Any] = {"tools": [LOOK], "tool_choice": "required", "n": 3, "seed": 11}
    first, second = (
        [choice["message"]["tool_calls"] for choice in ask(obedient, "Go.", **fields)["choices"]]
        for _ in range(2)
    )

    def said(calls: list[list[Any]]) -> list[str]:
        return [json.dumps([call["function"] for call in choice]) for choice in calls]

    assert said(first) == said(second)
    assert len(set(said(first))) > 1


def test_what_has_no_effect_on_the_answer_is_accepted(playing: httpx.Client) -> None:
    body = ask(
        playing,
        "Say hello",
        user="u",
        metadata={"k": "v"},
        service_tier="auto",
        store=False,
        safety_identifier="s",
        prompt_cache_key="p",
        prompt_cache_retention="24h",
        verbosity="medium",
        modalities=["text"],
        skip_special_tokens=True,
        echo=False,
    )
    assert body["choices"][0]["message"]["content"] == "Hello there!"


def test_stored_completions_are_refused(playing: httpx.Client) -> None:
    answer = playing.post("/v1/chat/completions", json=request("Say hello", store=True))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "store"
