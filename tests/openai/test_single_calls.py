"""History for templates that show one call in a message (gpt-oss)."""

from __future__ import annotations

from typing import Any

from tests.openai.bodies import USER, body, call
from toolrail.chat_template import ChatTemplate
from toolrail.families import dialect
from toolrail.openai.chat import check_chat
from toolrail.openai.habits import Habits
from toolrail.openai.prompt import render_prompt, template_messages

HARMONY = dialect("harmony", "gpt_oss").prompt
CALLS = [call("a", "f", "{}"), call("b", "g", "{}"), call("c", "f", "{}")]


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def shown(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    request = check_chat(body(messages=[USER, *messages]))
    return template_messages(request.messages, Habits(), HARMONY)[1:]


def test_calls_alternate_with_their_results() -> None:
    results = [result("b", "two"), result("a", "one"), result("c", "three")]
    messages = shown({"role": "assistant", "content": "On it.", "tool_calls": CALLS}, *results)
    assert [m["content"] for m in messages] == ["On it.", "one", "", "two", "", "three"]
    assert [[c["id"] for c in m.get("tool_calls", ())] for m in messages] == [
        ["a"],
        [],
        ["b"],
        [],
        ["c"],
        [],
    ]


def test_a_result_that_is_missing_leaves_the_rest_in_place() -> None:
    first = {"role": "assistant", "tool_calls": CALLS[:1]}
    second = {"role": "assistant", "tool_calls": CALLS[1:]}
    messages = shown(first, second, result("c", "three"), result("a", "late"))
    assert [m["role"] for m in messages] == [
        "assistant",
        "assistant",
        "assistant",
        "tool",
        "tool",
    ]
    assert [m["content"] for m in messages] == ["", "", "", "three", "late"]


def test_reasoning_is_shown_as_thinking_and_takes_the_text_beside_it() -> None:
    turn = {"role": "assistant", "content": "On it.", "reasoning_content": "hm"}
    (answer,) = shown(turn)
    assert (answer["thinking"], answer["content"]) == ("hm", "On it.")
    assert "reasoning_content" not in answer
    (called,) = shown({**turn, "tool_calls": CALLS[:1]})
    assert (called["thinking"], called["content"]) == ("hm\nOn it.", "")


def test_other_families_show_messages_as_they_are() -> None:
    hermes = dialect("hermes", "qwen3").prompt
    template = ChatTemplate("{% for m in messages %}{{ m.tool_calls | length }}{% endfor %}")
    messages = [USER, {"role": "assistant", "tool_calls": CALLS}, result("a", "1")]
    request = check_chat(body(messages=messages))
    assert render_prompt(request, template, Habits(), hermes) == "030"


def test_text_beside_calls_is_a_message_of_its_own_where_it_would_be_lost() -> None:
    turn = {
        "role": "assistant",
        "content": "On it.",
        "reasoning_content": "hm",
        "tool_calls": CALLS[:2],
    }
    request = check_chat(body(messages=[USER, turn]))
    muse = dialect("muse_glimmer", "muse_glimmer").prompt
    text, calls = template_messages(request.messages, Habits(), muse)[1:]
    assert (text["content"], text["reasoning_content"]) == ("On it.", "hm")
    assert (text["recipient"], text["end_turn"]) == ("user", False)
    assert (calls["content"], len(calls["tool_calls"])) == ("", 2)
    assert "reasoning_content" not in calls
