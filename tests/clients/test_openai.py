"""The openai package, as its users use it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

from tests.stack import Stack

pytestmark = pytest.mark.clients


class GetWeather(pydantic.BaseModel):
    city: str


TOOLS: list[Any] = [openai.pydantic_function_tool(GetWeather, name="get_weather")]


@pytest.fixture
def client(served: Stack) -> Iterator[openai.OpenAI]:
    url = f"{served.base_url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=30) as made:
        yield made


def ask(text: str) -> dict[str, Any]:
    return {"model": "demo", "messages": [{"role": "user", "content": text}]}


def test_an_agent_s_loop_of_call_and_result(client: openai.OpenAI) -> None:
    request = ask("How is the weather?")
    with client.chat.completions.stream(**request, tools=TOOLS) as stream:
        first = stream.get_final_completion().choices[0]
    assert first.finish_reason == "tool_calls"
    (made,) = first.message.tool_calls or ()
    assert made.function.parsed_arguments == GetWeather(city="Zürich")

    request["messages"].append(first.message.to_dict())
    request["messages"].append({"role": "tool", "tool_call_id": made.id, "content": "17 degrees"})
    second = client.chat.completions.create(**request, tools=TOOLS).choices[0]
    assert second.message.content == "It is 17 degrees in Zürich."
    assert second.message.tool_calls is None
    assert second.finish_reason == "stop"


def test_parallel_calls_parsed_by_pydantic(client: openai.OpenAI) -> None:
    completion = client.chat.completions.parse(**ask("Compare two cities"), tools=TOOLS)
    calls = completion.choices[0].message.tool_calls or []
    assert [call.function.parsed_arguments for call in calls] == [
        GetWeather(city="Zürich"),
        GetWeather(city="Bern"),
    ]
    assert len({call.id for call in calls}) == 2
    assert completion.choices[0].message.content is None


def test_two_choices_stream_side_by_side(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(**ask("How is the weather?"), tools=TOOLS, n=2) as stream:
        final = stream.get_final_completion()
    assert [choice.index for choice in final.choices] == [0, 1]
    for choice in final.choices:
        assert choice.finish_reason == "tool_calls"


def test_usage_and_logprobs_in_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        **ask("Count"), max_tokens=5, logprobs=True, stream_options={"include_usage": True}
    ) as stream:
        with pytest.raises(openai.LengthFinishReasonError):
            stream.get_final_completion()
        seen = stream.current_completion_snapshot
    assert seen.usage is not None
    assert seen.usage.completion_tokens == 5
    assert seen.choices[0].logprobs is not None
    assert len(seen.choices[0].logprobs.content or []) == 5


@pytest.mark.parametrize(
    ("change", "kind", "param"),
    [
        ({"model": "nope"}, openai.NotFoundError, "model"),
        ({"temperature": "hot"}, openai.BadRequestError, "temperature"),
        ({"tools": [], "tool_choice": "required"}, openai.BadRequestError, "tools"),
    ],
)
def test_errors_have_their_class_and_their_field(
    client: openai.OpenAI, change: dict[str, Any], kind: type[openai.APIStatusError], param: str
) -> None:
    with pytest.raises(kind) as raised:
        client.chat.completions.create(**(ask("x") | change))
    assert raised.value.param == param
    assert raised.value.request_id


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").owned_by == "toolrail"


def test_a_client_that_leaves_frees_the_engine(client: openai.OpenAI, served: Stack) -> None:
    """The engine has fewer slots than the clients that leave: the last one would wait for them."""
    for _ in range(12):
        with client.chat.completions.create(**ask("Count"), stream=True) as stream:
            next(iter(stream))
    began = time.monotonic()
    with client.chat.completions.create(**ask("Count"), stream=True, max_tokens=3) as stream:
        assert len(list(stream)) >= 3
    assert time.monotonic() - began < 10  # one of them alone would take longer than that
    with served.client() as http:
        metrics = http.get("/metrics").text
    assert 'toolrail_client_disconnects_total{stage="stream"} 12.0' in metrics
