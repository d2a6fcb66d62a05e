"""Twenty tool turns through Messages, each with all that was said before, for several families."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.e2e.agent import FAMILIES, LAST, TURNS, WEATHER, Turn, result, serving, turn
from toolrail.tools import INPUT, INPUT_SCHEMA

pytestmark = pytest.mark.clients

# A tool of raw input is a function with one string here: this API has no others.
TOOLS: list[Any] = [
    {"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]},
    {"name": "run_python", "input_schema": dict(INPUT_SCHEMA)},
]


@pytest.fixture(params=FAMILIES)
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[anthropic.Anthropic]:
    with (
        serving(request.param, tmp_path_factory.mktemp("agent")) as running,
        anthropic.Anthropic(
            base_url=running.base_url, api_key="none", max_retries=0, timeout=60
        ) as made,
    ):
        yield made


def answered(
    client: anthropic.Anthropic, messages: list[Any], number: int
) -> anthropic.types.Message:
    """The next message, streamed in every other turn."""
    request: Any = {"model": "demo", "max_tokens": 2000, "messages": messages, "tools": TOOLS}
    if number % 2:
        with client.messages.stream(**request) as stream:
            return stream.get_final_message()
    return client.messages.create(**request)


def said(message: anthropic.types.Message) -> tuple[str | None, str | None, list[tuple[str, Any]]]:
    """Thinking, text and calls, which must come in that order."""
    kinds = [block.type for block in message.content]
    assert kinds == sorted(kinds, key=["thinking", "text", "tool_use"].index)
    thought = [block.thinking for block in message.content if block.type == "thinking"]
    text = [block.text for block in message.content if block.type == "text"]
    calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
    return (thought or [None])[0], (text or [None])[0], calls


def expected(wanted: Turn) -> tuple[str | None, str | None, list[tuple[str, Any]]]:
    calls = [
        (name, {INPUT: text} if name == "run_python" else json.loads(text))
        for name, text in wanted.calls
    ]
    return wanted.reasoning, wanted.text, calls


def test_twenty_tool_turns_with_all_that_was_said_before(client: anthropic.Anthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "Begin."}]
    ids: set[str] = set()
    for number in range(TURNS):
        message = answered(client, messages, number)
        assert message.stop_reason == "tool_use"
        assert said(message) == expected(turn(number))
        uses = [block for block in message.content if block.type == "tool_use"]
        ids.update(use.id for use in uses)
        results = [
            {"type": "tool_result", "tool_use_id": use.id, "content": result(number, position)}
            for position, use in enumerate(uses)
        ]
        messages += [
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": results},
        ]
    assert len(ids) == sum(len(turn(number).calls) for number in range(TURNS))
    message = answered(client, messages, TURNS)
    assert (said(message)[1], message.stop_reason) == (LAST.text, "end_turn")
