"""The Responses API through the openai package, as its users use it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pydantic
import pytest

from tests.stack import Stack

pytestmark = pytest.mark.clients


class GetWeather(pydantic.BaseModel):
    city: str


WEATHER: Any = openai.pydantic_function_tool(GetWeather, name="get_weather")["function"]
TOOLS: list[Any] = [{"type": "function", **WEATHER}]


@pytest.fixture
def client(served: Stack) -> Iterator[openai.OpenAI]:
    url = f"{served.base_url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=30) as made:
        yield made


@pytest.fixture
async def async_client(served: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{served.base_url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=30) as made:
        yield made


def test_an_agent_s_loop_of_call_and_result(client: openai.OpenAI) -> None:
    history: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    with client.responses.stream(model="demo", input=history, tools=TOOLS) as stream:
        types = [event.type for event in stream]
        first = stream.get_final_response()
    assert types[0] == "response.created"
    assert types[-1] == "response.completed"
    (made,) = first.output
    assert made.type == "function_call"
    assert json.loads(made.arguments) == {"city": "Zürich"}
    history += first.output
    history.append(
        {"type": "function_call_output", "call_id": made.call_id, "output": "17 degrees"}
    )
    second = client.responses.create(model="demo", input=history, tools=TOOLS)
    assert second.output_text == "It is 17 degrees in Zürich."
    assert second.status == "completed"
    assert second.usage is not None
    assert second.usage.total_tokens == second.usage.input_tokens + second.usage.output_tokens


def test_parallel_calls(client: openai.OpenAI) -> None:
    response = client.responses.create(model="demo", input="Compare two cities", tools=TOOLS)
    calls = [item for item in response.output if item.type == "function_call"]
    assert [json.loads(call.arguments)["city"] for call in calls] == ["Zürich", "Bern"]
    assert len({call.call_id for call in calls}) == 2


def test_deltas_are_those_of_the_final_text(client: openai.OpenAI) -> None:
    with client.responses.stream(model="demo", input="17 degrees") as stream:
        pieces = [e.delta for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(pieces) == final.output_text == "It is 17 degrees in Zürich."


def test_a_limit_is_told(client: openai.OpenAI) -> None:
    response = client.responses.create(model="demo", input="Count", max_output_tokens=5)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    with client.responses.stream(model="demo", input="Count", max_output_tokens=5) as stream:
        assert [event.type for event in stream][-1] == "response.incomplete"


@pytest.mark.anyio
async def test_the_async_client_streams_too(async_client: openai.AsyncOpenAI) -> None:
    request: Any = {"model": "demo", "input": "How is the weather?", "tools": TOOLS}
    async with async_client.responses.stream(**request) as stream:
        final = await stream.get_final_response()
    assert [item.type for item in final.output] == ["function_call"]


@pytest.mark.parametrize(
    ("change", "kind", "param"),
    [
        ({"model": "nope"}, openai.NotFoundError, "model"),
        ({"temperature": "hot"}, openai.BadRequestError, "temperature"),
        ({"tools": [{"type": "web_search"}]}, openai.BadRequestError, "tools[0].type"),
    ],
)
def test_errors_have_their_class_and_their_field(
    client: openai.OpenAI, change: dict[str, Any], kind: type[openai.APIStatusError], param: str
) -> None:
    request: dict[str, Any] = {"model": "demo", "input": "x"} | change
    with pytest.raises(kind) as raised:
        client.responses.create(**request)
    assert raised.value.param == param


def test_early_dispatch_hands_over_whole_calls(client: openai.OpenAI) -> None:
    wanted = {"x-toolrail-dispatch": "tool_calls"}
    seen = []
    with client.chat.completions.create(
        model="demo",
        messages=[{"role": "user", "content": "Compare two cities"}],
        tools=[{"type": "function", "function": WEATHER}],
        stream=True,
        extra_headers=wanted,
    ) as chunks:
        for chunk in chunks:
            extra = chunk.model_extra or {}
            if "tool_call" in extra:
                seen.append(json.loads(extra["tool_call"]["function"]["arguments"]))
    assert seen == [{"city": "Zürich"}, {"city": "Bern"}]
    with client.responses.stream(
        model="demo", input="Compare two cities", tools=TOOLS, extra_headers=wanted
    ) as stream:
        early = [event for event in stream if str(event.type) == "tool_call_dispatch"]
        final = stream.get_final_response()
    assert len(early) == len(final.output) == 2
