"""From a decision to what the engine is held to, what the parser is told, and the report of both.

Compiling a tag takes another process, so it is not done here: `settle` yields the tags whose
compile it wants checked, is sent the verdicts, and returns the constraint. The server drives it
with `await`, a command without.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from toolrail.errors import CallerError
from toolrail.grammars import UnheldGrammarError
from toolrail.messages import Guidance
from toolrail.openai.answers import JsonAnswer
from toolrail.openai.chat import ChatRequest, Origin
from toolrail.openai.checks import answer_schema, left_to_check
from toolrail.openai.compilable import (
    Arguments,
    Verdict,
    arguments_of,
    blamed,
    compilable,
    refuse_lost,
)
from toolrail.openai.guided import bare, guided_call
from toolrail.openai.inputs import grammars_tried, refuse_grammars, refuse_unheld, unheld
from toolrail.openai.policy import (
    Bare,
    Decision,
    GuidedCall,
    Tagged,
    Unconstrained,
    decide,
    tool_policy,
)
from toolrail.openai.refusals import refusal
from toolrail.openai.report import HeldSchema, Report
from toolrail.openai.setting import (
    Constraint,
    Setting,
    Settling,
    held_spec,
    json_format,
    max_calls,
    parse_spec,
    report_lines,
    schema_params,
    tag_json,
    unenforceable,
)
from toolrail.schema.normalise import normalise_value
from toolrail.structural_tag import TagFormat
from toolrail.tools import Tool, ToolPolicy

_encoder: Final = msgspec.json.Encoder()


def same_constraint(request: ChatRequest, setting: Setting) -> bytes:
    """Equal for requests in equal settings that get equal constraints: what `settle` reads of them.

    Agents send the same tools at every turn; descriptions, messages and sampling do not matter.
    """
    return _encoder.encode(
        (
            [
                (tool.name, tool.parameters, tool.strict, tool.kind, tool.grammar)
                for tool in request.tools
            ],
            request.choice.mode,
            request.choice.stated,
            [tool.name for tool in request.choice.callable],
            request.parallel_tool_calls,
            type(request.answer).__name__,
            request.answer,
            request.wishes.ignore_eos,
            setting.deployment,
            setting.tool_parser,
            setting.reasoning_parser,
            setting.starts_in,
        )
    )


def settle(request: ChatRequest, setting: Setting) -> Settling:
    """The constraint of `request`, once the tags that it yields are judged.

    Raises:
        CallerError: the engine cannot hold what must be held, or two wishes exclude each other.
    """
    refuse_grammars(request.tools, setting.deployment.options, schema_params(request))
    decided = decide(request, setting.deployment)
    try:
        yield from grammars_tried(request.choice.callable, schema_params(request))
        constraint = yield from _held(request, setting, decided.decision)
    except UnheldGrammarError as error:
        raise unheld(error, schema_params(request)) from error
    if request.wishes.ignore_eos and constraint.report.held_by != "nothing":
        raise refusal(
            "'ignore_eos' lets the engine run on unconstrained after the end of the grammar that "
            "holds this request: drop it, or the tools or the format that need the grammar.",
            param="ignore_eos",
            code="unsupported_value",
        )
    report = replace(constraint.report, notes=decided.notes)
    return left_to_check(
        replace(constraint, report=report),
        setting.deployment,
        answer=answer_schema(request.answer),
    )


def _held(request: ChatRequest, setting: Setting, decision: Decision) -> Settling:
    match decision:
        case Unconstrained(reason):
            policy = tool_policy(request, setting.deployment)
            refuse_unheld(request.choice.callable, schema_params(request))
            return _unconstrained(policy, setting, reason)
        case Bare(guided):
            return (yield from bare(request, setting, guided))
        case Tagged() as tagged:
            return (yield from _tagged(request, setting, tagged))
        case GuidedCall(policy):
            return (yield from guided_call(request, setting, policy))


def _unconstrained(policy: ToolPolicy, setting: Setting, reason: str) -> Constraint:
    schemas = [HeldSchema.free(tool, "no_grammar", reason) for tool in _callable(policy)]
    return Constraint(
        Guidance(),
        parse_spec(setting, policy),
        max_calls(policy),
        Report("nothing", tuple(schemas), reason=reason),
    )


def _tagged(request: ChatRequest, setting: Setting, tagged: Tagged) -> Settling:
    policy = tagged.policy
    answer = yield from _held_answer(tagged.answer, request.origin)
    if tagged.bare:
        return (yield from _untagged(request, setting, tagged, answer, ""))
    whole_turns = setting.deployment.turn_grammar
    if whole_turns and setting.starts_in == "response" and policy.choice in ("required", "named"):
        raise refusal(unenforceable(setting), param="tool_choice")
    try:
        found = yield from _strongest(request, setting, policy, answer.format if answer else None)
    except CallerError as error:
        if whole_turns and error.code == "invalid_grammar":
            raise refusal(unenforceable(setting), param=error.param or "tools") from error
        raise
    if isinstance(found, str):
        return (yield from _untagged(request, setting, tagged, answer, found))
    tag, held = found
    if whole_turns:
        _refuse_unenforced(setting, held, schema_params(request))
    # A held answer that looks like a call is an answer: no tool is known to its parser.
    read = ToolPolicy("none") if answer and policy.choice == "none" else policy
    return Constraint(
        Guidance(structural_tag=tag, reasoning_ended=not setting.engine_waits),
        held_spec(parse_spec(setting, read), setting.options),
        max_calls(policy),
        Report("structural_tag", report_lines(policy, held), answer.report if answer else None),
    )


def _strongest(
    request: ChatRequest, setting: Setting, policy: ToolPolicy, response: TagFormat | None
) -> Generator[str, Verdict, tuple[str, tuple[Arguments, ...]] | str]:
    """The strongest tag that passes, and how the arguments are held in it; or why there is none."""
    speaks, options = setting.dialect, setting.options

    def tag_of(tools: Sequence[Tool]) -> str | None:
        offered = msgspec.structs.replace(policy, tools=tuple(tools))
        format_ = speaks.tag(offered, setting.starts_in, options, response=response)
        return None if format_ is None else tag_json(format_)

    def alone(tools: Sequence[Tool]) -> str | None:
        format_ = speaks.tag(ToolPolicy("named", tuple(tools)), setting.starts_in, options)
        return None if format_ is None else tag_json(format_)

    params = schema_params(request)
    wanted = tuple(Arguments.banned(tool) for tool in policy.tools)
    if policy.choice != "none":
        style = speaks.argument_style
        wanted = arguments_of(policy.tools, options, style, params, speaks.left_free)
    return (yield from compilable(tag_of, alone, wanted, params))


def _refuse_unenforced(
    setting: Setting, held: Sequence[Arguments], params: Mapping[str, str]
) -> None:
    """Where a grammar holds every turn, the specification leaves nothing to best effort."""
    refused = setting.deployment.strict_refuses
    for entry in held:
        report = entry.report.report
        paths = (*report.enforced, *(note.path for note in report.notes))
        beyond = any(path.rpartition("/")[2] in refused for path in paths)
        if entry.tool.strict and (beyond or entry.report.status != "enforced"):
            raise refusal(
                unenforceable(setting), param=params[entry.tool.name], code="invalid_grammar"
            )


def _untagged(
    request: ChatRequest, setting: Setting, tagged: Tagged, answer: _Answer | None, reason: str
) -> Settling:
    """The family has no tag for this, or none that the engine takes, for this `reason`."""
    policy = tagged.policy
    if policy.choice != "none":
        refuse_unheld(policy.tools, schema_params(request))
    if answer is not None:
        return Constraint(
            Guidance(structural_tag=tag_json(answer.format)),
            parse_spec(setting, ToolPolicy("none")),
            None,
            Report("structural_tag", (), answer.report),
        )
    if tagged.must_hold:
        return (yield from guided_call(request, setting, policy))
    return _unconstrained(policy, setting, reason)


@dataclass(frozen=True, slots=True)
class _Answer:
    """A response format as the grammar holds it."""

    format: TagFormat
    report: HeldSchema


def _held_answer(
    wanted: JsonAnswer | None, origin: Origin
) -> Generator[str, Verdict, _Answer | None]:
    if wanted is None:
        return None
    owner, param = f"{origin.answer} '{wanted.name}'", origin.answer
    found = normalise_value(wanted.schema)
    if wanted.strict:
        refuse_lost(found.report, owner, param)
    format_ = json_format(found.schema)
    verdict = yield tag_json(format_)
    if verdict is not None:
        raise blamed(verdict, param, owner)
    return _Answer(format_, HeldSchema(wanted.name, wanted.strict, found.report))


def _callable(policy: ToolPolicy) -> tuple[Tool, ...]:
    return () if policy.choice == "none" else policy.tools
