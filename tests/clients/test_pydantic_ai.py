"""The pydantic-ai package through both APIs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.stack import Stack

pytestmark = [pytest.mark.clients, pytest.mark.anyio]


class City(BaseModel):
    city: str


@pytest.fixture(params=[OpenAIChatModel, OpenAIResponsesModel])
async def model(served: Stack, request: pytest.FixtureRequest) -> AsyncIterator[Model]:
    url = f"{served.base_url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=30) as made:
        yield request.param("demo", provider=OpenAIProvider(openai_client=made))


def agent(model: Model, asked: list[str]) -> Agent[None, str]:
    made = Agent(model)

    @made.tool_plain
    def get_weather(city: str) -> str:
        """The weather of a city."""
        asked.append(city)
        return "17 degrees"

    return made


async def test_a_loop_of_call_and_result(model: Model) -> None:
    asked: list[str] = []
    result = await agent(model, asked).run("How is the weather?")
    assert result.output == "It is 17 degrees in Zürich."
    assert asked == ["Zürich"]


async def test_a_streamed_loop_of_parallel_calls(model: Model) -> None:
    asked: list[str] = []
    async with agent(model, asked).run_stream("Compare two cities") as result:
        assert await result.get_output() == "It is 17 degrees in Zürich."
    assert sorted(asked) == ["Bern", "Zürich"]


async def test_structured_output(model: Model) -> None:
    made = Agent(model, output_type=NativeOutput(City))
    assert (await made.run("Say it as JSON")).output == City(city="Bern")
