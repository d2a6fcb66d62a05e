"""The langchain-openai package through both APIs."""

from __future__ import annotations

from typing import Any, cast

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from tests.stack import Stack

pytestmark = pytest.mark.clients


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"17 degrees in {city}"


class City(BaseModel):
    """A city."""

    city: str


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def model(served: Stack, request: pytest.FixtureRequest) -> ChatOpenAI:
    return ChatOpenAI(
        model="demo",
        base_url=f"{served.base_url}/v1",
        api_key=SecretStr("none"),
        use_responses_api=request.param,
        max_retries=0,
    )


def test_a_loop_of_call_and_result(model: ChatOpenAI) -> None:
    bound = model.bind_tools([get_weather])
    history: list[BaseMessage] = [HumanMessage("How is the weather?")]
    first = cast("AIMessage", bound.invoke(history))
    (call,) = first.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Zürich"})
    history += [first, ToolMessage("17 degrees", tool_call_id=call["id"])]
    last = cast("AIMessage", bound.invoke(history))
    assert last.text == "It is 17 degrees in Zürich."
    assert last.usage_metadata is not None
    assert last.usage_metadata["output_tokens"] > 0


def test_streamed_parallel_calls_are_merged(model: ChatOpenAI) -> None:
    whole: Any = None
    for chunk in model.bind_tools([get_weather]).stream([HumanMessage("Compare two cities")]):
        whole = chunk if whole is None else whole + chunk
    assert isinstance(whole, AIMessageChunk)
    assert [call["args"] for call in whole.tool_calls] == [{"city": "Zürich"}, {"city": "Bern"}]
    assert not whole.invalid_tool_calls


def test_structured_output(model: ChatOpenAI) -> None:
    assert model.with_structured_output(City).invoke("Say it as JSON") == City(city="Bern")
