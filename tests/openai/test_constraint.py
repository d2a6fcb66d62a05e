"""From decisions to constraints: what the engine gets, what the parser is told, what is reported.

The dialect here writes one obvious tag, so that the tests see what it was asked; the engine's
verdicts are the test's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.openai.bodies import WEATHER, body, function
from toolrail.errors import CallerError
from toolrail.grammar import accepts
from toolrail.messages import Guidance
from toolrail.openai.chat import check_chat
from toolrail.openai.compilable import TOO_EXPENSIVE
from toolrail.openai.constraint import Constraint, Setting, settle
from toolrail.openai.policy import Deployment
from toolrail.openai.schemas import moved
from toolrail.structural_tag import TagFormat, TagOptions
from toolrail.tools import StartsIn, Tool, ToolPolicy

NAMED = {"type": "function", "function": {"name": "f"}}
TOOLS = [function("f"), function("g")]
ODD = {"type": "object", "properties": {"odd": {"type": "string"}}}
DEAR = {"type": "object", "properties": {"dear": {"type": "string"}}}
HELD_JSON = {
    "type": "json_schema",
    "json_schema": WEATHER,
    "style": "json",
    "max_whitespace_cnt": 16,
}
JSON = {"type": "json_schema", "json_schema": {"name": "report", "schema": WEATHER}}


@dataclass
class Dialect:
    """Writes what it was asked for as the tag."""

    argument_style: str = "json"
    has_tags: bool = True
    free: tuple[str, ...] = ()

    def tag(
        self,
        policy: ToolPolicy,
        starts_in: StartsIn,
        options: TagOptions,
        *,
        response: TagFormat | None = None,
    ) -> TagFormat | None:
        if not self.has_tags:
            return None
        return {
            "type": "test",
            "choice": policy.choice,
            "single": policy.single,
            "tools": {tool.name: tool.parameters for tool in policy.tools},
            "starts_in": starts_in,
            "boundary": options.reasoning_boundary,
            "response": response,
        }

    def left_free(self, tool: Tool, options: TagOptions) -> tuple[str, ...]:
        return self.free


def takes(tag: str) -> CallerError | None:
    return None


def judge(tag: str) -> CallerError | None:
    """An engine that cannot express `odd` and for which `dear` costs too much."""
    if '"odd"' in tag:
        return CallerError("look-behind is not supported", code="invalid_grammar")
    if '"dear"' in tag:
        return CallerError("over the CPU budget", code=TOO_EXPENSIVE)
    return None


def constrained(
    verdict: Callable[[str], CallerError | None] = takes,
    *,
    deployment: Deployment | None = None,
    dialect: Dialect | None = None,
    starts_in: StartsIn = "none",
    **fields: Any,
) -> Constraint:
    setting = Setting(
        deployment or Deployment(), dialect or Dialect(), "hermes", "qwen3", starts_in
    )
    settling = settle(check_chat(body(**fields)), setting)
    try:
        tag = next(settling)
        while True:
            tag = settling.send(verdict(tag))
    except StopIteration as settled:
        return settled.value


def lines(constraint: Constraint) -> dict[str, str]:
    return {tool.name: tool.status for tool in constraint.report.tools}


def tool_line(constraint: Constraint, name: str) -> dict[str, Any]:
    report: Any = constraint.report.to_json()
    return report["tools"][name]


def asked(constraint: Constraint) -> dict[str, Any]:
    tag: Any = constraint.tag
    assert tag["type"] == "structural_tag"
    return tag["format"]


def test_auto() -> None:
    found = constrained(tools=TOOLS)
    assert asked(found)["choice"] == "auto"
    assert asked(found)["tools"] == {"f": WEATHER, "g": WEATHER}
    assert found.guidance == Guidance(structural_tag=found.guidance.structural_tag)
    assert (found.parse.tool_parser, found.parse.reasoning_parser) == ("hermes", "qwen3")
    assert [tool.name for tool in found.parse.tools] == ["f", "g"]
    assert (found.parse.tool_choice, found.parse.mode) == ("auto", "native")
    assert found.max_calls is None
    report = found.report.to_json()
    assert report["held_by"] == "structural_tag"
    assert lines(found) == {"f": "enforced", "g": "enforced"}
    assert tool_line(found, "f")["keywords"]["#/required"] == {"status": "enforced"}


@pytest.mark.parametrize(
    ("fields", "max_calls"),
    [
        ({}, None),
        ({"parallel_tool_calls": False}, 1),
        ({"tool_choice": "required", "parallel_tool_calls": False}, 1),
        ({"tool_choice": NAMED}, 1),
        ({"tool_choice": "none", "parallel_tool_calls": False}, None),
    ],
)
def test_one_call_is_one_call(fields: dict[str, Any], max_calls: int | None) -> None:
    found = constrained(tools=TOOLS, **fields)
    assert found.max_calls == max_calls


def test_a_relaxed_tool_keeps_its_schema_for_typing_only() -> None:
    found = constrained(tools=[function("f", strict=False)])
    assert asked(found)["tools"] == {"f": None}
    assert found.parse.tools[0].parameters == WEATHER
    line = tool_line(found, "f")
    assert (line["strict"], line["status"]) == (False, "checked_after")
    assert line["reason"] == "the tool says strict: false"
    assert line["keywords"]["#/required"]["status"] == "checked_after"


def test_descriptions_do_not_travel() -> None:
    found = constrained(tools=[function("f", description="long")])
    assert found.parse.tools[0].description is None


@pytest.mark.parametrize(
    ("boundary", "starts_in", "ended"),
    [
        ("auto", "reasoning", True),
        ("structural_tag", "reasoning", True),
        ("backend", "reasoning", False),
        ("backend", "none", True),
        ("backend", "response", True),
    ],
)
def test_who_closes_the_reasoning(boundary: Any, starts_in: StartsIn, ended: bool) -> None:
    deployment = Deployment(options=TagOptions(reasoning_boundary=boundary))
    found = constrained(tools=TOOLS, deployment=deployment, starts_in=starts_in)
    assert found.guidance.reasoning_ended is ended
    assert found.parse.starts_in == starts_in
    assert asked(found)["boundary"] == boundary


def test_without_tools_nothing_is_held() -> None:
    found = constrained()
    assert found.guidance == Guidance()
    assert found.parse.tool_choice == "none"
    assert found.report.to_json() == {"held_by": "nothing", "reason": "no tools", "tools": {}}


def test_an_auto_choice_without_a_tag_is_unconstrained_and_says_so() -> None:
    found = constrained(tools=[function(strict=True)], dialect=Dialect(has_tags=False))
    assert found.guidance == Guidance()
    assert found.report.held_by == "nothing"
    assert found.report.tools[0].free_because
    assert found.parse.tool_choice == "auto"


REQUIRED = {
    "type": "array",
    "minItems": 1,
    "items": {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "name": {"const": name},
                    "parameters": {"$ref": f"#/$defs/parameters_{index}"},
                },
                "required": ["name", "parameters"],
                "additionalProperties": False,
            }
            for index, name in enumerate(("f", "g"))
        ]
    },
    "$defs": {"parameters_0": WEATHER, "parameters_1": WEATHER},
}


@pytest.mark.parametrize(
    ("choice", "parallel", "schema"),
    [
        ("required", True, REQUIRED),
        ("required", False, {**REQUIRED, "maxItems": 1}),
        (NAMED, True, WEATHER),
    ],
)
@pytest.mark.parametrize("off", [True, False])
def test_forced_calls_without_tags_are_guided_json(
    choice: Any, parallel: bool, schema: Any, off: bool
) -> None:
    found = constrained(
        tools=TOOLS,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        deployment=Deployment(options=None) if off else None,
        dialect=Dialect(has_tags=off),
        starts_in="reasoning",
    )
    assert found.guidance.json_schema is not None
    assert json.loads(found.guidance.json_schema) == schema
    assert found.guidance.structural_tag is None
    assert (found.parse.mode, found.parse.starts_in) == ("guided_json", "none")
    assert found.report.held_by == "guided_json"


def test_guided_json_after_reasoning_that_the_engine_closes() -> None:
    found = constrained(
        tools=TOOLS,
        tool_choice=NAMED,
        deployment=Deployment(options=TagOptions(reasoning_boundary="backend")),
        dialect=Dialect(has_tags=False),
        starts_in="reasoning",
    )
    assert found.guidance.reasoning_ended is False
    assert found.parse.starts_in == "reasoning"


def test_references_move_with_the_schema_they_are_in() -> None:
    tree = {
        "type": "object",
        "properties": {
            "left": {"$ref": "#"},
            "leaf": {"$ref": "#/$defs/leaf"},
            "$ref": {"enum": [{"$ref": "#/not/a/reference"}]},
        },
        "$defs": {"leaf": {"anyOf": [{"$ref": "#/properties/left"}, {"type": "null"}]}},
    }
    place = "#/$defs/parameters_0"
    assert moved(tree, place) == {
        "type": "object",
        "properties": {
            "left": {"$ref": place},
            "leaf": {"$ref": f"{place}/$defs/leaf"},
            "$ref": {"enum": [{"$ref": "#/not/a/reference"}]},
        },
        "$defs": {"leaf": {"anyOf": [{"$ref": f"{place}/properties/left"}, {"type": "null"}]}},
    }


def test_recursive_arguments_are_held_as_guided_json() -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "size": {"type": "integer"}},
        "required": ["size"],
        "additionalProperties": False,
    }
    found = constrained(
        tools=[function("f", tree)], tool_choice="required", deployment=Deployment(options=None)
    )
    assert found.guidance.json_schema is not None
    schema = json.loads(found.guidance.json_schema)
    grammar = {
        "type": "structural_tag",
        "format": {"type": "json_schema", "json_schema": schema},
    }

    def held(parameters: str) -> bool:
        return accepts(grammar, f'[{{"name": "f", "parameters": {parameters}}}]')

    assert held('{"size": 1}')
    assert held('{"left": {"left": {"size": 2}, "size": 1}, "size": 0}')
    assert not held('{"left": {"left": {"size": "2"}, "size": 1}, "size": 0}')
    assert not held('{"left": {}, "size": 0}')


def test_a_response_format() -> None:
    found = constrained(response_format=JSON)
    assert asked(found)["response"] == HELD_JSON
    assert asked(found)["choice"] == "none"
    report: Any = found.report.to_json()
    assert (report["held_by"], report["tools"]) == ("structural_tag", {})
    assert report["response_format"]["status"] == "enforced"


def test_a_response_format_without_a_tag_of_the_family() -> None:
    found = constrained(response_format=JSON, dialect=Dialect(has_tags=False))
    assert asked(found) == HELD_JSON


def test_a_held_answer_is_not_read_as_a_call() -> None:
    found = constrained(tools=TOOLS, response_format=JSON)
    assert (found.parse.tool_choice, found.parse.tools) == ("none", ())
    assert found.report.notes


def test_calls_or_a_held_answer() -> None:
    options = TagOptions(allow_tool_calls_with_structured_output=True)
    found = constrained(tools=TOOLS, response_format=JSON, deployment=Deployment(options=options))
    assert asked(found)["choice"] == "auto"
    assert asked(found)["response"] == HELD_JSON
    assert found.parse.tool_choice == "auto"
    assert found.report.notes == ()


@pytest.mark.parametrize(
    ("field", "value", "guidance"),
    [
        ("guided_json", WEATHER, {"json_schema": json.dumps(WEATHER, separators=(",", ":"))}),
        ("guided_regex", "[a-z]+", {"regex": "[a-z]+"}),
        ("guided_choice", ["yes", "no"], {"choice": ("yes", "no")}),
        ("guided_grammar", 'root ::= "a"', {"grammar": 'root ::= "a"'}),
    ],
)
def test_guided_fields_are_bare_constraints_from_the_first_token(
    field: str, value: Any, guidance: dict[str, Any]
) -> None:
    found = constrained(starts_in="reasoning", **{field: value})
    assert found.guidance == Guidance(**guidance)
    assert found.parse.starts_in == "response"
    assert found.report.held_by == "guided_field"


def test_a_guided_field_that_the_engine_refuses() -> None:
    with pytest.raises(CallerError) as info:
        constrained(judge, guided_json=ODD)
    assert (info.value.status, info.value.param) == (400, "guided_json")


def test_a_turn_grammar_does_not_give_way_to_a_guided_field() -> None:
    turn = Deployment(turn_grammar=True)
    constrained(tools=TOOLS, guided_regex="a", deployment=turn)
    constrained(guided_regex="a", parallel_tool_calls=False, deployment=turn)
    with pytest.raises(CallerError) as info:
        constrained(tools=TOOLS, guided_regex="a", parallel_tool_calls=False, deployment=turn)
    assert info.value.param == "guided_regex"


@pytest.mark.parametrize("off", [False, True])
def test_a_schema_that_the_engine_cannot_express_is_left_free(off: bool) -> None:
    found = constrained(
        judge,
        tools=[function("f"), function("g", ODD)],
        tool_choice="required",
        deployment=Deployment(options=None) if off else None,
    )
    assert lines(found) == {"f": "enforced", "g": "checked_after"}
    assert tool_line(found, "g")["reason"] == "look-behind is not supported"
    assert found.parse.tools[1].parameters == ODD


@pytest.mark.parametrize(
    ("tool", "deployment"),
    [
        (
            function(
                "g",
                {**ODD, "required": ["odd"], "additionalProperties": False},
                strict=True,
            ),
            Deployment(),
        ),
        (function("g", ODD, strict=False), Deployment(options=TagOptions(schema="strict"))),
        (function("g", ODD), Deployment(options=TagOptions(schema="strict"))),
        (function("g", DEAR), Deployment()),
    ],
)
def test_a_schema_that_must_hold_or_costs_too_much_is_refused_by_name(
    tool: dict[str, Any], deployment: Deployment
) -> None:
    with pytest.raises(CallerError) as info:
        constrained(judge, tools=[function("f"), tool], deployment=deployment)
    assert (info.value.status, info.value.param) == (400, "tools[1].function.parameters")
    assert "function 'g'" in info.value.message


def test_what_the_familys_spelling_leaves_free_is_in_the_report() -> None:
    speaks = Dialect(free=("properties/city: not held in this format",))
    found = constrained(tools=[function("f")], dialect=speaks)
    assert lines(found) == {"f": "checked_after"}
    keywords = tool_line(found, "f")["keywords"]
    assert keywords["#/properties/city/type"] == {
        "status": "checked_after",
        "reason": "spelling",
        "detail": "not held in this format",
    }
    assert keywords["#/required"] == {"status": "enforced"}


NOT_HELD = {
    "type": "object",
    "properties": {"a": {"type": "string", "format": "no-such-format"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("choice", "refused"), [("auto", True), ("required", True), (NAMED, False), ("none", False)]
)
def test_a_turn_grammar_holds_all_of_an_applicable_strict_schema(
    choice: Any, refused: bool
) -> None:
    fields = {"tools": [function("f"), function("g", NOT_HELD, strict=True)]}
    constrained(tool_choice=choice, **fields)
    turn = Deployment(turn_grammar=True, exclude_tools_when_none=False)
    if not refused:
        constrained(tool_choice=choice, deployment=turn, **fields)
        return
    with pytest.raises(CallerError) as info:
        constrained(tool_choice=choice, deployment=turn, **fields)
    assert info.value.param == "tools[1].function.parameters"
    assert "cannot enforce the requested tool constraints" in info.value.message


def test_a_call_cannot_be_forced_once_the_answer_has_begun() -> None:
    turn = Deployment(turn_grammar=True)
    constrained(tools=TOOLS, deployment=turn, starts_in="response")
    with pytest.raises(CallerError) as info:
        constrained(tools=TOOLS, tool_choice="required", deployment=turn, starts_in="response")
    assert info.value.param == "tool_choice"


LOST = {
    "type": "object",
    "properties": {"a": {"type": "string", "pattern": r"(?<=x)y"}},
    "required": ["a"],
    "additionalProperties": False,
}


def test_a_keyword_that_is_lost_refuses_a_strict_schema_and_is_reported_of_another() -> None:
    found = constrained(tools=[function("f", LOST)])
    assert lines(found) == {"f": "dropped"}
    for fields in (
        {"tools": [function("f", LOST, strict=True)]},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "f", "schema": LOST, "strict": True},
            }
        },
    ):
        with pytest.raises(CallerError) as info:
            constrained(**fields)
        assert info.value.status == 400
        assert "'f'" in info.value.message
        assert "#/properties/a/pattern" in info.value.message


def together(tag: str) -> CallerError | None:
    """An engine that takes one schema, not two."""
    too_much = tag.count('"city"') > 2
    return CallerError("over the CPU budget", code=TOO_EXPENSIVE) if too_much else None


def test_schemas_that_are_too_much_together_are_left_free_together() -> None:
    found = constrained(together, tools=TOOLS)
    assert asked(found)["tools"] == {"f": None, "g": None}
    assert all(tool.free_because for tool in found.report.tools)
    with pytest.raises(CallerError) as info:
        constrained(together, tools=[function("f", strict=True), function("g")])
    assert (info.value.status, info.value.param) == (400, "tools")


def test_a_tag_that_the_engine_never_takes() -> None:
    def never(tag: str) -> CallerError | None:
        return CallerError("no", code="invalid_grammar") if '"test"' in tag else None

    assert constrained(never, tools=TOOLS).report.held_by == "nothing"
    assert constrained(never, tools=TOOLS, tool_choice=NAMED).report.held_by == "guided_json"


def test_ignore_eos_is_refused_where_something_is_held() -> None:
    constrained(ignore_eos=True)
    for fields in ({"tools": TOOLS}, {"response_format": JSON}, {"guided_regex": "a"}):
        with pytest.raises(CallerError) as info:
            constrained(ignore_eos=True, **fields)
        assert info.value.param == "ignore_eos"
