"""What is read from a request that is in order."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from tests.openai.bodies import USER, WEATHER, body, call, function
from toolrail.openai.answers import FreeAnswer, GuidedAnswer, JsonAnswer
from toolrail.openai.chat import ChatRequest, check_chat
from toolrail.openai.conversation import (
    AssistantMessage,
    Instruction,
    PastCall,
    ToolResult,
    UserMessage,
)
from toolrail.openai.wire import ChatBody
from toolrail.tools import Tool


def read(**fields: Any) -> ChatRequest:
    return check_chat(body(**fields))


def test_the_smallest_request() -> None:
    request = read()
    assert request.model == "m"
    assert request.messages == (UserMessage(USER["content"]),)
    assert (request.tools, request.choice.mode, request.choice.stated) == ((), "none", False)
    assert (request.stream, request.include_usage, request.num_choices) == (False, False, 1)
    assert request.parallel_tool_calls
    assert request.answer == FreeAnswer()
    assert (request.add_generation_prompt, request.continue_final_message) == (True, False)


def test_null_means_absent_everywhere() -> None:
    optional = {field.name for field in msgspec.structs.fields(ChatBody)} - {"model", "messages"}
    assert read(**dict.fromkeys(optional)) == read()


def test_every_published_field_is_known() -> None:
    published = CompletionCreateParamsStreaming.__annotations__.keys()
    known = {entry.name for entry in msgspec.structs.fields(ChatBody)}
    assert published - known == set()


ACCEPTED: list[dict[str, Any]] = [
    {"store": False},
    {"user": "u", "metadata": {"k": "v"}, "safety_identifier": "s"},
    {"prompt_cache_key": "k", "prompt_cache_retention": "24h"},
    {"service_tier": "auto"},
    {"modalities": ["text"]},
    {"verbosity": "medium"},
    {"skip_special_tokens": True, "spaces_between_special_tokens": True, "echo": False},
    {"include_reasoning": True, "use_beam_search": False, "length_penalty": 1, "priority": 0},
    {"add_special_tokens": False, "return_token_ids": False, "return_tokens_as_token_ids": False},
    {"parallel_tool_calls": True},
    {"tool_choice": "auto"},
    {"tool_choice": "none"},
    {"response_format": {"type": "text"}},
    {"guided_decoding_backend": "xgrammar", "guided_regex": "a"},
    {"stop": []},
    {"messages": [{"role": "system", "content": "s"}, USER]},
    {"messages": [{"role": "user", "content": "x", "name": "ann"}]},
    {"tools": [{**function(), "cache_control": {"type": "ephemeral"}}]},
]


@pytest.mark.parametrize("fields", ACCEPTED)
def test_accepted_as_it_is(fields: dict[str, Any]) -> None:
    read(**fields)


def test_tools_keep_their_order_and_their_schemas_key_order() -> None:
    schema = {"required": ["b"], "properties": {"b": {}, "a": {}}, "type": "object"}
    tools = read(tools=[function("z", schema, strict=False, description="d"), function("a")]).tools
    assert [tool.name for tool in tools] == ["z", "a"]
    assert tools[0] == Tool("z", schema, False, "d")
    assert json.dumps(tools[0].parameters) == json.dumps(schema)
    assert read(tools=[{"type": "function", "function": {"name": "f"}}]).tools == (Tool("f"),)


def test_numbers_of_a_schema_fit_into_a_message() -> None:
    wide = {"type": "integer", "maximum": 10**30, "minimum": -(2**63), "enum": [[2**64, 2**64 - 1]]}
    (tool,) = read(tools=[function("f", {"type": "object", "properties": {"a": wide}})]).tools
    assert isinstance(tool.parameters, dict)
    found = tool.parameters["properties"]["a"]
    assert found == {**wide, "maximum": 1e30, "enum": [[2.0**64, 2**64 - 1]]}
    assert isinstance(found["minimum"], int)
    assert msgspec.msgpack.encode(tool)


NAMED = {"type": "function", "function": {"name": "b"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}


@pytest.mark.parametrize(
    ("choice", "mode", "callable_names", "stated"),
    [
        (None, "auto", ["a", "b"], False),
        ("auto", "auto", ["a", "b"], True),
        ("required", "required", ["a", "b"], True),
        ("none", "none", [], True),
        (NAMED, "named", ["b"], True),
        (ALLOWED, "required", ["b"], True),
    ],
)
def test_the_tool_choice(choice: Any, mode: str, callable_names: list[str], stated: bool) -> None:
    chosen = read(tools=[function("a"), function("b")], tool_choice=choice).choice
    assert chosen.mode == mode
    assert [tool.name for tool in chosen.callable] == callable_names
    assert chosen.stated is stated


def test_response_formats() -> None:
    assert read(response_format={"type": "json_object"}).answer == JsonAnswer({"type": "object"})
    declared = {"name": "weather", "schema": WEATHER, "strict": True, "description": "d"}
    wanted = read(response_format={"type": "json_schema", "json_schema": declared}).answer
    assert wanted == JsonAnswer(WEATHER, "weather", True)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("field", "value", "answer"),
    [
        ("guided_json", WEATHER, GuidedAnswer("json", WEATHER, "guided_json")),
        ("guided_json", json.dumps(WEATHER), GuidedAnswer("json", WEATHER, "guided_json")),
        ("guided_json", True, GuidedAnswer("json", True, "guided_json")),
        ("guided_regex", "[a-z]+", GuidedAnswer("regex", "[a-z]+", "guided_regex")),
        ("guided_choice", ["a", "b"], GuidedAnswer("choice", ("a", "b"), "guided_choice")),
        ("guided_grammar", "root ::= x", GuidedAnswer("grammar", "root ::= x", "guided_grammar")),
    ],
)
def test_guided_fields(field: str, value: Any, answer: GuidedAnswer, nested: bool) -> None:
    found = read(nvext={field: value}) if nested else read(**{field: value})
    assert isinstance(found.answer, GuidedAnswer)
    assert (found.answer.kind, found.answer.value) == (answer.kind, answer.value)
    assert found.answer.param == ("nvext." if nested else "") + field


@pytest.mark.parametrize(
    ("fields", "kind", "value"),
    [
        ({"json": WEATHER}, "json", WEATHER),
        ({"json_object": True}, "json", {"type": "object"}),
        ({"regex": "[a-z]+"}, "regex", "[a-z]+"),
        ({"choice": ["a", "b"]}, "choice", ("a", "b")),
        ({"grammar": "root ::= x"}, "grammar", "root ::= x"),
    ],
)
def test_guided_fields_by_their_newer_name(fields: Any, kind: str, value: Any) -> None:
    found = read(structured_outputs=fields).answer
    assert found == GuidedAnswer(kind, value, f"structured_outputs.{kind}")  # type: ignore[arg-type]


def test_content_parts_are_one_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two", "cache_control": {}}]
    assert read(messages=[{"role": "user", "content": parts}]).messages == (
        UserMessage("one\ntwo"),
    )


def test_a_history_with_calls() -> None:
    history = [
        {"role": "developer", "content": "Be brief."},
        USER,
        {"role": "assistant", "reasoning_content": "Hm.", "tool_calls": [call(), call("call_2")]},
        {"role": "tool", "tool_call_id": "call_2", "content": "rain"},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "sun"}]},
        {"role": "assistant", "content": "Done.", "refusal": None, "annotations": []},
    ]
    past = {"name": "get_weather", "arguments": '{"city": "Paris"}', "value": {"city": "Paris"}}
    assert read(messages=history).messages == (
        Instruction("developer", "Be brief."),
        UserMessage(USER["content"]),
        AssistantMessage(None, "Hm.", (PastCall("call_1", **past), PastCall("call_2", **past))),
        ToolResult("call_2", "get_weather", "rain"),
        ToolResult("call_1", "get_weather", "sun"),
        AssistantMessage("Done."),
    )


@pytest.mark.parametrize("arguments", [None, "", "  \n"])
def test_a_past_call_without_arguments_had_none(arguments: Any) -> None:
    turn = {"role": "assistant", "content": None, "tool_calls": [call(arguments=arguments)]}
    message = read(messages=[USER, turn]).messages[1]
    assert message == AssistantMessage(None, None, (PastCall("call_1", "get_weather", "{}", {}),))


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        ({"content": None}, AssistantMessage("")),
        ({}, AssistantMessage("")),
        ({"content": "x", "tool_calls": []}, AssistantMessage("x")),
        ({"content": "x", "tool_calls": None, "function_call": None}, AssistantMessage("x")),
        ({"content": None, "refusal": "No."}, AssistantMessage("No.")),
        ({"content": [{"type": "refusal", "refusal": "No."}]}, AssistantMessage("No.")),
        ({"content": "x", "reasoning": "r"}, AssistantMessage("x", "r")),
        ({"content": "x", "reasoning_content": ""}, AssistantMessage("x")),
        ({"content": "x", "provider_specific_fields": {"y": 1}}, AssistantMessage("x")),
    ],
)
def test_foreign_assistant_messages(turn: dict[str, Any], message: AssistantMessage) -> None:
    assert read(messages=[USER, {"role": "assistant", **turn}]).messages[1] == message


@pytest.mark.parametrize("call_id", ["toolu_01A", "functions.get_weather:0", "1", "ä" * 256])
def test_ids_may_have_any_shape_and_come_again(call_id: str) -> None:
    turns = [
        {"role": "assistant", "tool_calls": [{"id": call_id, "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": call_id},
    ]
    messages = read(messages=[USER, *turns, *turns]).messages
    assert messages[2] == messages[4] == ToolResult(call_id, "f", "")


def test_sampling_wishes() -> None:
    found = read(
        max_tokens=5,
        max_completion_tokens=5,
        stop=["a", "b", "a"],
        seed=-1,
        logit_bias={"7": -100, "12": 2.5},
        logprobs=True,
        nvext={"top_k": 4, "ignore_eos": True},
    ).wishes
    assert found.max_tokens == 5
    assert found.stop == ("a", "b")
    assert found.seed is not None
    assert 0 <= found.seed < 2**63 - 128
    assert found.logit_bias == {7: -100.0, 12: 2.5}
    assert found.top_logprobs == 0
    assert (found.top_k, found.ignore_eos) == (4, True)
    assert read(logprobs=True, top_logprobs=3).wishes.top_logprobs == 3
    assert read(stop="x").wishes.stop == ("x",)


def test_template_variables_and_streaming() -> None:
    request = read(
        chat_template_kwargs={"enable_thinking": False},
        reasoning_effort="low",
        stream=True,
        stream_options={"include_usage": True},
    )
    assert request.template_kwargs == {"enable_thinking": False}
    assert request.reasoning_effort == "low"
    assert (request.stream, request.include_usage) == (True, True)


def test_the_last_message_may_be_continued() -> None:
    begun = [USER, {"role": "assistant", "content": "It is"}]
    request = read(messages=begun, continue_final_message=True)
    assert (request.add_generation_prompt, request.continue_final_message) == (False, True)
    assert not read(messages=begun, add_generation_prompt=False).add_generation_prompt
