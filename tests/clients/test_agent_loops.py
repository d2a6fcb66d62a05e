"""An agent of twenty tool turns, its whole history sent back each time, in several tool formats.

What the model says is written by the family's own renderer; each turn's text depends on the result
of the one before, so that a result which did not reach the prompt ends the loop at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import openai
import pytest

from tests import pipeline
from toolrail.events import Call, Item, Text
from toolrail.families import family

pytestmark = pytest.mark.clients

TURNS: Final = 20
FAMILIES: Final = ("hermes", "qwen3_coder", "deepseek_v3_1", "kimi_k2", "glm47")
ASKED: Final = "Walk to the end."
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["number", "note"],
    "additionalProperties": False,
}
TOOL: Final = {"name": "step", "description": "Goes on.", "parameters": SCHEMA}


def result(turn: int) -> str:
    return f"Arrived at stone {turn} of the path."


def arguments(turn: int, side: int = 0) -> dict[str, Any]:
    return {"number": turn * 10 + side, "note": f'Zürich "{turn}"\n🚀'}


def calls(turn: int) -> list[dict[str, Any]]:
    """Two at once in every fifth turn."""
    return [arguments(turn, side) for side in range(2 if turn % 5 == 4 else 1)]


def script(name: str) -> Iterator[dict[str, Any]]:
    """The first row found in the prompt wins: the latest turn comes first."""
    render = family(name).render
    yield {"match": result(TURNS - 1), "text": render([Text("I am there.")])}
    for turn in reversed(range(TURNS)):
        said: list[Item] = [Text("On I go.")] if turn % 3 == 2 else []
        said += [Call("step", json.dumps(each, ensure_ascii=False)) for each in calls(turn)]
        match = result(turn - 1) if turn else ASKED
        yield {"match": match, "text": render(said), "chunk_tokens": 5}


@pytest.fixture(scope="module", params=FAMILIES)
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    name: str = request.param
    file: Path = tmp_path_factory.mktemp(name) / "script.jsonl"
    rows = "".join(json.dumps(row) + "\n" for row in script(name))
    file.write_text(rows, encoding="utf-8")
    with (
        pipeline.running("--script", str(file), "--tool-call-parser", name) as running,
        openai.OpenAI(base_url=f"{running.base_url}/v1", api_key="none", max_retries=0) as made,
    ):
        yield made


def test_chat_completions(client: openai.OpenAI) -> None:
    history: list[Any] = [{"role": "user", "content": ASKED}]
    tools: list[Any] = [{"type": "function", "function": TOOL}]
    ids: set[str] = set()
    for turn in range(TURNS):
        with client.chat.completions.stream(model="demo", messages=history, tools=tools) as stream:
            choice = stream.get_final_completion().choices[0]
        assert choice.finish_reason == "tool_calls"
        made = choice.message.tool_calls or []
        assert [json.loads(call.function.arguments) for call in made] == calls(turn)
        assert (choice.message.content or "").strip() == ("On I go." if turn % 3 == 2 else "")
        ids |= {call.id for call in made}
        history.append(choice.message.to_dict())
        history += [
            {"role": "tool", "tool_call_id": call.id, "content": result(turn)} for call in made
        ]
    assert len(ids) == sum(len(calls(turn)) for turn in range(TURNS))
    last = client.chat.completions.create(model="demo", messages=history, tools=tools).choices[0]
    assert (last.message.content, last.finish_reason) == ("I am there.", "stop")


@pytest.mark.parametrize("stored", [False, True])
def test_responses(client: openai.OpenAI, stored: bool) -> None:
    history: list[Any] = [{"role": "user", "content": ASKED}]
    tools: list[Any] = [{"type": "function", **TOOL, "strict": False}]
    more: dict[str, Any] = {"store": stored, "tools": tools, "model": "demo"}
    for turn in range(TURNS):
        with client.responses.stream(input=history, **more) as stream:
            response = stream.get_final_response()
        made = [item for item in response.output if item.type == "function_call"]
        assert [json.loads(call.arguments) for call in made] == calls(turn)
        assert response.output_text.strip() == ("On I go." if turn % 3 == 2 else "")
        results = [
            {"type": "function_call_output", "call_id": call.call_id, "output": result(turn)}
            for call in made
        ]
        if stored:
            more["previous_response_id"] = response.id
            history = results
        else:
            history += [*response.output, *results]
    last = client.responses.create(input=history, **more)
    assert (last.output_text, last.status) == ("I am there.", "completed")
