"""What is refused, and what the caller is told: status 400, the path of the field, the code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.openai.bodies import USER, WEATHER, body, call, function
from toolrail.errors import CallerError
from toolrail.openai.chat import check_chat
from toolrail.openai.limits import MAX_JSON_DEPTH


def refused(data: bytes) -> CallerError:
    with pytest.raises(CallerError) as info:
        check_chat(data)
    assert info.value.status == 400
    return info.value


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def answered(*results: dict[str, Any], **assistant: Any) -> list[dict[str, Any]]:
    return [USER, {"role": "assistant", **assistant}, *results]


TOOLS = [function()]

NOT_JSON = [
    (b"", "JSON"),
    (b"{", "JSON"),
    (b'{"model": "m",}', "JSON"),
    (body() + b" x", "JSON"),
    (b'{"model": "\xff", "messages": []}', "UTF-8"),
    (b'{"model": "m", "messages": [{"role": "user", "content": "", "x": "\xff"}]}', "UTF-8"),
    (b'{"model": "\xed\xa0\x80", "messages": []}', "UTF-8"),
    (b'{"model": "\\ud800", "messages": []}', "JSON"),
    (b'{"model": "m", "temperature": NaN}', "JSON"),
    (b'{"chat_template_kwargs": ' + b"[" * 100_000, "deep"),
    (b'{"model": "m", "tools": [{"x": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "deep"),
]


def test_the_pattern_in_a_message_is_one_a_client_can_use() -> None:
    error = refused(body(tools=[function("a b")]))
    assert error.message.endswith("it must match '^[A-Za-z0-9_-]{1,64}$'.")


@pytest.mark.parametrize(("data", "word"), NOT_JSON)
def test_a_body_that_is_not_json(data: bytes, word: str) -> None:
    error = refused(data)
    assert error.code == "invalid_json"
    assert error.param is None
    assert word in error.message


FIELDS = [
    # Shapes and types.
    ({"messages": "x"}, "messages", "invalid_type"),
    ({"messages": None}, "messages", "invalid_type"),
    ({"messages": []}, "messages", "empty_array"),
    ({"messages": ["x"]}, "messages[0]", "invalid_type"),
    ({"model": 5}, "model", "invalid_type"),
    ({"model": ""}, "model", "empty_string"),
    ({"stream": "yes"}, "stream", "invalid_type"),
    ({"frobnicate": 1}, "frobnicate", "unknown_parameter"),
    ({"enable_thinking": True}, "enable_thinking", "unknown_parameter"),
    # Ranges.
    ({"n": 0}, "n", "integer_below_min_value"),
    ({"n": 129}, "n", "integer_above_max_value"),
    ({"n": 1.5}, "n", "invalid_type"),
    ({"n": True}, "n", "invalid_type"),
    ({"temperature": -0.1}, "temperature", "decimal_below_min_value"),
    ({"temperature": 2.1}, "temperature", "decimal_above_max_value"),
    ({"temperature": "hot"}, "temperature", "invalid_type"),
    ({"top_p": 1.1}, "top_p", "decimal_above_max_value"),
    ({"presence_penalty": 2.5}, "presence_penalty", "decimal_above_max_value"),
    ({"frequency_penalty": -2.5}, "frequency_penalty", "decimal_below_min_value"),
    ({"repetition_penalty": 0}, "repetition_penalty", "decimal_below_min_value"),
    ({"min_p": 2}, "min_p", "decimal_above_max_value"),
    ({"top_k": -2}, "top_k", "integer_below_min_value"),
    ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
    ({"max_completion_tokens": -5}, "max_completion_tokens", "integer_below_min_value"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens", "invalid_value"),
    ({"max_tokens": 5, "min_tokens": 6}, "min_tokens", "invalid_value"),
    ({"seed": 2**63}, "seed", "integer_above_max_value"),
    ({"seed": 10**40}, "seed", "integer_above_max_value"),
    ({"top_logprobs": 3}, "top_logprobs", "invalid_value"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "integer_above_max_value"),
    ({"stop": ""}, "stop", "empty_string"),
    ({"stop": ["a", ""]}, "stop[1]", "empty_string"),
    ({"stop": ["x"] * 33}, "stop", "array_above_max_length"),
    ({"logit_bias": {"5": 101}}, "logit_bias", "decimal_above_max_value"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"-1": 1}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"٣": 1}}, "logit_bias", "invalid_value"),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]", "integer_below_min_value"),
    ({"metadata": {"k" * 65: "v"}}, "metadata", "string_above_max_length"),
    ({"metadata": {"k": "v" * 513}}, "metadata", "string_above_max_length"),
    ({"metadata": {str(i): "v" for i in range(17)}}, "metadata", "object_above_max_length"),
    ({"metadata": {"k": 5}}, "metadata", "invalid_type"),
    ({"reasoning_effort": "extreme"}, "reasoning_effort", "invalid_value"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs", "invalid_type"),
    (
        {"chat_template_kwargs": {"messages": []}},
        "chat_template_kwargs.messages",
        "invalid_value",
    ),
    ({"chat_template_kwargs": {"a b": 1}}, "chat_template_kwargs.a b", "invalid_value"),
    # Not offered here.
    ({"store": True}, "store", "unsupported_value"),
    ({"audio": {"voice": "x"}}, "audio", "unsupported_parameter"),
    ({"modalities": ["text", "audio"]}, "modalities", "unsupported_value"),
    ({"functions": []}, "functions", "unsupported_parameter"),
    ({"function_call": "auto"}, "function_call", "unsupported_parameter"),
    ({"prediction": {}}, "prediction", "unsupported_parameter"),
    ({"web_search_options": {}}, "web_search_options", "unsupported_parameter"),
    ({"verbosity": "high"}, "verbosity", "unsupported_value"),
    ({"echo": True}, "echo", "unsupported_value"),
    ({"include_reasoning": False}, "include_reasoning", "unsupported_value"),
    ({"skip_special_tokens": False}, "skip_special_tokens", "unsupported_value"),
    ({"length_penalty": 1.2}, "length_penalty", "unsupported_value"),
    ({"prompt_logprobs": 1}, "prompt_logprobs", "unsupported_value"),
    ({"priority": 3}, "priority", "unsupported_value"),
    ({"service_tier": "flex"}, "service_tier", "invalid_value"),
    ({"chat_template": "x"}, "chat_template", "unknown_parameter"),
    # Streams.
    ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
    (
        {"stream": True, "stream_options": {"include_obfuscation": True}},
        "stream_options.include_obfuscation",
        "unsupported_parameter",
    ),
    (
        {"stream": True, "stream_options": {"x": 1}},
        "stream_options.x",
        "unknown_parameter",
    ),
    # Tools.
    ({"tools": []}, "tools", "empty_array"),
    ({"tools": [], "tool_choice": "required"}, "tools", "empty_array"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "invalid_value"),
    ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type", "missing_required_parameter"),
    (
        {"tools": [{"type": "function"}]},
        "tools[0].function",
        "missing_required_parameter",
    ),
    ({"tools": [function("a b")]}, "tools[0].function.name", "invalid_value"),
    ({"tools": [function("a.b")]}, "tools[0].function.name", "invalid_value"),
    ({"tools": [function("x\n")]}, "tools[0].function.name", "invalid_value"),
    ({"tools": [function("x" * 65)]}, "tools[0].function.name", "invalid_value"),
    ({"tools": [function(""), function()]}, "tools[0].function.name", "invalid_value"),
    ({"tools": [function(), function()]}, "tools[1].function.name", "invalid_value"),
    ({"tools": [function()] * 1025}, "tools", "array_above_max_length"),
    ({"tools": [function(strict="yes")]}, "tools[0].function.strict", "invalid_type"),
    ({"tools": [{**function(), "strict": True}]}, "tools[0].strict", "unknown_parameter"),
    (
        {"tools": [function(parameters={"maximum": 10**400})]},
        "tools[0].function.parameters",
        "invalid_value",
    ),
    (
        {"tools": [function(parameters="x")]},
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    (
        {"tools": [{"type": "custom", "custom": {"name": "x y"}}]},
        "tools[0].custom.name",
        "invalid_value",
    ),
    ({"tools": [{"type": "custom"}]}, "tools[0].custom", "missing_required_parameter"),
    (
        {"tools": [{"type": "custom", "custom": {"name": "x", "parameters": {}}}]},
        "tools[0].custom.parameters",
        "unknown_parameter",
    ),
    (
        {"tools": [function("x"), {"type": "custom", "custom": {"name": "x"}}]},
        "tools[1].custom.name",
        "invalid_value",
    ),
    (
        {"tools": [{"type": "custom", "custom": {"name": "x", "format": {"type": "json"}}}]},
        "tools[0].custom.format.type",
        "invalid_value",
    ),
    (
        {"tools": [{"type": "custom", "custom": {"name": "x", "format": {"type": "grammar"}}}]},
        "tools[0].custom.format",
        "missing_required_parameter",
    ),
    # Tool choice.
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"tool_choice": named("f")}, "tool_choice", "invalid_value"),
    ({"tools": TOOLS, "tool_choice": named("other")}, "tool_choice", "invalid_value"),
    ({"tools": TOOLS, "tool_choice": "some"}, "tool_choice", "invalid_value"),
    ({"tools": TOOLS, "tool_choice": {"type": "x"}}, "tool_choice.type", "invalid_value"),
    (
        {"tools": TOOLS, "tool_choice": {"type": "function"}},
        "tool_choice.function",
        "missing_required_parameter",
    ),
    (
        {"tools": TOOLS, "tool_choice": {"type": "custom"}},
        "tool_choice.custom",
        "missing_required_parameter",
    ),
    (
        {"tools": TOOLS, "tool_choice": {"type": "custom", "custom": {"name": "get_weather"}}},
        "tool_choice",
        "invalid_value",
    ),
    (
        {
            "tools": TOOLS,
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [named("other")]},
            },
        },
        "tool_choice.allowed_tools.tools[0]",
        "invalid_value",
    ),
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls", "invalid_type"),
    # Formats and guided fields.
    ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    (
        {"response_format": {"type": "json_schema"}},
        "response_format.json_schema",
        "missing_required_parameter",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a b"}}},
        "response_format.json_schema.name",
        "invalid_value",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": 5}}},
        "response_format.json_schema.schema",
        "invalid_json_schema",
    ),
    ({"guided_choice": []}, "guided_choice", "empty_array"),
    ({"guided_regex": ""}, "guided_regex", "empty_string"),
    (
        {"structured_outputs": {"regex": "a", "choice": ["a"]}},
        "structured_outputs.choice",
        "invalid_value",
    ),
    (
        {"structured_outputs": {"json": {}, "json_object": True}},
        "structured_outputs.json_object",
        "invalid_value",
    ),
    (
        {"structured_outputs": {"structural_tag": "x"}},
        "structured_outputs.structural_tag",
        "unknown_parameter",
    ),
    ({"guided_json": 5}, "guided_json", "invalid_type"),
    ({"guided_json": "{"}, "guided_json", "invalid_json"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "invalid_value"),
    ({"guided_regex": "a", "nvext": {"guided_regex": "a"}}, "nvext.guided_regex", "invalid_value"),
    (
        {"guided_json": {}, "response_format": {"type": "json_object"}},
        "guided_json",
        "invalid_value",
    ),
    ({"guided_decoding_backend": "outlines"}, "guided_decoding_backend", "unsupported_parameter"),
    ({"nvext": {"use_raw_prompt": True}}, "nvext.use_raw_prompt", "unknown_parameter"),
    (
        {"tools": TOOLS, "tool_choice": "required", "guided_json": {"type": "object"}},
        "guided_json",
        "invalid_value",
    ),
    (
        {
            "tools": TOOLS,
            "tool_choice": named("get_weather"),
            "nvext": {"guided_choice": ["a"]},
        },
        "nvext.guided_choice",
        "invalid_value",
    ),
    # Messages.
    ({"messages": [{"content": "x"}]}, "messages[0].role", "missing_required_parameter"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "invalid_type"),
    ({"messages": [{"role": "function", "name": "f"}]}, "messages[0].role", "unsupported_value"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text",
        "missing_required_parameter",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].type",
        "unsupported_value",
    ),
    (
        {"messages": [USER, {"role": "user", "content": [{"type": "input_audio"}]}]},
        "messages[1].content[0].type",
        "unsupported_value",
    ),
    (
        {"messages": answered(tool_calls=[call(arguments="{")])},
        "messages[1].tool_calls[0].function.arguments",
        "invalid_json",
    ),
    (
        {"messages": answered(tool_calls=[call(), call("call_2", arguments="[1]")])},
        "messages[1].tool_calls[1].function.arguments",
        "invalid_type",
    ),
    (
        {"messages": answered(tool_calls=[call(arguments=5)])},
        "messages[1].tool_calls[0].function.arguments",
        "invalid_type",
    ),
    (
        {"messages": answered(tool_calls=[call(), call()])},
        "messages[1].tool_calls[1].id",
        "invalid_value",
    ),
    (
        {"messages": answered(tool_calls=[{"id": "x", "type": "function"}])},
        "messages[1].tool_calls[0].function",
        "missing_required_parameter",
    ),
    (
        {"messages": answered(tool_calls=[{"id": "x", "type": "custom"}])},
        "messages[1].tool_calls[0].custom",
        "missing_required_parameter",
    ),
    (
        {"messages": [USER, {"role": "tool", "tool_call_id": "call_1", "content": "x"}]},
        "messages[1].tool_call_id",
        "invalid_value",
    ),
    (
        {
            "messages": answered(
                {"role": "tool", "tool_call_id": "call_9", "content": "x"}, tool_calls=[call()]
            )
        },
        "messages[2].tool_call_id",
        "invalid_value",
    ),
    (
        {"messages": answered({"role": "tool", "content": "x"}, tool_calls=[call()])},
        "messages[2].tool_call_id",
        "missing_required_parameter",
    ),
    (
        {"messages": answered(content="x", function_call={"name": "f", "arguments": "{}"})},
        "messages[1].function_call",
        "unsupported_parameter",
    ),
    # Continuing the last message.
    ({"continue_final_message": True}, "continue_final_message", "invalid_value"),
    (
        {
            "messages": answered(content="It is"),
            "continue_final_message": True,
            "add_generation_prompt": True,
        },
        "continue_final_message",
        "invalid_value",
    ),
]


@pytest.mark.parametrize(("fields", "param", "code"), FIELDS)
def test_a_field_at_fault_is_named(fields: dict[str, Any], param: str, code: str) -> None:
    error = refused(body(**fields))
    assert (error.param, error.code) == (param, code)
    assert error.message


def test_a_missing_field_is_named() -> None:
    error = refused(b'{"model": "m"}')
    assert (error.param, error.code) == ("messages", "missing_required_parameter")


def test_values_are_echoed_within_bounds() -> None:
    assert len(refused(body(tool_choice="x" * 1_000_000)).message) < 400
    assert len(refused(body(**{"y" * 1_000_000: 1})).message) < 400


def test_a_schema_nests_within_bounds() -> None:
    def nested(levels: int) -> Any:
        schema: Any = {"type": "string"}
        for _ in range(levels):
            schema = {"type": "array", "items": schema}
        return schema

    check_chat(body(tools=[function(parameters={"type": "object", "items": nested(200)})]))
    error = refused(body(tools=[function(parameters={"items": nested(MAX_JSON_DEPTH)})]))
    assert (error.param, error.code) == ("tools[0].function.parameters", "invalid_json")


def test_a_schema_is_bounded_in_size() -> None:
    wide = {"type": "object", "properties": {str(n): {} for n in range(250_001)}}
    error = refused(body(tools=[function(parameters=wide)]))
    assert (error.param, error.code) == ("tools[0].function.parameters", "string_above_max_length")
    large = {"type": "object", "description": "x" * 3_000_000}
    error = refused(body(tools=[function(f"f{n}", large) for n in range(3)]))
    assert (error.param, error.code) == ("tools", "string_above_max_length")


def test_a_strict_schema_is_refused_by_function_place_and_rule() -> None:
    open_object = {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]}
    schema = {**open_object, "additionalProperties": False}
    error = refused(body(tools=[function("ok"), function("bad", schema, strict=True)]))
    assert error.param == "tools[1].function.parameters"
    assert error.code == "invalid_function_parameters"
    assert "function 'bad'" in error.message
    assert "#/properties/a," in error.message
    assert "rule '" in error.message


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_strict_schemas_are_checked_under_every_choice(choice: str) -> None:
    refused(body(tools=[function(parameters={}, strict=True)], tool_choice=choice))


@pytest.mark.parametrize("strict", [False, None])
def test_schemas_that_are_not_strict_are_not_checked(strict: bool | None) -> None:
    check_chat(body(tools=[function(parameters={}, strict=strict)]))
    check_chat(body(tools=[function(parameters=None, strict=True)]))


def test_a_strict_response_format_is_checked_too() -> None:
    def formatted(schema: Any, **more: Any) -> bytes:
        declared = {"name": "answer", "schema": schema, **more}
        return body(response_format={"type": "json_schema", "json_schema": declared})

    check_chat(formatted(WEATHER, strict=True))
    check_chat(formatted({}))
    error = refused(formatted({}, strict=True))
    assert error.param == "response_format.json_schema.schema"
    assert "response_format 'answer'" in error.message


def test_the_last_of_two_equal_keys_counts() -> None:
    data = b'{"model": "a", "model": "b", "messages": [{"role": "user", "content": "x"}]}'
    assert check_chat(data).model == "b"


def test_one_refusal_is_json_data() -> None:
    error = refused(body(n=0))
    assert json.loads(json.dumps([error.message, error.param, error.code]))
