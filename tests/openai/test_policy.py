"""Every row of the specification's tables: which constraint a request gets, and what is said of it.

*Activation Scope*, *Schema Modes*, *Preserve Previous Behavior*, the `none` table, guided fields.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.openai.bodies import WEATHER, body, function
from toolrail.openai.chat import ChatRequest, check_chat
from toolrail.openai.compilable import arguments_of
from toolrail.openai.policy import (
    Bare,
    Decision,
    Deployment,
    GuidedCall,
    Tagged,
    Unconstrained,
    decide,
    tool_policy,
)
from toolrail.structural_tag import TagOptions
from toolrail.tools import ToolPolicy

NAMED = {"type": "function", "function": {"name": "f"}}
LOOSE = [function("f"), function("g")]
STRICT = [function("f"), function("g", strict=True)]
JSON = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": WEATHER}}}
ALWAYS = Deployment()
AUTO = Deployment(options=TagOptions(scope="auto"))
OFF = Deployment(options=None)
KEPT = Deployment(options=None, kept_tags=("required", "named"))
TURN = Deployment(turn_grammar=True)
SHOWN = Deployment(exclude_tools_when_none=False)
SHOWN_AUTO = Deployment(options=TagOptions(scope="auto"), exclude_tools_when_none=False)
SHOWN_OFF = Deployment(options=None, exclude_tools_when_none=False)
EITHER = Deployment(options=TagOptions(allow_tool_calls_with_structured_output=True))


def request(**fields: Any) -> ChatRequest:
    return check_chat(body(**fields))


def kind(decision: Decision) -> str:
    match decision:
        case Unconstrained():
            return "free"
        case Bare():
            return "bare"
        case GuidedCall(policy):
            return f"json {policy.choice}"
        case Tagged(policy, answer):
            return f"tag {policy.choice}" + ("" if answer is None else " answer")


SCOPES = [
    # deployment, tools, choice, parallel, constraint
    (ALWAYS, LOOSE, None, True, "tag auto"),
    (ALWAYS, LOOSE, "auto", False, "tag auto"),
    (ALWAYS, LOOSE, "required", True, "tag required"),
    (ALWAYS, LOOSE, NAMED, True, "tag named"),
    (ALWAYS, LOOSE, "none", True, "tag none"),
    (ALWAYS, None, "none", True, "tag none"),
    (ALWAYS, None, None, True, "free"),
    (ALWAYS, None, "auto", True, "free"),
    (AUTO, LOOSE, None, True, "free"),
    (AUTO, LOOSE, "auto", True, "free"),
    (AUTO, STRICT, "auto", True, "tag auto"),
    (AUTO, LOOSE, "auto", False, "tag auto"),
    (AUTO, LOOSE, "required", True, "tag required"),
    (AUTO, LOOSE, NAMED, True, "tag named"),
    (AUTO, LOOSE, "none", True, "free"),
    (OFF, LOOSE, "auto", True, "free"),
    (OFF, STRICT, "auto", False, "free"),
    (OFF, LOOSE, "required", True, "json required"),
    (OFF, LOOSE, NAMED, True, "json named"),
    (OFF, LOOSE, "none", True, "free"),
    (KEPT, LOOSE, "auto", True, "free"),
    (KEPT, LOOSE, "required", True, "tag required"),
    (KEPT, LOOSE, NAMED, True, "tag named"),
    (TURN, LOOSE, "auto", True, "tag auto"),
    (TURN, LOOSE, "none", True, "tag none"),
    (TURN, None, None, True, "tag none"),
    # The `none` table: whether tools stay in the prompt, whether tags are on.
    (SHOWN, LOOSE, "none", True, "tag none"),
    (SHOWN_AUTO, LOOSE, "none", True, "tag none"),
    (SHOWN_AUTO, None, "none", True, "free"),
    (SHOWN_OFF, LOOSE, "none", True, "free"),
]


@pytest.mark.parametrize(("deployment", "tools", "choice", "parallel", "constraint"), SCOPES)
def test_scopes(
    deployment: Deployment, tools: Any, choice: Any, parallel: bool, constraint: str
) -> None:
    asked = request(tools=tools, tool_choice=choice, parallel_tool_calls=parallel)
    assert kind(decide(asked, deployment).decision) == constraint


FORMATS = [
    # deployment, tools, choice, constraint, whether something is left out
    (ALWAYS, None, None, "tag none answer", False),
    (ALWAYS, LOOSE, "none", "tag none answer", False),
    (ALWAYS, LOOSE, "auto", "tag none answer", True),
    (EITHER, LOOSE, "auto", "tag auto answer", False),
    (EITHER, LOOSE, "none", "tag none answer", False),
    (EITHER, LOOSE, "required", "tag required", True),
    (ALWAYS, LOOSE, "required", "tag required", True),
    (ALWAYS, LOOSE, NAMED, "tag named", True),
    (OFF, None, None, "tag none answer", False),
    (OFF, LOOSE, "auto", "tag none answer", True),
    (OFF, LOOSE, "required", "json required", True),
]


@pytest.mark.parametrize(("deployment", "tools", "choice", "constraint", "noted"), FORMATS)
def test_response_formats_beside_tools(
    deployment: Deployment, tools: Any, choice: Any, constraint: str, noted: bool
) -> None:
    decided = decide(request(tools=tools, tool_choice=choice, **JSON), deployment)
    assert kind(decided.decision) == constraint
    assert bool(decided.notes) is noted


@pytest.mark.parametrize("deployment", [ALWAYS, AUTO, OFF, TURN])
@pytest.mark.parametrize(("tools", "noted"), [(None, False), (LOOSE, True)])
def test_a_guided_field_holds_all_output(deployment: Deployment, tools: Any, noted: bool) -> None:
    decided = decide(request(tools=tools, guided_regex="a+"), deployment)
    assert kind(decided.decision) == "bare"
    assert bool(decided.notes) is noted


def policy(deployment: Deployment = ALWAYS, **fields: Any) -> tuple[str, list[str], bool]:
    found: ToolPolicy = tool_policy(request(**fields), deployment)
    return found.choice, [tool.name for tool in found.tools], found.single


def test_policies_name_what_may_be_called() -> None:
    allowed = {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "auto",
            "tools": [{"type": "function", "function": {"name": "g"}}],
        },
    }
    assert policy(tools=LOOSE) == ("auto", ["f", "g"], False)
    assert policy(tools=LOOSE, parallel_tool_calls=False) == ("auto", ["f", "g"], True)
    assert policy(tools=LOOSE, tool_choice=NAMED) == ("named", ["f"], True)
    assert policy(tools=LOOSE, tool_choice=allowed) == ("auto", ["g"], False)


def test_under_none_the_policy_names_what_the_prompt_shows() -> None:
    assert policy(ALWAYS, tools=LOOSE, tool_choice="none") == ("none", [], False)
    assert policy(SHOWN, tools=LOOSE, tool_choice="none") == ("none", ["f", "g"], False)


@pytest.mark.parametrize(
    ("mode", "strict", "held"),
    [
        ("auto", None, True),
        ("auto", True, True),
        ("auto", False, False),
        ("strict", None, True),
        ("strict", True, True),
        ("strict", False, True),
    ],
)
def test_schema_modes(mode: Any, strict: bool | None, held: bool) -> None:
    tools = request(tools=[function("f", strict=strict)]).tools
    (found,) = arguments_of(tools, TagOptions(schema=mode), "json", {"f": "tools[0]"})
    assert (found.report.free_because is None) is held
    assert (found.held.parameters == WEATHER) is held
