"""Custom tools on the request side: declared, chosen, in history, and what holds them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.openai.bodies import USER, body, function
from toolrail import families
from toolrail.errors import CallerError
from toolrail.grammar import accepts
from toolrail.openai.canonical import template_tool
from toolrail.openai.chat import ChatRequest, check_chat
from toolrail.openai.constraint import Constraint, Setting, same_constraint, settle
from toolrail.openai.conversation import AssistantMessage, PastCall, ToolResult
from toolrail.openai.policy import Deployment
from toolrail.structural_tag import TagOptions
from toolrail.tools import INPUT_SCHEMA, InputGrammar

DIGITS = {"syntax": "regex", "definition": "[0-9]+"}


def custom(name: str = "run_python", **more: Any) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": name, **more}}


def chosen(name: str = "run_python") -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": name}}


def settled(
    request: ChatRequest, family: str = "hermes", *, fails: bool = False, **options: Any
) -> Constraint:
    dialect = families.dialect(family, None)
    deployment = Deployment.of(
        dialect.family, options=TagOptions(**options), exclude_tools_when_none=True
    )
    if fails:
        deployment = replace(deployment, argument_validation="fail")
    settling = settle(request, Setting(deployment, dialect, family))
    verdict = None
    try:
        while True:
            settling.send(verdict)
    except StopIteration as ended:
        return ended.value


@pytest.mark.parametrize("format_", [None, {"type": "text"}])
def test_a_custom_tool_is_a_function_with_one_string(format_: Any) -> None:
    request = check_chat(body(tools=[custom(description="Runs.", format=format_), function()]))
    tool, other = request.tools
    assert (tool.kind, tool.parameters, tool.description) == ("custom", INPUT_SCHEMA, "Runs.")
    assert tool.grammar is None
    assert tool.strict is None
    assert other.kind == "function"


@pytest.mark.parametrize(
    "format_", [{"type": "grammar", "grammar": DIGITS}, {"type": "grammar", **DIGITS}]
)
def test_a_grammar_is_read_in_both_published_shapes(format_: Any) -> None:
    (tool,) = check_chat(body(tools=[custom(format=format_)])).tools
    assert tool.grammar == InputGrammar("regex", "[0-9]+")
    assert tool.strict is True


def test_a_grammar_is_refused_before_generation_unless_the_deployment_holds_it() -> None:
    tools = [function(), custom(format={"type": "grammar", "grammar": DIGITS})]
    with pytest.raises(CallerError, match="custom_grammars") as caught:
        settled(check_chat(body(tools=tools)))
    assert caught.value.param == "tools[1].custom.format"
    assert caught.value.code == "unsupported_value"


def test_a_custom_tool_is_forced() -> None:
    request = check_chat(body(tools=[function(), custom()], tool_choice=chosen()))
    assert request.choice.mode == "named"
    assert [tool.name for tool in request.choice.callable] == ["run_python"]


def test_custom_tools_are_allowed_beside_functions() -> None:
    allowed = {"mode": "required", "tools": [chosen("b"), chosen("run_python")]}
    request = check_chat(
        body(
            tools=[function(), custom("b"), custom()],
            tool_choice={"type": "allowed_tools", "allowed_tools": allowed},
        )
    )
    assert request.choice.mode == "required"
    assert [tool.name for tool in request.choice.callable] == ["b", "run_python"]


@pytest.mark.parametrize(
    "choice", [chosen("get_weather"), {"type": "function", "function": {"name": "run_python"}}]
)
def test_a_choice_names_the_kind_as_well(choice: Any) -> None:
    with pytest.raises(CallerError) as caught:
        check_chat(body(tools=[function(), custom()], tool_choice=choice))
    assert caught.value.param == "tool_choice"


def test_past_calls_are_shown_as_the_model_wrote_them() -> None:
    messages = [
        USER,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "custom", "custom": {"name": "run_python", "input": 'a\n"é"'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ]
    _, answer, result = check_chat(body(messages=messages, tools=[custom()])).messages
    assert isinstance(answer, AssistantMessage)
    arguments = '{"input": "a\\n\\"é\\""}'
    assert answer.calls == (PastCall("c1", "run_python", arguments, {"input": 'a\n"é"'}),)
    assert result == ToolResult("c1", "run_python", "1")


def test_the_tag_holds_the_wrapper() -> None:
    constraint = settled(check_chat(body(tools=[custom()], tool_choice="required")))
    assert constraint.tag is not None
    call = '<tool_call>\n{"name": "run_python", "arguments": %s}\n</tool_call>'
    assert accepts(constraint.tag, call % json.dumps({"input": "x\ny"}))
    assert not accepts(constraint.tag, call % "{}")
    assert [tool.kind for tool in constraint.parse.tools] == ["custom"]


@pytest.mark.parametrize("scope", ["always", "auto"])
def test_the_input_of_a_custom_tool_is_never_checked(scope: Any) -> None:
    constraint = settled(check_chat(body(tools=[custom()])), scope=scope)
    assert constraint.checks.tools == ()
    (line,) = constraint.report.tools
    assert line.status == ("enforced" if scope == "always" else "dropped")


# --- grammars that the deployment holds ---

PATCH_GRAMMAR = 'start: "*** " NAME\nNAME: /[a-z]+/'
PATCH_TOOL = {"type": "grammar", "grammar": {"syntax": "lark", "definition": PATCH_GRAMMAR}}
CALL = '<tool_call>\n{"name": "run_python", "arguments": {"input": "%s"}}\n</tool_call>'


def holding(**fields: Any) -> Constraint:
    request = check_chat(body(tools=[custom(format=PATCH_TOOL)], **fields))
    return settled(request, custom_grammars=True)


@pytest.mark.parametrize("choice", ["auto", "required", chosen()])
def test_a_grammar_is_held_in_the_call(choice: Any) -> None:
    constraint = holding(tool_choice=choice)
    assert constraint.tag is not None
    assert accepts(constraint.tag, CALL % "*** a")
    assert not accepts(constraint.tag, CALL % "** a")
    (line,) = constraint.report.tools
    assert line.report.enforced == ("#/format/grammar",)
    assert constraint.checks.tools == ()


def test_under_fail_what_a_grammar_holds_is_checked_too() -> None:
    request = check_chat(body(tools=[custom(format=PATCH_TOOL), custom("b")]))
    constraint = settled(request, fails=True, custom_grammars=True)
    assert constraint.checks.tools == ("run_python",)
    held, free = constraint.parse.tools
    assert held.grammar == InputGrammar("lark", PATCH_GRAMMAR)
    assert free.grammar is None
    relaxed = settled(request, custom_grammars=True)
    assert [tool.grammar for tool in relaxed.parse.tools] == [None, None]


@pytest.mark.parametrize("options", [{"scope": "auto"}, {"schema": "strict"}])
def test_a_grammar_is_held_in_every_scope_and_mode(options: Any) -> None:
    request = check_chat(body(tools=[custom(format=PATCH_TOOL)]))
    constraint = settled(request, custom_grammars=True, **options)
    assert constraint.tag is not None
    assert not accepts(constraint.tag, CALL % "** a")


@pytest.mark.parametrize(
    ("syntax", "definition", "why"),
    [
        ("lark", "start: other", "line 1: the rule 'other' is not defined"),
        ("lark", r"start: /a\b/", "word boundary"),
        ("regex", "(", "missing )"),
        ("regex", "\x00", "no text of it can be written"),
    ],
)
def test_what_cannot_be_held_is_refused_with_the_reason(
    syntax: str, definition: str, why: str
) -> None:
    format_ = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    tools = [function(), custom(format=format_)]
    with pytest.raises(CallerError) as caught:
        settled(check_chat(body(tools=tools)), custom_grammars=True)
    assert why in caught.value.message
    assert caught.value.param == "tools[1].custom.format"
    assert caught.value.code == "invalid_grammar"


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_family_without_a_tag_refuses_a_grammar(choice: str) -> None:
    request = check_chat(body(tools=[custom(format=PATCH_TOOL)], tool_choice=choice))
    with pytest.raises(CallerError, match="no structural tag holds the calls"):
        settled(request, "default", custom_grammars=True)


def test_a_grammar_that_may_not_be_called_asks_for_nothing() -> None:
    assert holding(tool_choice="none").report.tools == ()
    answer = {"type": "json_object"}
    assert holding(response_format=answer).report.held_by == "structural_tag"


def test_equal_tools_with_other_grammars_get_other_constraints() -> None:
    requests = [
        check_chat(body(tools=[custom(format={"type": "grammar", "grammar": grammar})]))
        for grammar in (DIGITS, {**DIGITS, "definition": "[0-9]*"})
    ]
    dialect = families.dialect("hermes", None)
    setting = Setting(Deployment(), dialect)
    assert same_constraint(requests[0], setting) != same_constraint(requests[1], setting)


def test_the_model_is_shown_the_grammar() -> None:
    (tool,) = check_chat(body(tools=[custom(format=PATCH_TOOL)])).tools
    shown: Any = template_tool(tool)
    said = shown["function"]["parameters"]["properties"]["input"]["description"]
    assert said.endswith("NAME: /[a-z]+/")
