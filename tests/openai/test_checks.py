"""What is left to be checked after generation, and what the report says of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.openai.bodies import body, function
from tests.openai.test_constraint import Dialect
from toolrail.messages import Checks
from toolrail.openai.chat import check_chat
from toolrail.openai.constraint import Constraint, Setting, settle
from toolrail.openai.policy import DEFAULT_OPTIONS, Deployment
from toolrail.structural_tag import TagOptions
from toolrail.tools import ArgumentValidation

UNIQUE = {
    "type": "object",
    "properties": {"words": {"type": "array", "items": {}, "uniqueItems": True}},
}
LONG = {
    "type": "object",
    "properties": {"text": {"type": "string", "maxLength": 9000}},
    "required": ["text"],
    "additionalProperties": False,
}
HELD = {"type": "object", "properties": {"a": {"type": "boolean"}}}
ANSWER = {"type": "json_schema", "json_schema": {"name": "words", "schema": UNIQUE}}


def constrained(
    policy: ArgumentValidation, *, options: TagOptions | None = DEFAULT_OPTIONS, **fields: Any
) -> Constraint:
    deployment = Deployment(options=options, argument_validation=policy)
    settling = settle(check_chat(body(**fields)), Setting(deployment, Dialect()))
    try:
        next(settling)
        while True:
            settling.send(None)
    except StopIteration as ended:
        return ended.value


def offered(name: str, schema: object, **fields: Any) -> dict[str, Any]:
    return function(name, parameters=schema, **fields)


TOOLS = [offered("u", UNIQUE), offered("l", LONG, strict=True), offered("h", HELD)]


@pytest.mark.parametrize(
    ("policy", "checks"),
    [
        ("off", Checks(tools=("l",), open_tools=("u",))),
        ("report", Checks(tools=("u", "l"))),
        ("fail", Checks(tools=("u", "l", "h"), fails=True)),
    ],
)
def test_what_the_grammar_does_not_hold_is_checked(
    policy: ArgumentValidation, checks: Checks
) -> None:
    assert constrained(policy, tools=TOOLS).checks == checks


def test_what_nobody_checks_is_reported_as_dropped() -> None:
    unique, long, held = constrained("off", tools=TOOLS).report.tools
    assert [line.status for line in (unique, long, held)] == [
        "dropped",
        "checked_after",
        "enforced",
    ]
    assert unique.to_json()["checked"] is False
    assert "checked" not in long.to_json()


def test_a_deployment_that_is_strict_is_strict_about_all() -> None:
    found = constrained("off", options=TagOptions(schema="strict"), tools=TOOLS)
    assert found.checks.tools == ("u", "l")


def test_without_a_grammar_all_tools_are_checked() -> None:
    found = constrained("report", options=None, tools=TOOLS)
    assert found.report.held_by == "nothing"
    assert found.checks.tools == ("u", "l", "h")


def test_without_either_the_report_says_so() -> None:
    found = constrained("off", options=None, tools=TOOLS)
    assert [line.status for line in found.report.tools] == ["dropped", "checked_after", "dropped"]
    assert found.checks.tools == ("l",)


@pytest.mark.parametrize("policy", ["off", "report"])
def test_an_answer_is_checked_too(policy: ArgumentValidation) -> None:
    found = constrained(policy, response_format=ANSWER)
    assert found.report.answer is not None
    assert found.report.answer.status == ("dropped" if policy == "off" else "checked_after")
    assert found.checks.answer == (None if policy == "off" else UNIQUE)


def test_the_declared_schema_is_what_is_checked() -> None:
    found = constrained("report", tools=TOOLS)
    assert [tool.parameters for tool in found.parse.tools] == [UNIQUE, LONG, HELD]
