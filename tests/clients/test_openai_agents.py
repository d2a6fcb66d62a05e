"""The openai-agents package through both APIs: it raises at what breaks either."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pydantic
import pytest
from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.exceptions import AgentsException, MaxTurnsExceeded

from tests.stack import Stack

pytestmark = [pytest.mark.clients, pytest.mark.anyio]

set_tracing_disabled(True)
asked: list[str] = []


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    asked.append(city)
    return "17 degrees"


@pytest.fixture(params=[OpenAIChatCompletionsModel, OpenAIResponsesModel])
async def model(served: Stack, request: pytest.FixtureRequest) -> AsyncIterator[Model]:
    url = f"{served.base_url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=30) as made:
        yield request.param("demo", made)


def agent(model: Model, **more: Any) -> Agent[Any]:
    asked.clear()
    return Agent(name="agent", instructions="Help.", model=model, tools=[get_weather], **more)


async def test_a_loop_of_call_and_result(model: Model) -> None:
    result = await Runner.run(agent(model), "How is the weather?")
    assert result.final_output == "It is 17 degrees in Zürich."
    assert asked == ["Zürich"]


async def test_a_streamed_loop_of_parallel_calls(model: Model) -> None:
    settings = ModelSettings(include_usage=True)
    result = Runner.run_streamed(agent(model, model_settings=settings), "Compare two cities")
    kinds = [event.type async for event in result.stream_events()]
    assert "raw_response_event" in kinds
    assert result.final_output == "It is 17 degrees in Zürich."
    assert sorted(asked) == ["Bern", "Zürich"]
    assert result.context_wrapper.usage.requests == 2
    assert result.context_wrapper.usage.output_tokens > 0


async def test_an_answer_with_a_schema_beside_tools(model: Model) -> None:
    class Weather(pydantic.BaseModel):
        city: str

    result = await Runner.run(agent(model, output_type=Weather), "Say it as JSON")
    assert result.final_output == Weather(city="Bern")


async def test_what_is_refused_is_raised(model: Model) -> None:
    bad = agent(type(model)("nope", model._client))  # type: ignore[attr-defined, call-arg]
    with pytest.raises(openai.NotFoundError):
        await Runner.run(bad, "x")


async def test_turns_are_bounded(model: Model) -> None:
    with pytest.raises((MaxTurnsExceeded, AgentsException)):
        await Runner.run(agent(model), "How is the weather?", max_turns=1)
