"""What the chat template is given, and that equal requests give equal prompts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.openai.bodies import USER, WEATHER, body, call, function
from toolrail.chat_template import ChatTemplate
from toolrail.errors import CallerError
from toolrail.families.family import PromptPolicy
from toolrail.openai.canonical import canonical_schema, template_tool
from toolrail.openai.chat import check_chat
from toolrail.openai.habits import Habits, habits
from toolrail.openai.prompt import prompt_tools, render_prompt, template_messages
from toolrail.tools import Tool

SHOW = ChatTemplate("{{ messages | tojson }}|{{ tools | tojson }}|{{ add_generation_prompt }}")
CHATML = ChatTemplate(
    """
{%- for tool in tools or [] %}{{ tool | tojson }}
{% endfor -%}
{%- for m in messages %}<{{ m.role }}>{{ m.content }}
{%- for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]
{%- endfor %}</>
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""
)
HISTORY = [
    USER,
    {"role": "assistant", "tool_calls": [call("a"), call("b", "other", '{"z": 1, "a": [2.50]}')]},
    {"role": "tool", "tool_call_id": "b", "content": "two"},
    {"role": "tool", "tool_call_id": "a", "content": "one"},
    {"role": "assistant", "reasoning_content": "hm", "tool_calls": [call("a")]},
    {"role": "tool", "tool_call_id": "a", "content": "three"},
]


def shown(
    habits: Habits | None = None, policy: PromptPolicy | None = None, **fields: Any
) -> list[dict[str, Any]]:
    request = check_chat(body(**fields))
    return template_messages(request.messages, habits or Habits(), policy or PromptPolicy())


def rendered(template: ChatTemplate = CHATML, *, exclude: bool = True, **fields: Any) -> str:
    return render_prompt(
        check_chat(body(**fields)),
        template,
        Habits(),
        PromptPolicy(),
        exclude_tools_when_none=exclude,
    )


def test_messages_as_templates_read_them() -> None:
    assert shown(messages=HISTORY)[1:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": {"city": "Paris"}},
                },
                {
                    "id": "b",
                    "type": "function",
                    "function": {"name": "other", "arguments": {"z": 1, "a": [2.5]}},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "b", "name": "other", "content": "two"},
        {"role": "tool", "tool_call_id": "a", "name": "get_weather", "content": "one"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "reasoning": "hm",
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": {"city": "Paris"}},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "a", "name": "get_weather", "content": "three"},
    ]


def test_arguments_as_text_are_the_text_that_was_given() -> None:
    found = shown(Habits(arguments="text", no_text=None), messages=HISTORY)
    assert found[1]["tool_calls"][1]["function"]["arguments"] == '{"z": 1, "a": [2.50]}'
    assert found[1]["content"] is None


def test_a_developer_is_a_system_where_the_template_knows_no_other() -> None:
    messages = [{"role": "developer", "content": "x"}, USER]
    assert shown(messages=messages)[0] == {"role": "system", "content": "x"}
    assert shown(Habits(developer=True), messages=messages)[0]["role"] == "developer"


def ids(policy: PromptPolicy) -> list[str]:
    found = shown(policy=policy, messages=HISTORY)
    issued = [c["id"] for m in found for c in m.get("tool_calls", ())]
    answered = [m["tool_call_id"] for m in found if m["role"] == "tool"]
    assert answered == [issued[1], issued[0], issued[2]]
    return issued


def test_ids_of_calls_are_made_anew() -> None:
    assert ids(PromptPolicy()) == ["a", "b", "a"]
    assert ids(PromptPolicy(call_id="functions_index")) == [
        "functions.get_weather:0",
        "functions.other:1",
        "functions.get_weather:2",
    ]
    short = ids(PromptPolicy(call_id="nine_alphanumeric"))
    assert all(len(i) == 9 and i.isascii() and i.isalnum() for i in short)
    assert short[0] == short[2] != short[1]


def test_an_id_of_nine_letters_stays() -> None:
    turn = {"role": "assistant", "tool_calls": [call("Ab3456789")]}
    policy = PromptPolicy(call_id="nine_alphanumeric")
    assert shown(policy=policy, messages=[USER, turn])[1]["tool_calls"][0]["id"] == "Ab3456789"


def test_the_longer_conversation_begins_with_the_shorter_ones_prompt() -> None:
    tools = [function()]
    whole = rendered(tools=tools, messages=HISTORY)
    for length in range(1, len(HISTORY)):
        begun = rendered(tools=tools, messages=HISTORY[:length], add_generation_prompt=False)
        assert whole.startswith(begun)


def test_tools_in_canonical_spelling() -> None:
    clients = [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "d",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "b": {"type": "string", "description": "B", "enum": ["y", "x"]},
                        "a": {"type": "array", "items": {"type": "integer", "minimum": 1}},
                    },
                    "required": ["b", "a"],
                },
            },
        },
        {
            "function": {
                "strict": False,
                "parameters": {
                    "required": ["b", "a"],
                    "properties": {
                        "b": {"enum": ["y", "x"], "description": "B", "type": "string"},
                        "a": {"items": {"minimum": 1, "type": "integer"}, "type": "array"},
                    },
                    "type": "object",
                },
                "description": "d",
                "name": "f",
            },
            "type": "function",
        },
    ]
    first, second = (rendered(tools=[tool]) for tool in clients)
    assert first == second
    assert first.startswith(json.dumps(clients[0]))


def test_the_order_inside_properties_and_in_data_is_the_clients() -> None:
    schema = {
        "properties": {"required": {"const": {"z": 1, "a": 2}}, "a": {}},
        "default": {"z": 1, "a": 2},
        "type": "object",
        "$defs": {"z": {"type": "string"}, "a": True},
        "x-own": {"z": 1, "a": 2},
        "anyOf": [{"required": ["a"], "type": "object"}],
    }
    assert json.dumps(canonical_schema(schema)) == json.dumps(
        {
            "type": "object",
            "properties": {"required": {"const": {"z": 1, "a": 2}}, "a": {}},
            "anyOf": [{"type": "object", "required": ["a"]}],
            "x-own": {"z": 1, "a": 2},
            "default": {"z": 1, "a": 2},
            "$defs": {"z": {"type": "string"}, "a": True},
        }
    )


def test_a_tool_without_parameters_is_shown_with_none() -> None:
    assert template_tool(Tool("f"))["function"] == {
        "name": "f",
        "parameters": {"type": "object", "properties": {}},
    }


@pytest.mark.parametrize(
    ("choice", "exclude", "there"),
    [("none", True, False), ("none", False, True), ("auto", True, True), ("required", True, True)],
)
def test_tools_leave_the_prompt_under_none_if_so_set(
    choice: str, exclude: bool, there: bool
) -> None:
    request = check_chat(body(tools=[function()], tool_choice=choice))
    assert bool(prompt_tools(request, exclude_when_none=exclude)) is there
    prompt = rendered(exclude=exclude, tools=[function()], tool_choice=choice)
    assert ("get_weather" in prompt) is there


def test_with_tools_kept_the_prompt_does_not_depend_on_the_choice() -> None:
    choices = ["auto", "none", "required", {"type": "function", "function": {"name": "f"}}]
    tools = [function("f"), function("g")]
    prompts = {rendered(exclude=False, tools=tools, tool_choice=choice) for choice in choices}
    assert len(prompts) == 1


def test_variables() -> None:
    template = ChatTemplate("{{ reasoning_effort }} {{ enable_thinking }} {{ thinking }} {{ x }}")
    assert rendered(template) == "   "
    assert rendered(template, reasoning_effort="low") == "low   "
    assert rendered(template, reasoning_effort="none") == "none False False "
    kwargs = {"enable_thinking": True, "x": 1}
    assert rendered(template, reasoning_effort="none", chat_template_kwargs=kwargs) == (
        "none True False 1"
    )


def test_a_named_choice_sets_what_the_family_says() -> None:
    template = ChatTemplate("{{ thinking }}")
    policy = PromptPolicy(named_choice=(("thinking", False),))
    named = {"type": "function", "function": {"name": "get_weather"}}

    def prompt(**fields: Any) -> str:
        request = check_chat(body(chat_template_kwargs={"thinking": True}, **fields))
        return render_prompt(request, template, Habits(), policy)

    assert prompt(tools=[function()]) == "True"
    assert prompt(tools=[function()], tool_choice=named) == "False"


def test_continuing_the_last_message() -> None:
    begun = [USER, {"role": "assistant", "content": " It is "}]
    prompt = rendered(messages=begun, continue_final_message=True)
    assert prompt.endswith("<assistant> It is")
    hiding = ChatTemplate("{{ messages[0].content }}")
    with pytest.raises(CallerError) as info:
        rendered(hiding, messages=begun, continue_final_message=True)
    assert info.value.param == "continue_final_message"


OBJECT_ONLY = "{{ c.function.arguments.items() | list }}"
TEXT_ONLY = "{{ '{' + c.function.arguments + '}' }}"


@pytest.mark.parametrize(
    ("arguments", "content", "found"),
    [
        (OBJECT_ONLY, "{{ m.content }}", Habits("object", "")),
        (TEXT_ONLY, "{{ m.content }}", Habits("text", "")),
        ("{{ c.function.arguments | tojson }}", "{{ m.content }}", Habits("object", "")),
        (
            OBJECT_ONLY,
            "{% if m.content is none %}{% else %}{{ raise_exception('no') }}{% endif %}",
            Habits("object", None),
        ),
        (
            TEXT_ONLY,
            "{% if m.content is none %}{% else %}{{ raise_exception('no') }}{% endif %}",
            Habits("text", None),
        ),
        ("", "{{ m.content }}", Habits("object", "")),
    ],
)
def test_habits_are_found_out(arguments: str, content: str, found: Habits) -> None:
    template = ChatTemplate(
        "{% for m in messages %}{% if m.tool_calls %}"
        f"{content}{{% for c in m.tool_calls %}}{arguments}{{% endfor %}}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    assert habits(template, PromptPolicy()) == found


def test_the_familys_habit_is_tried_first() -> None:
    template = ChatTemplate(
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
        "{{ c.function.arguments | tojson }}{% endif %}{% endfor %}{% endfor %}"
    )
    assert habits(template, PromptPolicy(arguments="text")).arguments == "text"
    assert habits(template, PromptPolicy(arguments="object")).arguments == "object"
    assert not habits(template, PromptPolicy()).developer
    assert habits(ChatTemplate("{# developer #}"), PromptPolicy()).developer


def test_nothing_but_the_request_reaches_the_template() -> None:
    messages, tools, add = rendered(SHOW, tools=[function(parameters=WEATHER)]).split("|")
    assert json.loads(messages) == [USER]
    assert json.loads(tools) == [function(parameters=WEATHER)]
    assert add == "True"
