"""What of a request is left to be checked after generation, and what its report says then.

`strict` is never silently weaker: what the grammar does not hold of a strict schema is checked
whatever the deployment says. What nobody checks is reported as dropped. A deployment that fails on
violations has what the grammar holds checked, too: it would not notice otherwise that an engine
does not keep to its grammar.
"""

from __future__ import annotations

from dataclasses import replace

from toolrail.messages import Checks
from toolrail.openai.answers import GuidedAnswer, JsonAnswer
from toolrail.openai.policy import Deployment
from toolrail.openai.report import HeldSchema
from toolrail.openai.setting import Constraint
from toolrail.tools import JsonSchema


def left_to_check(
    constraint: Constraint, deployment: Deployment, *, answer: JsonSchema | None
) -> Constraint:
    """`constraint` with its checks, and with a report that is true of them.

    `answer` is the schema of the answer that the request asks for, if it gives one.
    """
    report = constraint.report
    # The input of a custom tool is any text: what is no wrapper reaches the client as it is. One
    # with a grammar is checked against that where violations fail.
    customs = {
        tool.name
        for tool in constraint.parse.tools
        if tool.kind == "custom" and tool.grammar is None
    }
    tools = tuple(
        _judged(line, deployment, is_custom=line.name in customs) for line in report.tools
    )
    held = None if report.answer is None else _judged(report.answer, deployment)
    fails = deployment.argument_validation == "fail"
    checked = tuple(
        line.name for line in tools if _is_due(line) or (fails and line.name not in customs)
    )
    checks = Checks(
        tools=checked,
        answer=answer if held is not None and (fails or _is_due(held)) else None,
        fails=fails,
        open_tools=tuple(
            line.name for line in tools if line.status != "enforced" and line.name not in checked
        ),
    )
    return replace(constraint, report=replace(report, tools=tools, answer=held), checks=checks)


def answer_schema(answer: object) -> JsonSchema | None:
    """The declared schema of the answer; None: it has none."""
    match answer:
        case JsonAnswer(schema=schema):
            return schema
        case GuidedAnswer(kind="json", value=dict() | bool() as schema):
            return schema
        case _:
            return None


def _judged(line: HeldSchema, deployment: Deployment, *, is_custom: bool = False) -> HeldSchema:
    options = deployment.options
    strict = line.strict is True or (options is not None and options.schema == "strict")
    is_checked = (deployment.argument_validation != "off" or strict) and not is_custom
    if line.status == "enforced" or is_checked:
        return line
    return line.unchecked()


def _is_due(line: HeldSchema) -> bool:
    return line.checked and line.status != "enforced"
