"""beam's own rows of the specification: its grammar of turns, what it refuses, its fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.openai.bodies import body, function
from toolrail.chat_template import ChatTemplate
from toolrail.errors import CallerError
from toolrail.events import Call, Reasoning, Text
from toolrail.families import dialect
from toolrail.families.family import PromptPolicy
from toolrail.grammar import GrammarError, accepts, check_tag
from toolrail.openai.chat import check_chat
from toolrail.openai.constraint import Constraint, Setting, settle
from toolrail.openai.habits import Habits
from toolrail.openai.policy import Deployment
from toolrail.openai.prompt import render_prompt
from toolrail.settings import PreprocessorSettings, load
from toolrail.structural_tag import TagOptions
from toolrail.tools import StartsIn

BEAM = dialect("beam", "beam")
REFUSED = (
    "Beam cannot enforce the requested tool constraints with this schema and prompt configuration"
)
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PATTERN = {**CITY, "properties": {"city": {"type": "string", "pattern": "^[A-Z]+$"}}}
LOOK_BEHIND = {**CITY, "properties": {"city": {"type": "array", "items": {"pattern": "(?<=a)b"}}}}
NAMED = {"type": "function", "function": {"name": "f"}}
TOOLS = [function("f", CITY), function("g", CITY)]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
JSON = {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}}
F = Call("f", '{"city": "Paris"}')
HM, T, J = Reasoning("hm"), Text("Hello."), Text('{"a": 1}')


def settled(
    *,
    starts_in: StartsIn = "none",
    options: TagOptions | None = None,
    off: bool = False,
    tags: bool = True,
    **fields: Any,
) -> Constraint:
    deployment = Deployment.of(
        BEAM.family,
        options=(options or TagOptions()) if tags else None,
        exclude_tools_when_none=True,
        turn_grammar=not off,
    )
    settling = settle(
        check_chat(body(**fields)), Setting(deployment, BEAM, "beam", "beam", starts_in)
    )
    try:
        tag = next(settling)
        while True:
            verdict: CallerError | None = None
            try:
                check_tag(tag)
            except GrammarError as error:
                verdict = CallerError(str(error), code="invalid_grammar")
            tag = settling.send(verdict)
    except StopIteration as found:
        return found.value


def takes(constraint: Constraint, *items: Any) -> bool:
    tag = constraint.guidance.structural_tag
    assert tag is not None
    return accepts(tag, BEAM.render(items))


@pytest.mark.parametrize("tags", [True, False])
@pytest.mark.parametrize(
    ("fields", "answer", "call"),
    [
        ({}, True, False),
        ({"tools": TOOLS}, True, True),
        ({"tools": TOOLS, "tool_choice": "none"}, True, False),
        ({"tools": TOOLS, "tool_choice": "required"}, False, True),
        ({"tools": TOOLS, "tool_choice": NAMED}, False, True),
    ],
)
def test_every_turn_is_held(tags: bool, fields: dict[str, Any], answer: bool, call: bool) -> None:
    held = settled(tags=tags, **fields)
    assert held.report.held_by == "structural_tag"
    assert takes(held, HM, T) is answer
    assert takes(held, HM, F) is call
    assert not takes(held, T)
    assert not takes(held, F)


def test_parallel_tool_calls_false_is_one_call() -> None:
    assert takes(settled(tools=TOOLS), HM, F, F)
    assert not takes(settled(tools=TOOLS, parallel_tool_calls=False), HM, F, F)


def test_a_response_format_is_held_inside_the_answer() -> None:
    for fields in ({}, {"tools": TOOLS}):
        held = settled(**fields, **JSON)
        assert takes(held, HM, J)
        assert not takes(held, HM, T)
        assert not takes(held, J)
    forced = settled(tools=TOOLS, tool_choice="required", **JSON)
    assert takes(forced, HM, F)
    assert not takes(forced, HM, J)


def test_switched_off_it_holds_only_forced_calls() -> None:
    for fields in ({}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "auto"}):
        assert settled(off=True, **fields).report.held_by == "nothing"
    for choice in ("required", NAMED):
        held = settled(off=True, tools=TOOLS, tool_choice=choice)
        assert takes(held, HM, F)
        assert not takes(held, HM, T)
    bare = settled(off=True, **JSON).guidance.structural_tag
    assert bare is not None
    assert accepts(bare, '{"a": 1}')
    assert not accepts(bare, BEAM.render([HM, J]))


@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("off", [False, True])
def test_no_call_can_be_forced_into_a_begun_answer(choice: Any, off: bool) -> None:
    with pytest.raises(CallerError) as info:
        settled(off=off, tools=TOOLS, tool_choice=choice, starts_in="response")
    assert (info.value.status, info.value.message) == (400, REFUSED)
    assert settled(tools=TOOLS, starts_in="response").report.held_by == "structural_tag"


@pytest.mark.parametrize("schema", [PATTERN, LOOK_BEHIND])
@pytest.mark.parametrize(
    ("choice", "refused"), [("auto", True), ("required", True), (NAMED, False), ("none", False)]
)
def test_an_applicable_strict_schema_must_be_held(schema: Any, choice: Any, refused: bool) -> None:
    tools = [function("f", CITY), function("g", schema, strict=True)]
    if refused:
        with pytest.raises(CallerError) as info:
            settled(tools=tools, tool_choice=choice)
        assert (info.value.status, info.value.message) == (400, REFUSED)
        assert info.value.param == "tools[1].function.parameters"
    else:
        settled(tools=tools, tool_choice=choice)
    settled(tools=[function("f", CITY), function("g", schema)], tool_choice=choice)


def test_what_a_strict_schema_may_say() -> None:
    city = {"type": "string", "minLength": 2, "maxLength": 9}
    tools = [function("f", {**CITY, "properties": {"city": city}}, strict=True)]
    held = settled(tools=tools, tool_choice="required")
    assert held.report.tools[0].status == "enforced"
    named_pattern = {**CITY, "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]}
    settled(tools=[function("f", named_pattern, strict=True)])


def test_a_pattern_is_held_where_nothing_is_strict() -> None:
    held = settled(tools=[function("f", PATTERN)], tool_choice="required")
    assert held.report.tools[0].status == "enforced"


@pytest.mark.parametrize("field", ["guided_json", "guided_regex"])
def test_a_guided_field_beside_one_call_at_most(field: str) -> None:
    value: Any = {"type": "object"} if field == "guided_json" else "[a-z]+"
    for fields in ({field: value}, {"nvext": {field: value}}):
        with pytest.raises(CallerError) as info:
            settled(tools=TOOLS, parallel_tool_calls=False, **fields)
        assert (info.value.status, info.value.message) == (400, REFUSED)
        assert settled(tools=TOOLS, **fields).report.held_by == "guided_field"
        assert settled(parallel_tool_calls=False, **fields).report.held_by == "guided_field"
        banned = settled(tools=TOOLS, tool_choice="none", parallel_tool_calls=False, **fields)
        assert banned.report.held_by == "guided_field"


@pytest.mark.parametrize("variable", ["DYN_BEAM_TURN_GRAMMAR", "TOOLRAIL_TURN_GRAMMAR"])
def test_the_switch_is_a_setting_of_the_preprocessor(variable: str) -> None:
    assert load(PreprocessorSettings, (), {}).turn_grammar
    assert not load(PreprocessorSettings, (), {variable: "0"}).turn_grammar
    assert load(PreprocessorSettings, (), {variable: "1"}).turn_grammar


# --- request fields ---

SHOW = ChatTemplate(
    "{{ [allow_missing_thinking, preserve_thinking, builtin_tools | default('-')] | tojson }}"
)


def prompt(policy: PromptPolicy = BEAM.prompt, **fields: Any) -> Any:
    return json.loads(render_prompt(check_chat(body(**fields)), SHOW, Habits(), policy))


def test_history_without_reasoning_is_allowed_unless_the_request_says_otherwise() -> None:
    assert prompt()[0] is True
    assert prompt(allow_missing_thinking=False)[0] is False
    assert prompt(chat_template_kwargs={"allow_missing_thinking": False})[0] is False


@pytest.mark.parametrize("value", [True, False])
def test_thinking_is_always_preserved(value: bool) -> None:
    assert prompt()[1] is True
    assert prompt(preserve_thinking=value)[1] is True
    assert prompt(chat_template_kwargs={"preserve_thinking": value})[1] is True


def test_builtin_tools_are_shown_as_the_offered_tools_of_those_names() -> None:
    kwargs = {"chat_template_kwargs": {"builtin_tools": ["g"]}}
    (shown,) = prompt(tools=TOOLS, **kwargs)[2]
    assert shown == {"type": "function", "function": {"name": "g", "parameters": CITY}}
    assert prompt(tools=TOOLS)[2] == "-"
    assert prompt(tools=TOOLS, tool_choice="none", **kwargs)[2] == "-"


@pytest.mark.parametrize(
    ("names", "param"),
    [
        (["h"], "chat_template_kwargs.builtin_tools[0]"),
        (["f", 7], "chat_template_kwargs.builtin_tools[1]"),
        ("f", "chat_template_kwargs.builtin_tools"),
    ],
)
def test_builtin_tools_name_offered_tools(names: Any, param: str) -> None:
    with pytest.raises(CallerError) as info:
        prompt(tools=TOOLS, chat_template_kwargs={"builtin_tools": names})
    assert info.value.param == param


@pytest.mark.parametrize("field", ["preserve_thinking", "allow_missing_thinking"])
def test_other_models_know_no_such_field(field: str) -> None:
    check_chat(body(**{field: True}))  # before the model is looked up, nothing is wrong with it
    with pytest.raises(CallerError) as info:
        prompt(PromptPolicy(), **{field: True})
    assert (info.value.param, info.value.code) == (field, "unknown_parameter")
    with pytest.raises(CallerError):
        check_chat(body(**{field: "yes"}))
