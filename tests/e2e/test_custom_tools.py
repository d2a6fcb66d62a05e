"""Custom tools from HTTP to engine and back: whole inputs, held grammars, cut and odd wrappers."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.grammars.patch import PATCH, is_patch

PYTHON = {"type": "custom", "custom": {"name": "run_python"}}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def patch_tool(definition: str = PATCH) -> dict[str, Any]:
    grammar = {"syntax": "lark", "definition": definition}
    return {
        "type": "custom",
        "custom": {"name": "apply_patch", "format": {"type": "grammar", "grammar": grammar}},
    }


def ask(client: httpx.Client, text: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    request = {"model": "demo", "messages": [{"role": "user", "content": text}], **fields}
    answer = client.post("/v1/chat/completions", json=request)
    return answer.status_code, answer.json()


def test_the_input_of_a_forced_custom_tool_is_free_text(obedient: httpx.Client) -> None:
    for seed in range(3):
        _, body = ask(obedient, "Go.", tools=[LOOK, PYTHON], tool_choice=PYTHON, seed=seed)
        (choice,) = body["choices"]
        (call,) = choice["message"]["tool_calls"]
        assert call["type"] == "custom"
        assert call["custom"].keys() == {"name", "input"}
        assert not call["custom"]["input"].startswith('{"input"')
        assert choice["finish_reason"] == "tool_calls"


def test_a_patch_tool_s_grammar_is_held(obedient: httpx.Client) -> None:
    for seed in range(3):
        _, body = ask(
            obedient, "Go.", tools=[patch_tool()], tool_choice="required", seed=seed, max_tokens=900
        )
        calls = body["choices"][0]["message"]["tool_calls"]
        assert calls
        assert all(is_patch(call["custom"]["input"]) for call in calls)


def test_a_cut_wrapper_shows_nothing_of_its_input(obedient: httpx.Client) -> None:
    fields: dict[str, Any] = {"tools": [PYTHON], "tool_choice": PYTHON, "max_tokens": 20, "seed": 1}
    _, body = ask(obedient, "Go.", **fields)
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in choice["message"]
    assert body["usage"]["completion_tokens"] == 20
    request = {"model": "demo", "messages": [{"role": "user", "content": "Go."}], **fields}
    with obedient.stream("POST", "/v1/chat/completions", json={**request, "stream": True}) as got:
        lines = [line.removeprefix("data: ") for line in got.iter_lines() if line]
    choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
    assert not any(choice["delta"].get("tool_calls") for choice in choices)
    assert choices[-1]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("definition", "why"),
    [("start: x", "the rule 'x' is not defined"), ("start: /a(?=b)/", "look-ahead")],
)
def test_a_grammar_that_cannot_be_held_is_a_400(
    obedient: httpx.Client, definition: str, why: str
) -> None:
    status, body = ask(obedient, "Go.", tools=[LOOK, patch_tool(definition)])
    assert status == 400
    assert why in body["error"]["message"]
    assert body["error"]["param"] == "tools[1].custom.format"


def test_a_grammar_is_a_400_where_the_deployment_holds_none(playing: httpx.Client) -> None:
    status, body = ask(playing, "Go.", tools=[patch_tool()])
    assert status == 400
    assert body["error"]["param"] == "tools[0].custom.format"
    assert body["error"]["code"] == "unsupported_value"


def test_arguments_that_are_no_wrapper_are_the_input(playing: httpx.Client) -> None:
    _, body = ask(playing, "Wrap it wrongly", tools=[LOOK, PYTHON])
    (choice,) = body["choices"]
    assert choice["message"]["content"] == "Both."
    assert [call["type"] for call in choice["message"]["tool_calls"]] == ["custom", "function"]
    odd, look = choice["message"]["tool_calls"]
    assert odd["custom"] == {"name": "run_python", "input": '{"code": "1"}'}
    assert look["function"] == {"name": "look", "arguments": '{"at": "a"}'}
    assert choice["finish_reason"] == "tool_calls"
