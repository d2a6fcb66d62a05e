from __future__ import annotations

import json
from typing import Any

import pytest

from tests.anthropic.bodies import (
    SCHEMA,
    USER,
    assistant,
    body,
    result,
    text,
    tool,
    use,
    user,
)
from toolrail.anthropic.request import check_count, check_messages
from toolrail.errors import CallerError
from toolrail.openai.answers import FreeAnswer, JsonAnswer
from toolrail.openai.conversation import (
    AssistantMessage,
    Instruction,
    Message,
    PastCall,
    ToolResult,
    UserMessage,
)
from toolrail.tools import Tool

CALL = PastCall("toolu_1", "get_weather", '{"city": "Paris"}', {"city": "Paris"})
ASKED = UserMessage("What is the weather in Paris?")
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def refused(**fields: Any) -> CallerError:
    with pytest.raises(CallerError) as raised:
        check_messages(body(**fields))
    assert raised.value.status == 400
    return raised.value


def test_the_smallest_request() -> None:
    request = check_messages(body())
    assert (request.model, request.messages, request.wishes.max_tokens) == ("m", (ASKED,), 64)
    assert (request.choice.mode, request.choice.stated) == ("none", False)
    assert isinstance(request.answer, FreeAnswer)
    assert request.template_kwargs == {}
    assert (request.add_generation_prompt, request.continue_final_message) == (True, False)


def test_max_tokens_is_needed_unless_the_prompt_is_only_counted() -> None:
    error = refused(max_tokens=...)
    assert (error.param, error.code) == ("max_tokens", "missing_required_parameter")
    assert check_count(body(max_tokens=...)).messages == (ASKED,)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([user(text("a"), text("b"))], (UserMessage("a\nb"),)),
        ([USER, user(text("Or London?"))], (UserMessage(f"{ASKED.content}\nOr London?"),)),
        ([user(text("a", cache_control={"type": "ephemeral"}, citations=None))],
         (UserMessage("a"),)),
        ([USER, assistant(text("It"), text("rains."))], (ASKED, AssistantMessage("It\nrains."))),
        ([USER, assistant({"type": "thinking", "thinking": "Hm.", "signature": "s"}, text("Rain."),
                          use(city="Paris")), user(result())],
         (ASKED, AssistantMessage("Rain.", "Hm.", (CALL,)),
          ToolResult("toolu_1", "get_weather", "17 degrees"))),
        ([USER, assistant({"type": "redacted_thinking", "data": "x"}, use(city="Paris")),
          user(text("Thanks!"), result(content=[text("17"), text("degrees")]))],
         (ASKED, AssistantMessage(None, None, (CALL,)),
          ToolResult("toolu_1", "get_weather", "17\ndegrees"), UserMessage("Thanks!"))),
        ([USER, assistant(use(city="Paris")), user(text("Well?")), user(result())],
         (ASKED, AssistantMessage(None, None, (CALL,)),
          ToolResult("toolu_1", "get_weather", "17 degrees"), UserMessage("Well?"))),
        ([USER, assistant(text("I look.")), assistant(use(city="Paris")), user(result())],
         (ASKED, AssistantMessage("I look.", None, (CALL,)),
          ToolResult("toolu_1", "get_weather", "17 degrees"))),
        ([USER, assistant(use(city="Paris")), user(result(content=None, is_error=True))],
         (ASKED, AssistantMessage(None, None, (CALL,)),
          ToolResult("toolu_1", "get_weather", "Error"))),
        ([USER, assistant(use(city="Paris")), user(result(content=[]))],
         (ASKED, AssistantMessage(None, None, (CALL,)), ToolResult("toolu_1", "get_weather", ""))),
        ([user({"type": "document", "title": "T", "source":
                {"type": "text", "media_type": "text/plain", "data": "words"}})],
         (UserMessage("T\nwords"),)),
        ([USER, {"role": "system", "content": "Be brief."}, user(text("Go on."))],
         (ASKED, Instruction("system", "Be brief."), UserMessage("Go on."))),
    ],
)  # fmt: skip
def test_history_becomes_messages(history: list[Any], expected: tuple[Message, ...]) -> None:
    assert check_messages(body(messages=history)).messages == expected


def test_input_without_arguments_is_an_empty_object_and_other_text_is_kept_as_it_came() -> None:
    bare = {"type": "tool_use", "id": "t", "name": "f"}
    raw = body(messages=[USER, assistant(bare, use("u", "f", n=1.0)), user(result("t"))])
    _, said, _ = check_messages(raw.replace(b'{"n": 1.0}', b'{"n" :1.50}')).messages
    assert isinstance(said, AssistantMessage)
    assert [call.arguments for call in said.calls] == ["{}", '{"n" :1.50}']


@pytest.mark.parametrize("system", ["Be brief.", [text("Be brief.", cache_control={})]])
def test_the_system_prompt_comes_first(system: Any) -> None:
    entry = {"role": "system", "content": [text("And kind.")]}
    request = check_messages(body(system=system, messages=[entry, USER]))
    assert request.messages == (Instruction("system", "Be brief.\nAnd kind."), ASKED)


BILLING = "x-anthropic-billing-header: cc_version=2.1.3; cc_entrypoint=cli; cch={};"


@pytest.mark.parametrize(
    "system",
    [
        lambda n: BILLING.format(n) + "\nBe brief.",
        lambda n: [text(BILLING.format(n)), text("Be brief.", cache_control={})],
        lambda n: [text(BILLING.format(n) + "\n\nBe brief.")],
    ],
)
def test_a_billing_line_does_not_reach_the_prompt(system: Any) -> None:
    requests = [check_messages(body(system=system(n))) for n in ("aaaaa", "bbbbb")]
    assert requests[0].messages == requests[1].messages
    assert requests[0].messages == (Instruction("system", "Be brief."), ASKED)


def test_the_words_of_a_billing_line_elsewhere_stay() -> None:
    words = f"What is this?\n{BILLING}"
    assert check_messages(body(system=words)).messages[0] == Instruction("system", words)
    asked = check_messages(body(messages=[user(text(BILLING))])).messages
    assert asked == (UserMessage(BILLING),)


def test_a_last_message_of_the_assistant_is_gone_on_from() -> None:
    request = check_messages(body(messages=[USER, assistant(text("It is"))]))
    assert (request.add_generation_prompt, request.continue_final_message) == (False, True)
    for last in (assistant(text("  ")), assistant(use(city="Paris"))):
        assert refused(messages=[USER, last]).param == "messages"


@pytest.mark.parametrize(
    ("history", "param", "words"),
    [
        ([], "messages", "at least 1"),
        ([{"role": "developer", "content": "x"}], "messages[0].role", "'user', 'assistant'"),
        ([user(IMAGE)], "messages[0].content[0].type", "'image' are not supported"),
        ([USER, assistant(use()), user(result(content=[IMAGE]))],
         "messages[2].content[0].content[0].type", "'image' are not supported"),
        ([user({"type": "document", "source": {"type": "base64", "data": ""}})],
         "messages[0].content[0].source.type", "'base64'"),
        ([assistant({"type": "server_tool_use", "id": "x"})],
         "messages[0].content[0].type", "'server_tool_use'"),
        ([user({"text": "x"})], "messages[0].content[0].type", "Missing"),
        ([user({"type": "text", "text": 3})], "messages[0].content[0].text", "expected a string"),
        ([user(use())], "messages[0].content[0].type", "message of the user"),
        ([USER, assistant(result())], "messages[1].content[0].type", "of the assistant"),
        ([user(result())], "messages[0].content[0].tool_use_id", "No 'tool_use' before"),
        ([USER, assistant(use(), use())], "messages[1].content[1].id", "Two calls"),
        ([USER, assistant({"type": "tool_use", "id": "t", "name": "f", "input": "{}"})],
         "messages[1].content[0].input", "must be an object"),
        ([{"role": "system", "content": [use()]}, USER], "messages[0].content[0].type", "text"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_to_a_model_is_refused(
    history: list[Any], param: str, words: str
) -> None:
    error = refused(messages=history)
    assert error.param == param
    assert words in error.message


def test_ids_may_come_again_in_later_turns() -> None:
    turn = [assistant(use(city="Paris")), user(result())]
    request = check_messages(body(messages=[USER, *turn, *turn]))
    assert sum(isinstance(message, ToolResult) for message in request.messages) == 2


def test_tools_are_functions() -> None:
    hints = {"cache_control": {"type": "ephemeral"}, "defer_loading": True, "input_examples": []}
    tools = [tool(**hints), tool("b" * 128, type="custom", strict=True), tool("c", type=None)]
    request = check_messages(body(tools=tools))
    assert request.tools == (
        Tool("get_weather", SCHEMA, None, "Weather."),
        Tool("b" * 128, SCHEMA, True, "Weather."),
        Tool("c", SCHEMA, None, "Weather."),
    )
    assert (request.choice.mode, request.choice.stated) == ("auto", False)
    assert request.origin.schemas == {
        "get_weather": "tools[0].input_schema",
        "b" * 128: "tools[1].input_schema",
        "c": "tools[2].input_schema",
    }


def test_a_strict_tool_may_have_optional_properties() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    (made,) = check_messages(body(tools=[tool(input_schema=schema, strict=True)])).tools
    assert made.strict is True


@pytest.mark.parametrize(
    ("choice", "mode", "named", "parallel"),
    [
        ({"type": "auto"}, "auto", 2, True),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", 2, False),
        ({"type": "any"}, "required", 2, True),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", 2, False),
        ({"type": "tool", "name": "b"}, "named", 1, True),
        ({"type": "tool", "name": "b", "disable_parallel_tool_use": True}, "named", 1, False),
        ({"type": "none"}, "none", 0, True),
    ],
)
def test_the_choice(choice: Any, mode: str, named: int, parallel: bool) -> None:
    request = check_messages(body(tools=[tool("a"), tool("b")], tool_choice=choice))
    assert (request.choice.mode, len(request.choice.callable)) == (mode, named)
    assert request.choice.stated
    assert request.parallel_tool_calls is parallel


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}]},
         "tools[0].type", "'web_search_20250305' are not supported"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type", "custom one"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]},
         "tools[0].type", "input_schema"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema", "Missing"),
        ({"tools": [tool(input_schema=[])]}, "tools[0].input_schema", "must be an object"),
        ({"tools": [tool("a b")]}, "tools[0].name", "must match"),
        ({"tools": [tool(), tool()]}, "tools[1].name", "unique"),
        ({"tool_choice": {"type": "any"}}, "tool_choice", "no 'tools'"),
        ({"tools": [tool()], "tool_choice": {"type": "tool", "name": "x"}},
         "tool_choice.name", "no tool named 'x'"),
        ({"tools": [tool()], "tool_choice": {"type": "required"}},
         "tool_choice.type", "'auto', 'any'"),
        ({"tools": [tool()], "tool_choice": "auto"}, "tool_choice", "an object"),
        ({"max_tokens": 0}, "max_tokens", ">= 1"),
        ({"temperature": "hot"}, "temperature", "a number"),
        ({"stop_sequences": [""]}, "stop_sequences[0]", "at least 1"),
        ({"container": "c"}, "container", "no code runs"),
        ({"mcp_servers": [{"type": "url", "url": "http://x"}]}, "mcp_servers", "custom"),
        ({"thread": {"type": "create"}}, "thread", "no conversations are kept"),
        ({"compaction": {"type": "summarize"}}, "compaction", "not compacted"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type", "sometimes"),
        ({"output_config": {"effort": "extreme"}}, "output_config.effort", "extreme"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}},
          "output_format": {"type": "json_schema", "schema": {}}}, "output_format", "drop one"),
        ({"max_completion_tokens": 3}, "max_completion_tokens", "Unknown parameter"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages", "may not"),
    ],
)  # fmt: skip
def test_what_is_refused_names_its_field(fields: dict[str, Any], param: str, words: str) -> None:
    error = refused(**fields)
    assert error.param == param
    assert words in error.message


def test_hints_of_the_api_s_own_service_change_nothing() -> None:
    hints = {
        "metadata": {"user_id": "u"}, "cache_control": {"type": "ephemeral"}, "mcp_servers": [],
        "service_tier": "auto", "speed": "fast", "inference_geo": "eu", "container": None,
        "context_management": {"edits": [{"type": "clear_thinking_20251015"}]}, "betas": ["x"],
        "diagnostics": {}, "user_profile_id": "u", "workspace_id": "w",
    }  # fmt: skip
    assert check_messages(body(**hints)) == check_messages(body())


def test_sampling_and_stop_sequences() -> None:
    wishes = check_messages(
        body(temperature=0.5, top_p=0.9, top_k=5, stop_sequences=["END", "STOP", "END"])
    ).wishes
    assert (wishes.temperature, wishes.top_p, wishes.top_k) == (0.5, 0.9, 5)
    assert wishes.stop == ("END", "STOP")


@pytest.mark.parametrize(
    ("thinking", "switch"),
    [
        ({"type": "enabled", "budget_tokens": 2048}, True),
        ({"type": "adaptive"}, True),
        ({"type": "between_tools"}, True),
        ({"type": "disabled"}, False),
    ],
)
def test_thinking_is_the_template_s_switch(thinking: Any, switch: bool) -> None:
    request = check_messages(body(thinking=thinking, output_config={"effort": "high"}))
    assert request.template_kwargs == {"enable_thinking": switch, "thinking": switch}
    assert request.reasoning_effort == "high"
    said = check_messages(body(thinking=thinking, chat_template_kwargs={"thinking": "on"}))
    assert said.template_kwargs == {"enable_thinking": switch, "thinking": "on"}


@pytest.mark.parametrize("place", ["output_config", "output_format"])
def test_a_format_holds_the_answer(place: str) -> None:
    wanted = {"type": "json_schema", "schema": SCHEMA}
    fields = {"output_format": wanted}
    if place == "output_config":
        fields = {"output_config": {"format": wanted}}
    request = check_messages(body(**fields))
    assert request.answer == JsonAnswer(SCHEMA, "answer", strict=True)
    assert request.origin.answer.startswith(place)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", json.dumps({"model": "m"}).encode()])
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    with pytest.raises(CallerError):
        check_messages(raw)
