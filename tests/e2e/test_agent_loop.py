"""Twenty tool turns through Chat Completions, each with all that was said before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.e2e.agent import FAMILIES, LAST, TOOLS, TURNS, result, said_by, serving, turn


@pytest.fixture(
    scope="module",
    params=[
        FAMILIES[0],
        *(pytest.param(name, marks=pytest.mark.clients) for name in FAMILIES[1:]),
    ],
)
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    with (
        serving(request.param, tmp_path_factory.mktemp("agent")) as running,
        openai.OpenAI(base_url=f"{running.base_url}/v1", api_key="none", max_retries=0) as made,
    ):
        yield made


def whole(client: openai.OpenAI, messages: list[Any]) -> tuple[dict[str, Any], str]:
    answer = client.chat.completions.create(model="demo", messages=messages, tools=TOOLS)  # type: ignore[call-overload]
    (choice,) = answer.choices
    return choice.message.model_dump(exclude_none=True), choice.finish_reason


def streamed(client: openai.OpenAI, messages: list[Any]) -> tuple[dict[str, Any], str]:
    """The same from a stream. By hand: the package's helper knows no custom calls."""
    message: dict[str, Any] = {"role": "assistant"}
    calls: list[dict[str, Any]] = []
    finish = ""
    chunks = client.chat.completions.create(  # type: ignore[call-overload]
        model="demo", messages=messages, tools=TOOLS, stream=True
    )
    for chunk in chunks:
        (choice,) = chunk.choices
        delta = choice.delta.model_dump(exclude_unset=True)
        for field in ("content", "reasoning_content"):
            if delta.get(field):
                message[field] = message.get(field, "") + delta[field]
        for call in delta.get("tool_calls") or ():
            index = call.pop("index")
            if index == len(calls):
                calls.append(call)
                continue
            (kind,) = call
            (part,) = call[kind]
            calls[index][kind][part] += call[kind][part]
        finish = choice.finish_reason or finish
    return {**message, "tool_calls": calls} if calls else message, finish


@pytest.mark.exhaustive
def test_twenty_tool_turns_with_all_that_was_said_before(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "Begin."}]
    ids: set[str] = set()
    for number in range(TURNS):
        expected = turn(number)
        message, finish = (whole, streamed)[number % 2](client, messages)
        assert finish == "tool_calls"
        assert message.get("content") == expected.text
        assert message.get("reasoning_content") == expected.reasoning
        assert tuple(map(said_by, message["tool_calls"])) == expected.calls
        messages.append(message)
        for position, call in enumerate(message["tool_calls"]):
            ids.add(call["id"])
            said = {"role": "tool", "tool_call_id": call["id"], "content": result(number, position)}
            messages.append(said)
    assert len(ids) == sum(len(turn(number).calls) for number in range(TURNS))
    message, finish = whole(client, messages)
    assert (message["content"], finish) == (LAST.text, "stop")
