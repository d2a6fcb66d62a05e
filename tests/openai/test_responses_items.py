"""Items of `input`: what messages they become, and which of them are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolrail.errors import CallerError
from toolrail.openai.conversation import (
    AssistantMessage,
    Instruction,
    Message,
    PastCall,
    ToolResult,
    UserMessage,
    custom_call,
)
from toolrail.openai.responses import check_responses
from toolrail.openai.responses.ids import (
    input_item_id,
    is_response_id,
    item_place,
    output_item_id,
    response_id,
)
from toolrail.openai.responses.kept import kept_items, references
from toolrail.openai.responses.sealed import seal, unseal

HI = {"role": "user", "content": "hi"}
RID = "0123456789abcdef" * 2


def said(text: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
        **more,
    }


def call(call_id: str = "c1", arguments: Any = '{"a": 1}', **more: Any) -> dict[str, Any]:
    base = {"type": "function_call", "call_id": call_id, "name": "f", "arguments": arguments}
    return base | more


def output(call_id: str = "c1", value: Any = "7", kind: str = "function_call") -> dict[str, Any]:
    return {"type": f"{kind}_output", "call_id": call_id, "output": value}


def reasoned(**fields: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], **fields}


def messages(*items: Any, **fields: Any) -> tuple[Message, ...]:
    request = {"model": "m", "input": list(items), **fields}
    return check_responses(json.dumps(request).encode()).messages


PAST = PastCall("c1", "f", '{"a": 1}', {"a": 1})
THOUGHT = [{"type": "reasoning_text", "text": "why"}]
CONVERSATIONS: list[tuple[list[Any], list[Message]]] = [
    ([HI], [UserMessage("hi")]),
    (
        [{"role": "developer", "content": "d"}, {"role": "system", "content": "s"}, HI],
        [Instruction("developer", "d"), Instruction("system", "s"), UserMessage("hi")],
    ),
    (
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"},
                                                          {"type": "input_text", "text": "b"}]}],
        [UserMessage("a\nb")],
    ),
    ([HI, said("yes")], [UserMessage("hi"), AssistantMessage("yes")]),
    ([HI, said("a"), said("b")], [UserMessage("hi"), AssistantMessage("a"), AssistantMessage("b")]),
    (
        [HI, {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
        [UserMessage("hi"), AssistantMessage("no")],
    ),
    (
        [HI, reasoned(content=THOUGHT), said("so"), call(), output()],
        [
            UserMessage("hi"),
            AssistantMessage("so", "why", (PAST,)),
            ToolResult("c1", "f", "7"),
        ],
    ),
    (
        [HI, call(), said("after"), call("c2", None), output(), output("c2", "")],
        [
            UserMessage("hi"),
            AssistantMessage("after", None, (PAST, PastCall("c2", "f", "{}", {}))),
            ToolResult("c1", "f", "7"),
            ToolResult("c2", "f", ""),
        ],
    ),
    (
        [HI, call(), output(value=[{"type": "input_text", "text": "x"}, {"type": "output_text",
                                                                        "text": "y"}])],
        [UserMessage("hi"), AssistantMessage(None, None, (PAST,)), ToolResult("c1", "f", "x\ny")],
    ),
    (
        [HI, call(namespace="crm"), output()],
        [
            UserMessage("hi"),
            AssistantMessage(None, None, (PastCall("c1", "crm__f", '{"a": 1}', {"a": 1}),)),
            ToolResult("c1", "crm__f", "7"),
        ],
    ),
    (
        [
            HI,
            {"type": "custom_tool_call", "call_id": "c1", "name": "p", "input": 'a"b'},
            output(kind="custom_tool_call"),
        ],
        [
            UserMessage("hi"),
            AssistantMessage(None, None, (custom_call("c1", "p", 'a"b'),)),
            ToolResult("c1", "p", "7"),
        ],
    ),
    ([HI, call(status="incomplete", arguments='{"a'), HI], [UserMessage("hi"), UserMessage("hi")]),
    ([HI, reasoned(encrypted_content=seal("why")), said("so")],
     [UserMessage("hi"), AssistantMessage("so", "why")]),
    ([HI, reasoned(encrypted_content="gAAAA", summary=[{"type": "summary_text", "text": "s"}])],
     [UserMessage("hi"), AssistantMessage("", "s")]),
    ([HI, reasoned(encrypted_content="gAAAA"), said("so")],
     [UserMessage("hi"), AssistantMessage("so")]),
    ([{"type": "agent_message", "author": "a", "content": [{"type": "input_text", "text": "m"}]}],
     [UserMessage("m")]),
    ([{"role": "user", "content": "", "unknown": 1}], [UserMessage("")]),
]  # fmt: skip


@pytest.mark.parametrize(("items", "expected"), CONVERSATIONS)
def test_items_become_messages(items: list[Any], expected: list[Message]) -> None:
    assert list(messages(*items)) == expected


def test_instructions_are_one_message_with_those_that_follow_at_once() -> None:
    system = {"role": "system", "content": "s"}
    found = messages(system, HI, system, instructions="first")
    assert found == (
        Instruction("system", "first\n\ns"),
        UserMessage("hi"),
        Instruction("system", "s"),
    )


def test_tools_of_an_item_are_offered() -> None:
    more = {"type": "function", "name": "g", "parameters": None}
    item = {"type": "additional_tools", "role": "developer", "tools": [
        more, {"type": "namespace", "name": "none", "description": "d", "tools": []},
    ]}  # fmt: skip
    request = {"model": "m", "input": [item, HI], "tool_choice": "required"}
    found = check_responses(json.dumps(request).encode())
    assert [tool.name for tool in found.choice.callable] == ["g"]
    assert found.origin.schemas == {"g": "input[0].tools[0].parameters"}
    assert found.messages == (UserMessage("hi"),)


REFUSED: list[tuple[Any, str, str]] = [
    ({"role": "tool", "content": "x"}, "input[1].role", "invalid_value"),
    ({"role": "user"}, "input[1].content", "missing_required_parameter"),
    ({"type": "web_search_call", "id": "w"}, "input[1].type", "unsupported_value"),
    ({"role": "user", "content": [{"type": "input_image", "image_url": "u"}]},
     "input[1].content[0].type", "unsupported_value"),
    ({"role": "user", "content": [{"type": "poem"}]}, "input[1].content[0].type", "invalid_value"),
    ({"role": "user", "content": 5}, "input[1].content", "invalid_type"),
    (call(arguments="{"), "input[1].arguments", "invalid_json"),
    (call(arguments="[]"), "input[1].arguments", "invalid_type"),
    ({"type": "function_call", "name": "f"}, "input[1].call_id", "missing_required_parameter"),
    (output("nobody"), "input[1].call_id", "invalid_value"),
    ({"type": "function_call_output", "output": ""}, "input[1].call_id",
     "missing_required_parameter"),
    ({"type": "agent_message", "content": [{"type": "encrypted_content"}]},
     "input[1].content[0].type", "unsupported_value"),
    ("text", "input[1]", "invalid_type"),
]  # fmt: skip


@pytest.mark.parametrize(("item", "param", "code"), REFUSED)
def test_items_that_are_refused(item: Any, param: str, code: str) -> None:
    with pytest.raises(CallerError) as info:
        messages(HI, item)
    assert (info.value.status, info.value.param, info.value.code) == (400, param, code)


def test_two_calls_of_one_turn_differ_in_their_ids() -> None:
    with pytest.raises(CallerError) as info:
        messages(HI, call(), call())
    assert info.value.param == "input[2].call_id"
    again = messages(HI, call(), output(), call(), output())
    assert [type(message) for message in again[1:]] == [AssistantMessage, ToolResult] * 2


def test_an_output_may_answer_a_call_of_the_previous_response() -> None:
    (found,) = messages(output("elsewhere"), previous_response_id="resp_1")
    assert found == ToolResult("elsewhere", "", "7")


def test_reasoning_comes_back_as_it_was_sealed() -> None:
    text = "Warum?\u2028\n" * 1000
    assert unseal(seal(text)) == text
    assert len(seal(text)) < len(text)
    with pytest.raises(OverflowError):
        unseal(seal(text), len(text))  # bytes are more than characters
    for foreign in ("", "gAAAAABn", "tr1.", "tr1.!!", seal("x")[:-3], "tr1.e\u00e9"):
        assert unseal(foreign) is None


def test_what_is_sealed_does_not_grow_without_bounds() -> None:
    items = [reasoned(encrypted_content=seal("a" * (3 << 20))) for _ in range(3)]
    with pytest.raises(CallerError) as info:
        messages(HI, *items)
    assert info.value.param == "input[3].encrypted_content"


def test_a_turn_has_so_many_calls() -> None:
    with pytest.raises(CallerError) as info:
        messages(HI, *(call(str(number)) for number in range(1025)))
    assert (info.value.param, info.value.code) == ("input[1025]", "array_above_max_length")


def test_an_item_says_where_it_stands() -> None:
    response = response_id(RID)
    assert is_response_id(response)
    assert not is_response_id(f"{response}0")
    assert item_place(output_item_id("fc", RID, 300)) == (response, True, 300)
    assert item_place(input_item_id("msg", response, 1)) == (response, False, 1)
    for foreign in ("msg_1", f"msg_{RID}", f"msg_{RID}x0000", ""):
        assert item_place(foreign) is None


def test_input_is_kept_whole_and_named() -> None:
    items = [
        HI,
        said("yes"),
        {"role": "assistant", "content": "plain"},
        call(id="fc_1"),
        output(),
        {"id": "msg_x"},
        {"type": "agent_message", "content": "m"},
    ]
    raw = json.dumps({"model": "m", "input": items}).encode()
    assert references(raw) == ("msg_x",)
    named = {"msg_x": json.dumps({**HI, "type": "message", "id": "msg_x"}).encode()}
    kept = json.loads(kept_items(raw, response_id(RID), named))  # pyright: ignore[reportArgumentType]
    assert [item["type"] for item in kept] == [
        "message", "message", "message", "function_call", "function_call_output", "message",
        "message",
    ]  # fmt: skip
    assert kept[0] == {
        "type": "message",
        "role": "user",
        "status": "completed",
        "id": f"msg_{RID}i0000",
        "content": [{"type": "input_text", "text": "hi"}],
    }
    assert kept[2]["content"] == [
        {"type": "output_text", "text": "plain", "annotations": [], "logprobs": []}
    ]
    assert [item["id"] for item in kept[3:]] == [
        "fc_1", f"fco_{RID}i0004", "msg_x", f"msg_{RID}i0006",
    ]  # fmt: skip
    text = json.loads(kept_items(b'{"input": "hi"}', response_id(RID), {}))
    assert text == [kept[0]]
