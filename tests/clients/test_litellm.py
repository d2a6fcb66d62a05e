"""The litellm package: as a client of both APIs, and as a bridge from one to the other."""

from __future__ import annotations

import json
import os
from typing import Any, Final

import pytest

from tests.stack import Stack

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network when imported

import litellm

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore"),  # it warns of its own objects and modules
]

SCHEMA: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
FUNCTION: Final = {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA}


@pytest.fixture
def target(served: Stack) -> dict[str, Any]:
    return {"api_base": f"{served.base_url}/v1", "api_key": "none", "max_retries": 0}


@pytest.mark.parametrize("model", ["openai/demo", "openai/responses/demo"])
def test_chat(target: dict[str, Any], model: str) -> None:
    """The second is its bridge: chat in front, Responses behind."""
    tools = [{"type": "function", "function": FUNCTION}]
    messages = [{"role": "user", "content": "Compare two cities"}]
    request = {**target, "model": model, "messages": messages, "tools": tools}
    whole: Any = litellm.completion(**request)
    cities = [json.loads(c.function.arguments)["city"] for c in whole.choices[0].message.tool_calls]
    assert cities == ["Zürich", "Bern"]
    assert whole.usage.total_tokens > 0
    stream: Any = litellm.completion(**request, stream=True)
    chunks = list(stream)
    built: Any = litellm.stream_chunk_builder(chunks, messages=messages)
    calls = built.choices[0].message.tool_calls
    assert [json.loads(call.function.arguments)["city"] for call in calls] == cities
    assert built.choices[0].finish_reason == "tool_calls"


def test_responses(target: dict[str, Any]) -> None:
    request = {**target, "model": "openai/demo", "tools": [{"type": "function", **FUNCTION}]}
    whole: Any = litellm.responses(**request, input="How is the weather?")
    (call,) = whole.output
    assert json.loads(call.arguments) == {"city": "Zürich"}
    stream: Any = litellm.responses(**request, input="x", stream=True)
    told = [str(event.type.value) for event in stream]
    assert told[0] == "response.created"
    assert told[-1] == "response.completed"
