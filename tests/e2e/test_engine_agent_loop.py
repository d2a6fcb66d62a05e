"""Twenty tool turns with a real engine through each API, each with all that was said before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import jsonschema
import openai
import pytest

from tests import stack as stacks

pytestmark = pytest.mark.engine

TURNS = 20
MODEL = "demo-think"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"level": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["level"],
    "additionalProperties": False,
}
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.fixture(scope="module")
def client(engine: stacks.Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{engine.base_url}/v1", api_key="none", max_retries=0, timeout=300
    ) as made:
        yield made


def test_chat_completions(client: openai.OpenAI) -> None:
    tool = {"name": "set_level", "strict": True, "parameters": SCHEMA}
    messages: list[Any] = [{"role": "user", "content": "Set the level, again and again."}]
    ids = set()
    cached = 0
    for number in range(TURNS):
        answer = client.chat.completions.create(
            model=MODEL,
            messages=messages,
            tools=[{"type": "function", "function": tool}],  # type: ignore[list-item]
            tool_choice="required",
            parallel_tool_calls=False,
            max_completion_tokens=200,
            temperature=0,
            extra_body=NO_THINKING,
        )
        (choice,) = answer.choices
        assert choice.finish_reason == "tool_calls"
        (call,) = choice.message.tool_calls or ()
        assert call.type == "function"
        jsonschema.validate(json.loads(call.function.arguments), SCHEMA)
        ids.add(call.id)
        assert answer.usage
        assert answer.usage.prompt_tokens_details
        cached = answer.usage.prompt_tokens_details.cached_tokens or 0
        messages.append(choice.message.model_dump(exclude_none=True))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"done {number}"})
    assert len(ids) == TURNS
    assert cached > 0  # the last turn found the turns before in the prefix cache


def test_responses(client: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "name": "set_level", "strict": True, "parameters": SCHEMA}
    given: list[Any] = [{"role": "user", "content": "Set the level, again and again."}]
    for number in range(TURNS):
        with client.responses.stream(
            model=MODEL,
            input=given,
            tools=[tool],
            tool_choice="required",
            parallel_tool_calls=False,
            max_output_tokens=200,
            temperature=0,
            store=False,
            reasoning={"effort": "none"},
        ) as stream:
            response = stream.get_final_response()
        assert response.status == "completed"
        (call,) = [item for item in response.output if item.type == "function_call"]
        jsonschema.validate(json.loads(call.arguments), SCHEMA)
        given += [
            item.model_dump(exclude_none=True, exclude={"parsed_arguments"})
            for item in response.output
        ]
        given.append(
            {"type": "function_call_output", "call_id": call.call_id, "output": f"done {number}"}
        )


def test_messages(engine: stacks.Stack) -> None:
    tool: Any = {"name": "set_level", "strict": True, "input_schema": SCHEMA}
    messages: list[Any] = [{"role": "user", "content": "Set the level, again and again."}]
    with anthropic.Anthropic(
        base_url=engine.base_url, api_key="none", max_retries=0, timeout=300
    ) as client:
        for number in range(TURNS):
            message = client.messages.create(
                model=MODEL,
                max_tokens=200,
                messages=messages,
                tools=[tool],
                tool_choice={"type": "any", "disable_parallel_tool_use": True},
                thinking={"type": "disabled"},
            )
            assert message.stop_reason == "tool_use"
            (use,) = [block for block in message.content if block.type == "tool_use"]
            jsonschema.validate(use.input, SCHEMA)
            messages.append({"role": "assistant", "content": message.model_dump()["content"]})
            result = {"type": "tool_result", "tool_use_id": use.id, "content": f"done {number}"}
            messages.append({"role": "user", "content": [result]})
