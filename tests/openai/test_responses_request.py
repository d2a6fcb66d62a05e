"""Every field of a Responses request: honoured, repeated, or refused where it stands."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.openai.bodies import WEATHER
from toolrail.errors import CallerError
from toolrail.openai.answers import FreeAnswer, JsonAnswer
from toolrail.openai.chat import ChatRequest
from toolrail.openai.responses import check_responses
from toolrail.openai.responses.echo import encoded
from toolrail.openai.responses.request import Past, read_responses, responses_request

FUNCTION = {"type": "function", "name": "f", "parameters": WEATHER}
CUSTOM = {"type": "custom", "name": "patch"}
SCHEMA_FORMAT = {"type": "json_schema", "name": "x", "schema": WEATHER}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "input": "hi", **fields}).encode()


def read(**fields: Any) -> ChatRequest:
    return check_responses(body(**fields))


def echoed(**fields: Any) -> dict[str, Any]:
    return json.loads(encoded(read(**fields).origin.echo, temperature=0.5, top_p=0.9))


def refused(**fields: Any) -> CallerError:
    with pytest.raises(CallerError) as info:
        read(**fields)
    assert info.value.status == 400
    return info.value


def test_a_request_that_says_nothing_more() -> None:
    request = read()
    assert (request.model, request.num_choices, request.stream) == ("m", 1, False)
    assert request.parallel_tool_calls
    assert not request.truncate
    assert request.max_calls is None
    assert isinstance(request.answer, FreeAnswer)
    assert request.wishes.max_tokens is None
    assert request.wishes.top_logprobs is None
    assert (request.choice.mode, request.choice.stated) == ("none", False)


def test_what_is_honoured() -> None:
    request = read(
        tools=[FUNCTION],
        parallel_tool_calls=False,
        max_tool_calls=3,
        max_output_tokens=9,
        temperature=0.1,
        top_p=0.2,
        top_logprobs=4,
        reasoning={"effort": "low", "summary": "auto"},
        truncation="auto",
        stream=True,
        stream_options={"include_obfuscation": False},
        seed=7,
        top_k=5,
        stop="\n",
        presence_penalty=1.0,
        chat_template_kwargs={"enable_thinking": False},
        text={"format": SCHEMA_FORMAT, "verbosity": "medium"},
    )
    wishes = request.wishes
    assert (wishes.max_tokens, wishes.temperature, wishes.top_p) == (9, 0.1, 0.2)
    assert (wishes.seed, wishes.top_k, wishes.stop, wishes.presence_penalty) == (7, 5, ("\n",), 1.0)
    assert wishes.top_logprobs == 4
    assert (request.parallel_tool_calls, request.max_calls) == (False, 3)
    assert (request.reasoning_effort, request.truncate, request.stream) == ("low", True, True)
    assert request.template_kwargs == {"enable_thinking": False}
    assert request.answer == JsonAnswer(WEATHER, "x")


def test_logprobs_come_when_they_are_included() -> None:
    assert read(include=["message.output_text.logprobs"]).wishes.top_logprobs == 0
    assert read(include=["reasoning.encrypted_content"]).wishes.top_logprobs is None


ACCEPTED = [
    {"input": None, "previous_response_id": "resp_1"},
    {"input": [], "previous_response_id": "resp_1"},
    {"metadata": {"a": "b"}, "user": "u", "safety_identifier": "s", "prompt_cache_key": "k"},
    {"service_tier": "auto", "prompt_cache_retention": "24h", "store": False},
    {"client_metadata": {"x-codex-turn-metadata": "{}"}},
    {"store": True, "background": True, "stream": True},
    {"conversation": None, "prompt": None, "moderation": None, "context_management": None},
    {"include": ["web_search_call.action.sources", "file_search_call.results"]},
    {"reasoning": {"effort": None, "generate_summary": "concise", "context": "auto"}},
    {"text": {"format": {"type": "json_object"}}},
    {"tools": [FUNCTION | {"defer_loading": True, "output_schema": {}, "description": None}]},
    {"tools": [CUSTOM | {"format": {"type": "text"}, "allowed_callers": ["direct"]}]},
    {"tools": [], "tool_choice": "auto"},
]


@pytest.mark.parametrize("fields", ACCEPTED)
def test_what_is_accepted(fields: dict[str, Any]) -> None:
    read(**fields)


REFUSED = [
    ({"model": ""}, "model", "empty_string"),
    ({"input": None}, "input", "missing_required_parameter"),
    ({"input": []}, "input", "empty_array"),
    ({"input": 5}, "input", "invalid_type"),
    ({"messages": []}, "messages", "unknown_parameter"),
    ({"max_tokens": 5}, "max_tokens", "unknown_parameter"),
    ({"response_format": {}}, "response_format", "unknown_parameter"),
    ({"max_output_tokens": 0}, "max_output_tokens", "integer_below_min_value"),
    ({"max_tool_calls": 0}, "max_tool_calls", "integer_below_min_value"),
    ({"temperature": 2.5}, "temperature", "decimal_above_max_value"),
    ({"top_p": -1}, "top_p", "decimal_below_min_value"),
    ({"top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
    ({"metadata": {"a": 1}}, "metadata[...]", "invalid_type"),
    ({"include": ["everything"]}, "include[0]", "invalid_value"),
    ({"truncation": "middle"}, "truncation", "invalid_value"),
    ({"service_tier": "flex"}, "service_tier", "invalid_value"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "invalid_value"),
    ({"reasoning": {"budget": 1}}, "reasoning.budget", "unknown_parameter"),
    ({"reasoning": {"context": "all_turns"}}, "reasoning.context", "unsupported_value"),
    ({"text": {"verbosity": "low"}}, "text.verbosity", "unsupported_value"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type", "invalid_value"),
    (
        {"text": {"format": {"type": "json_schema"}}},
        "text.format.name",
        "missing_required_parameter",
    ),
    ({"conversation": "conv_1"}, "conversation", "unsupported_parameter"),
    ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
    ({"moderation": {"model": "m"}}, "moderation", "unsupported_parameter"),
    ({"context_management": []}, "context_management", "unsupported_parameter"),
    ({"background": True, "store": False}, "background", "unsupported_value"),
    ({"stream_options": {}}, "stream_options", "invalid_value"),
    (
        {"stream": True, "stream_options": {"include_obfuscation": True}},
        "stream_options.include_obfuscation",
        "unsupported_parameter",
    ),
    ({"min_tokens": 5, "max_output_tokens": 4}, "min_tokens", "invalid_value"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages", "invalid_value"),
]


@pytest.mark.parametrize(("fields", "param", "code"), REFUSED)
def test_what_is_refused(fields: dict[str, Any], param: str, code: str) -> None:
    error = refused(**fields)
    assert (error.param, error.code) == (param.replace("[...]", ""), code)


def test_what_the_response_repeats() -> None:
    said = {
        "instructions": "Be brief.",
        "metadata": {"a": "b"},
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": SCHEMA_FORMAT},
        "max_output_tokens": 5,
        "temperature": 0.1,
        "user": "u",
    }
    found = echoed(tools=[FUNCTION], **said)
    assert found["tools"] == [FUNCTION | {"strict": None}]
    assert found["text"] == {"format": SCHEMA_FORMAT | {"strict": None}, "verbosity": "medium"}
    for name in ("instructions", "metadata", "tool_choice", "max_output_tokens", "user"):
        assert found[name] == said[name]
    assert (found["temperature"], found["top_p"]) == (0.1, 0.9)
    assert (found["store"], found["background"], found["truncation"]) == (True, False, "disabled")


def test_what_the_response_repeats_of_nothing() -> None:
    found = echoed()
    assert (found["tools"], found["tool_choice"], found["metadata"]) == ([], "auto", {})
    assert found["text"] == {"format": {"type": "text"}, "verbosity": "medium"}
    assert found["reasoning"] == {"effort": None, "summary": None}
    assert "user" not in found


def test_references_are_found_and_replaced() -> None:
    items = [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_2"}]
    draft = read_responses(body(input=[*items, {"role": "user", "content": "and?"}]))
    assert draft.references == ("msg_1", "msg_2")
    said = b'{"role": "assistant", "content": [{"type": "output_text", "text": "yes"}]}'
    asked = b'{"role": "user", "content": "so?"}'
    raw = {name: _raw(text) for name, text in {"msg_1": asked, "msg_2": said}.items()}
    messages = responses_request(draft, Past(named=raw)).messages
    assert [message.content for message in messages] == ["so?", "yes", "and?"]
    with pytest.raises(CallerError) as info:
        responses_request(draft, Past(named={"msg_1": raw["msg_1"]}))
    assert (info.value.param, info.value.code) == ("input[1].id", "item_not_found")


def test_the_past_comes_first_and_its_instructions_do_not() -> None:
    draft = read_responses(body(previous_response_id="resp_1", instructions="Now."))
    past = Past([_raw(b'{"role": "user", "content": "before"}')])
    messages = responses_request(draft, past).messages
    assert [message.content for message in messages] == ["Now.", "before", "hi"]


def _raw(data: bytes) -> msgspec.Raw:
    return msgspec.Raw(data)
