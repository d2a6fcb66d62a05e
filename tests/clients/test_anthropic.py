"""The anthropic package, as its users use it, against the pipeline with a scripted engine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pydantic
import pytest

from tests import pipeline
from toolrail.api_keys import hash_of, new_key

pytestmark = pytest.mark.clients

TURNS = 20


def wrote(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def steps() -> Iterator[dict[str, Any]]:
    """An agent that counts to `TURNS`; the last result in the prompt says where it stands."""
    yield {"match": f"result-{TURNS}.", "text": "<think>\nDone.\n</think>\n\nAll steps are done."}
    for turn in range(TURNS - 1, 0, -1):
        said = f"<think>\nStep {turn + 1}.\n</think>\n\n{wrote('step', number=turn + 1)}"
        yield {"match": f"result-{turn}.", "text": said}
    yield {
        "match": "Begin to step",
        "text": f"<think>\nStep 1.\n</think>\n\n{wrote('step', number=1)}",
    }


ZURICH = wrote("get_weather", city="Zürich 🚀")
BERN = wrote("get_weather", city="Bern")

SCRIPT = [
    *steps(),
    {"match": "Describe", "text": '<think>\n\n</think>\n\n{"name": "Bern", "hills": 3}'},
    {"match": "17 degrees", "text": "<think>\nWarm.\n</think>\n\nIt is 17 degrees in Zürich."},
    {"match": "Compare", "text": f"<think>\nTwo.\n</think>\n\nI look.\n{ZURICH}\n{BERN}"},
    {"match": "How is the weather", "text": f"<think>\nHm.\n</think>\n\n{ZURICH}"},
    {"match": "Count", "text": "<think>\n\n</think>\n\n" + "1 2 3 " * 300, "delay_ms": 5},
    {"match": "Take your time", "text": "<think>\n\n</think>\n\n" + "1 2 3 " * 99, "delay_ms": 200},
    {"match": "Break", "text": "<think>\n\n</think>\n\nSo far", "finish": "error"},
    {"match": "Hello", "text": "<think>\n\n</think>\n\nHello there! END of it."},
]  # fmt: skip

WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
STEP: Any = {
    "name": "step",
    "input_schema": {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
    },
}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("anthropic") / "script.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    return file


def flags(script: Path) -> tuple[str, ...]:
    parsers = ("--tool-call-parser", "hermes", "--reasoning-parser", "qwen3")
    return ("--model", "demo-think", "--script", str(script), *parsers)


@pytest.fixture(scope="module")
def served(script: Path) -> Iterator[pipeline.Pipeline]:
    with pipeline.running(*flags(script)) as running:
        yield running


@pytest.fixture
def client(served: pipeline.Pipeline) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=served.base_url, api_key="none", max_retries=0, timeout=60
    ) as made:
        yield made


def ask(text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "demo-think", "max_tokens": 512, "messages": messages, **more}


def kinds(message: anthropic.types.Message) -> list[str]:
    return [block.type for block in message.content]


def test_text(client: anthropic.Anthropic) -> None:
    message = client.messages.create(**ask("Hello"))
    assert message.id.startswith("msg_")
    assert (message.type, message.role, message.model) == ("message", "assistant", "demo-think")
    assert kinds(message) == ["text"]
    assert message.content[0].text == "Hello there! END of it."
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.input_tokens > 0
    assert message.usage.output_tokens > 0
    assert message.usage.cache_read_input_tokens == 0
    assert message._request_id


def test_a_stop_sequence(client: anthropic.Anthropic) -> None:
    message = client.messages.create(**ask("Hello", stop_sequences=["END"]))
    assert message.content[0].text == "Hello there! "
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")


def test_a_cut_answer(client: anthropic.Anthropic) -> None:
    with client.messages.stream(**ask("Count") | {"max_tokens": 9}) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 9


def test_a_cut_call_says_so_and_is_no_call_of_the_object(client: anthropic.Anthropic) -> None:
    request = ask("How is the weather?", tools=[WEATHER])
    needed = client.messages.create(**request).usage.output_tokens
    request["max_tokens"] = needed - 8
    with client.messages.stream(**request) as stream:
        streamed = stream.get_final_message()
    assert (streamed.stop_reason, kinds(streamed)) == ("max_tokens", ["thinking", "tool_use"])
    whole = client.messages.create(**request)
    assert (whole.stop_reason, kinds(whole)) == ("max_tokens", ["thinking"])


def test_a_loop_of_call_and_result_with_thinking(client: anthropic.Anthropic) -> None:
    request = ask("How is the weather?", tools=[WEATHER], thinking={"type": "adaptive"})
    first = client.messages.create(**request)
    assert kinds(first) == ["thinking", "tool_use"]
    assert first.stop_reason == "tool_use"
    thought, used = first.content
    assert thought.thinking.strip() == "Hm."
    assert thought.signature
    assert used.id.startswith("toolu_")
    assert (used.name, used.input) == ("get_weather", {"city": "Zürich 🚀"})

    request["messages"] += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": used.id, "content": "17 degrees"}]},
    ]  # fmt: skip
    second = client.messages.create(**request)
    assert kinds(second) == ["thinking", "text"]
    assert second.content[1].text == "It is 17 degrees in Zürich."
    assert second.stop_reason == "end_turn"


def test_parallel_calls_stream_block_by_block(client: anthropic.Anthropic) -> None:
    edges = ("content_block_start", "content_block_stop")
    with client.messages.stream(**ask("Compare", tools=[WEATHER])) as stream:
        seen = [(event.type, event.index) for event in stream if event.type in edges]
        message = stream.get_final_message()
    assert seen == [(edge, index) for index in range(4) for edge in edges]
    assert kinds(message) == ["thinking", "text", "tool_use", "tool_use"]
    assert message.content[1].text == "I look."
    assert [block.input["city"] for block in message.content[2:]] == ["Zürich 🚀", "Bern"]
    assert message.content[2].id != message.content[3].id
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens_details.thinking_tokens > 0


def test_a_stream_says_what_the_object_says(client: anthropic.Anthropic) -> None:
    for question in ("Hello", "Compare", "How is the weather"):
        whole = client.messages.create(**ask(question, tools=[WEATHER]))
        with client.messages.stream(**ask(question, tools=[WEATHER])) as stream:
            text = "".join(stream.text_stream)
            streamed = stream.get_final_message()
        assert kinds(streamed) == kinds(whole)
        for one, other in zip(streamed.content, whole.content, strict=True):
            assert one.to_dict() | {"id": 0} == other.to_dict() | {"id": 0}
        assert text == "".join(b.text for b in whole.content if b.type == "text")
        assert (streamed.stop_reason, streamed.usage) == (whole.stop_reason, whole.usage)


def test_one_call_where_parallel_ones_are_switched_off(client: anthropic.Anthropic) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    message = client.messages.create(**ask("Compare", tools=[WEATHER], tool_choice=choice))
    assert kinds(message) == ["thinking", "text", "tool_use"]


def test_an_agent_s_loop_of_twenty_calls(client: anthropic.Anthropic) -> None:
    request = ask("Begin to step", tools=[STEP], system="You are careful.")
    ids: set[str] = set()
    for turn in range(1, TURNS + 1):
        with client.messages.stream(**request) as stream:
            message = stream.get_final_message()
        assert kinds(message) == ["thinking", "tool_use"]
        used = message.content[1]
        assert used.input == {"number": turn}
        ids.add(used.id)
        result = {"type": "tool_result", "tool_use_id": used.id, "content": f"result-{turn}."}
        request["messages"] += [
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": [result]},
        ]
    assert len(ids) == TURNS
    last = client.messages.create(**request)
    assert last.content[-1].text == "All steps are done."
    assert last.stop_reason == "end_turn"


def test_the_package_s_own_runner_of_tools(client: anthropic.Anthropic) -> None:
    called: list[int] = []

    @anthropic.beta_tool
    def step(number: int) -> str:
        """Take a step.

        Args:
            number: which one.
        """
        called.append(number)
        return f"result-{number}."

    runner = client.beta.messages.tool_runner(**ask("Begin to step"), tools=[step])
    last = runner.until_done()
    assert called == list(range(1, TURNS + 1))
    assert last.content[-1].text == "All steps are done."


class City(pydantic.BaseModel):
    name: str
    hills: int


def test_an_answer_of_a_format_is_parsed(client: anthropic.Anthropic) -> None:
    message = client.messages.parse(**ask("Describe a city"), output_format=City)
    assert message.parsed_output == City(name="Bern", hills=3)
    with client.messages.stream(**ask("Describe a city"), output_format=City) as stream:
        assert stream.get_final_message().parsed_output == City(name="Bern", hills=3)


def test_a_prompt_is_counted_as_it_is_used(client: anthropic.Anthropic) -> None:
    request = ask("Hello", tools=[WEATHER], system="Be brief.")
    used = client.messages.create(**request).usage.input_tokens
    del request["max_tokens"]
    assert client.messages.count_tokens(**request).input_tokens == used
    longer = client.messages.count_tokens(**request | {"system": "Be brief and kind."})
    assert longer.input_tokens > used


def test_models(client: anthropic.Anthropic) -> None:
    assert [model.id for model in client.models.list()] == ["demo-think"]
    assert client.models.retrieve("demo-think").display_name == "demo-think"
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("nope")


def test_an_answer_is_gone_on_from(client: anthropic.Anthropic) -> None:
    request = ask("Say")
    request["messages"].append({"role": "assistant", "content": "Hello"})
    message = client.messages.create(**request)
    assert message.stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"model": "nope"}, anthropic.NotFoundError, "not_found_error"),
        ({"extra_body": {"temperature": "hot"}}, anthropic.BadRequestError,
         "invalid_request_error"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
         anthropic.BadRequestError, "invalid_request_error"),
        ({"max_tokens": 0}, anthropic.BadRequestError, "invalid_request_error"),
    ],
)  # fmt: skip
def test_errors_have_their_class_and_type(
    client: anthropic.Anthropic, change: dict[str, Any], kind: type[Any], said: str
) -> None:
    with pytest.raises(kind) as raised:
        client.messages.create(**(ask("x") | change))
    assert raised.value.body["error"]["type"] == said
    assert raised.value.request_id


def test_an_error_midway_is_raised_from_the_stream(client: anthropic.Anthropic) -> None:
    with (
        pytest.raises(anthropic.APIStatusError) as raised,
        client.messages.stream(**ask("Break")) as stream,
    ):
        stream.until_done()
    assert "api_error" in str(raised.value)


def test_a_client_that_leaves_is_noticed(
    client: anthropic.Anthropic, served: pipeline.Pipeline
) -> None:
    before = served.count("gateway", "toolrail_client_disconnects_total")
    for _ in range(12):  # more than the engine has slots: these would take 20 s each
        with client.messages.create(**ask("Take your time"), stream=True) as stream:
            next(iter(stream))
    with client.messages.stream(**ask("Hello")) as stream:
        assert stream.get_final_message().stop_reason == "end_turn"
    deadline = time.monotonic() + 30
    while served.count("gateway", "toolrail_client_disconnects_total") < before + 12:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_keys_models_and_limits(script: Path, tmp_path: Path) -> None:
    key, key_id = new_key()
    narrow, narrow_id = new_key()
    records = [
        {"id": key_id, "name": "a", "hash": hash_of(key), "concurrent_requests": 1},
        {"id": narrow_id, "name": "b", "hash": hash_of(narrow), "models": ["other"]},
    ]
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": records}))
    with pipeline.running(*flags(script), gateway=("--api-keys-file", str(file))) as running:

        def client_of(api_key: str, **more: Any) -> anthropic.Anthropic:
            return anthropic.Anthropic(
                base_url=running.base_url, api_key=api_key, max_retries=0, timeout=60, **more
            )

        with client_of("wrong") as client, pytest.raises(anthropic.AuthenticationError):
            client.messages.create(**ask("Hello"))
        with client_of(narrow) as client, pytest.raises(anthropic.PermissionDeniedError):
            client.messages.create(**ask("Hello"))
        with client_of(key) as client:
            assert client.messages.create(**ask("Hello")).stop_reason == "end_turn"
            with client.messages.create(**ask("Take your time"), stream=True) as stream:
                next(iter(stream))
                with pytest.raises(anthropic.RateLimitError) as raised:
                    client.messages.create(**ask("Hello"))
            assert raised.value.response.headers["retry-after"] == "1"
