"""Twenty tool turns through Responses: all sent back each time, as agents do, or kept here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import openai
import pytest

from tests.e2e.agent import FAMILIES, LAST, TURNS, WEATHER, result, serving, turn

pytestmark = pytest.mark.clients

TOOLS: Final[list[Any]] = [
    {"type": "function", **WEATHER["function"], "strict": False},
    {"type": "custom", "name": "run_python", "description": "Runs it."},
]


@pytest.fixture(scope="module", params=FAMILIES)
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    with (
        serving(request.param, tmp_path_factory.mktemp("agent")) as running,
        openai.OpenAI(base_url=f"{running.base_url}/v1", api_key="none", max_retries=0) as made,
    ):
        yield made


def said(item: Any) -> tuple[str, str]:
    return item.name, item.arguments if item.type == "function_call" else item.input


@pytest.mark.parametrize("kept", ["by the client", "sealed", "here"])
def test_twenty_tool_turns(
    client: openai.OpenAI, kept: Literal["by the client", "sealed", "here"]
) -> None:
    history: list[Any] = [{"role": "user", "content": "Begin."}]
    request: dict[str, Any] = {"model": "demo", "tools": TOOLS, "store": kept == "here"}
    if kept == "sealed":
        request["include"] = ["reasoning.encrypted_content"]
    ids: set[str] = set()
    for number in range(TURNS):
        expected = turn(number)
        with client.responses.stream(input=history, **request) as stream:
            response = stream.get_final_response()
        output: list[Any] = list(response.output)
        kinds = [item.type for item in output]
        reasoning = [item for item in output if item.type == "reasoning"]
        calls = [item for item in output if item.type.endswith("_call")]
        assert tuple(map(said, calls)) == expected.calls
        assert (response.output_text or None) == expected.text
        assert [item.content[0].text for item in reasoning if item.content] == (
            [expected.reasoning] if expected.reasoning else []
        )
        order = ["reasoning"] * bool(expected.reasoning) + ["message"] * bool(expected.text)
        assert kinds == order + [call.type for call in calls]
        results = [
            {
                "type": f"{call.type}_output",
                "call_id": call.call_id,
                "output": result(number, position),
            }
            for position, call in enumerate(calls)
        ]
        ids |= {call.call_id for call in calls}
        if kept == "here":
            request["previous_response_id"] = response.id
            history = [*results]
        else:
            history += [*map(carried if kept == "sealed" else own, output), *results]
    assert len(ids) == sum(len(turn(number).calls) for number in range(TURNS))
    last = client.responses.create(input=history, **request)
    assert (last.output_text, last.status) == (LAST.text, "completed")


def own(item: Any) -> Any:
    """As the package sends it back."""
    return item


def carried(item: Any) -> Any:
    """As agents do that drop the text of reasoning and keep what is sealed."""
    if item.type != "reasoning":
        return item
    return {"type": "reasoning", "summary": [], "encrypted_content": item.encrypted_content}
