"""From a decision to what the engine is held to, what the parser is told, and the report of both.

Compiling a tag takes another process, so it is not done here: `settle` yields the tags whose
compile it wants checked, is sent the verdicts, and returns the constraint. The server drives it
with `await`, a command without.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import msgspec

from toolrail.messages import Guidance
from toolrail.openai.answers import GuidedAnswer, JsonAnswer
from toolrail.openai.chat import ChatRequest
from toolrail.openai.compilable import (
    Arguments,
    Verdict,
    arguments_of,
    blamed,
    compilable,
    refuse_lost,
)
from toolrail.openai.policy import (
    DEFAULT_OPTIONS,
    Bare,
    Deployment,
    GuidedCall,
    Tagged,
    Unconstrained,
    decide,
    tool_policy,
)
from toolrail.openai.refusals import refusal
from toolrail.openai.report import HeldSchema, Report
from toolrail.openai.schemas import call_schema
from toolrail.parsing import ParseSpec
from toolrail.schema.normalise import normalise_value
from toolrail.structural_tag import TagFormat, TagOptions
from toolrail.structural_tag.arguments import MAX_WHITESPACE
from toolrail.tools import JsonSchema, StartsIn, Tool, ToolPolicy

Settling: TypeAlias = "Generator[str, Verdict, Constraint]"
"""Yields tags (JSON text) to be checked, is sent each one's verdict, returns the constraint."""

_encoder: Final = msgspec.json.Encoder()


class Dialect(Protocol):
    """What is asked of a pair of parsers (`toolrail.families`)."""

    @property
    def argument_style(self) -> str:
        """The grammar engine's name for how calls spell their arguments."""
        ...

    def tag(
        self,
        policy: ToolPolicy,
        starts_in: StartsIn,
        options: TagOptions,
        *,
        response: TagFormat | None = None,
    ) -> TagFormat | None:
        """The format that holds a turn, None when the family has none."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """What a constraint depends on beside the request.

    Attributes:
        deployment: the worker's options.
        dialect: of the worker's parsers.
        tool_parser: its configured name.
        reasoning_parser: its configured name.
        starts_in: what the rendered prompt left open.
    """

    deployment: Deployment
    dialect: Dialect
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    starts_in: StartsIn = "none"

    @property
    def options(self) -> TagOptions:
        """The tag options; the defaults where tags are off and one is made all the same."""
        return self.deployment.options or DEFAULT_OPTIONS

    @property
    def engine_waits(self) -> bool:
        """Whether the engine applies the grammar after the reasoning that the prompt opened."""
        return self.options.reasoning_boundary == "backend" and self.starts_in == "reasoning"


@dataclass(frozen=True, slots=True)
class Constraint:
    """What holds the output of a request, and how it will be read.

    Attributes:
        guidance: for the engine.
        parse: for the parser.
        max_calls: calls after which a choice ends, None: no bound.
        report: what of the request is enforced and what is not.
    """

    guidance: Guidance
    parse: ParseSpec
    max_calls: int | None
    report: Report

    @property
    def tag(self) -> object | None:
        """The structural tag as JSON data, None when there is none."""
        text = self.guidance.structural_tag
        return None if text is None else msgspec.json.decode(text)


def same_constraint(request: ChatRequest, setting: Setting) -> bytes:
    """Equal for requests in equal settings that get equal constraints: what `settle` reads of them.

    Agents send the same tools at every turn; descriptions, messages and sampling do not matter.
    """
    return _encoder.encode(
        (
            [(tool.name, tool.parameters, tool.strict) for tool in request.tools],
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
    decided = decide(request, setting.deployment)
    match decided.decision:
        case Unconstrained(reason):
            constraint = _unconstrained(tool_policy(request, setting.deployment), setting, reason)
        case Bare(guided):
            constraint = yield from _bare(request, setting, guided)
        case Tagged() as tagged:
            constraint = yield from _tagged(request, setting, tagged)
        case GuidedCall(policy):
            constraint = yield from _guided_call(request, setting, policy)
    if request.wishes.ignore_eos and constraint.report.held_by != "nothing":
        raise refusal(
            "'ignore_eos' lets the engine run on unconstrained after the end of the grammar that "
            "holds this request: drop it, or the tools or the format that need the grammar.",
            param="ignore_eos",
            code="unsupported_value",
        )
    report = replace(constraint.report, notes=decided.notes)
    return replace(constraint, report=report)


def _unconstrained(policy: ToolPolicy, setting: Setting, reason: str) -> Constraint:
    schemas = [HeldSchema.free(tool, "no_grammar", reason) for tool in _callable(policy)]
    return Constraint(
        Guidance(),
        _parse_spec(setting, policy),
        _max_calls(policy),
        Report("nothing", tuple(schemas), reason=reason),
    )


def _tagged(request: ChatRequest, setting: Setting, tagged: Tagged) -> Settling:
    policy = tagged.policy
    answer = yield from _held_answer(tagged.answer)
    response = answer.format if answer else None

    def tag_of(tools: Sequence[Tool], response: TagFormat | None = response) -> str | None:
        format_ = setting.dialect.tag(
            ToolPolicy(policy.choice, tuple(tools), policy.parallel),
            setting.starts_in,
            setting.options,
            response=response,
        )
        return None if format_ is None else _tag_json(format_)

    def alone(tools: Sequence[Tool]) -> str | None:
        named = ToolPolicy("named", tuple(tools))
        format_ = setting.dialect.tag(named, setting.starts_in, setting.options)
        return None if format_ is None else _tag_json(format_)

    params = _schema_params(request)
    wanted = tuple(Arguments.banned(tool) for tool in policy.tools)
    if policy.choice != "none":
        wanted = arguments_of(policy.tools, setting.options, setting.dialect.argument_style, params)
    found = yield from compilable(tag_of, alone, wanted, params)
    if isinstance(found, str):
        return (yield from _untagged(request, setting, tagged, answer, found))
    tag, held = found
    if setting.deployment.turn_grammar:
        _refuse_unenforced(setting, policy, held, params)
    # A held answer that looks like a call is an answer: no tool is known to its parser.
    read = ToolPolicy("none") if answer and policy.choice == "none" else policy
    return Constraint(
        Guidance(structural_tag=tag, reasoning_ended=not setting.engine_waits),
        _held_spec(_parse_spec(setting, read), setting.options),
        _max_calls(policy),
        Report("structural_tag", _lines(policy, held), answer.report if answer else None),
    )


def _refuse_unenforced(
    setting: Setting, policy: ToolPolicy, held: Sequence[Arguments], params: Mapping[str, str]
) -> None:
    """Where a grammar holds every turn, the specification leaves nothing to best effort."""
    name = (setting.tool_parser or "this model").capitalize()
    refused = f"{name} cannot enforce the requested tool constraints with this schema and prompt"
    if policy.choice in ("required", "named") and setting.starts_in == "response":
        raise refusal(
            f"{refused} configuration: the last message has begun the final answer, after which no "
            "call can be forced.",
            param="tool_choice",
        )
    for entry in held:
        if entry.tool.strict and entry.report.status != "enforced":
            raise refusal(
                f"{refused} configuration: the grammar does not hold all of the schema of function "
                f"'{entry.tool.name}'.",
                param=params[entry.tool.name],
                code="invalid_grammar",
            )


def _untagged(
    request: ChatRequest, setting: Setting, tagged: Tagged, answer: _Answer | None, reason: str
) -> Settling:
    """The family has no tag for this, or none that the engine takes, for this `reason`."""
    policy = tagged.policy
    if answer is not None:
        return Constraint(
            Guidance(structural_tag=_tag_json(answer.format)),
            _parse_spec(setting, ToolPolicy("none")),
            None,
            Report("structural_tag", (), answer.report),
        )
    if tagged.must_hold:
        return (yield from _guided_call(request, setting, policy))
    return _unconstrained(policy, setting, reason)


def _guided_call(request: ChatRequest, setting: Setting, policy: ToolPolicy) -> Settling:
    def schema_of(tools: Sequence[Tool]) -> JsonSchema:
        if policy.choice == "named":
            return {"type": "object"} if tools[0].parameters is None else tools[0].parameters
        return call_schema(tools, single=policy.single)

    def tag_of(tools: Sequence[Tool]) -> str | None:
        return _tag_json(_json_format(schema_of(tools)))

    params = _schema_params(request)
    wanted = arguments_of(policy.tools, setting.options, "json", params)
    found = yield from compilable(tag_of, tag_of, wanted, params)
    if isinstance(found, str):
        raise refusal(f"A forced call cannot be held: {found}.", param="tools")
    held = found[1]
    schema = schema_of([entry.held for entry in held])
    waits = setting.engine_waits
    parse = _parse_spec(setting, policy)
    return Constraint(
        Guidance(json_schema=msgspec.json.encode(schema).decode(), reasoning_ended=not waits),
        # Held from the first token on, the output is the payload, whatever the prompt opened.
        msgspec.structs.replace(
            parse, mode="guided_json", starts_in="reasoning" if waits else "none"
        ),
        _max_calls(policy),
        Report("guided_json", _lines(policy, held)),
    )


def _bare(request: ChatRequest, setting: Setting, guided: GuidedAnswer) -> Settling:
    policy = tool_policy(request, setting.deployment)
    if setting.deployment.turn_grammar and policy.tools and not policy.parallel:
        raise refusal(
            f"'{guided.param}' takes the output away from the grammar that this model's "
            "'parallel_tool_calls': false needs: drop one of them.",
            param=guided.param,
        )
    guidance, same, line = _bare_guidance(guided)
    verdict = yield _tag_json(same)
    if verdict is not None:
        raise blamed(verdict, guided.param, f"'{guided.param}'")
    # It starts at the first token, so nothing that the prompt opened goes on.
    starts_in = "response" if setting.starts_in == "reasoning" else setting.starts_in
    parse = _parse_spec(replace(setting, starts_in=starts_in), policy)
    return Constraint(guidance, parse, _max_calls(policy), Report("guided_field", answer=line))


def _bare_guidance(guided: GuidedAnswer) -> tuple[Guidance, TagFormat, HeldSchema]:
    """The bare constraint, a tag format that says the same (to be checked), and the report."""
    line = HeldSchema(guided.param)
    match guided.value:
        case tuple() as choices:
            elements = [{"type": "const_string", "value": text} for text in choices]
            return Guidance(choice=choices), {"type": "or", "elements": elements}, line
        case str(text) if guided.kind == "regex":
            return Guidance(regex=text), {"type": "regex", "pattern": text}, line
        case str(text):
            return Guidance(grammar=text), {"type": "grammar", "grammar": text}, line
        case schema:
            found = normalise_value(schema)
            text = msgspec.json.encode(found.schema).decode()
            line = HeldSchema(guided.param, None, found.report)
            return Guidance(json_schema=text), _json_format(found.schema), line


@dataclass(frozen=True, slots=True)
class _Answer:
    """A response format as the grammar holds it."""

    format: TagFormat
    report: HeldSchema


def _held_answer(wanted: JsonAnswer | None) -> Generator[str, Verdict, _Answer | None]:
    if wanted is None:
        return None
    owner, param = f"response_format '{wanted.name}'", "response_format"
    found = normalise_value(wanted.schema)
    if wanted.strict:
        refuse_lost(found.report, owner, param)
    format_ = _json_format(found.schema)
    verdict = yield _tag_json(format_)
    if verdict is not None:
        raise blamed(verdict, param, owner)
    return _Answer(format_, HeldSchema(wanted.name, wanted.strict, found.report))


def _json_format(schema: JsonSchema) -> TagFormat:
    return {
        "type": "json_schema",
        "json_schema": schema,
        "style": "json",
        "max_whitespace_cnt": MAX_WHITESPACE,
    }


def _tag_json(format_: TagFormat) -> str:
    return msgspec.json.encode({"type": "structural_tag", "format": format_}).decode()


def _parse_spec(setting: Setting, policy: ToolPolicy) -> ParseSpec:
    return ParseSpec(
        tool_parser=setting.tool_parser,
        reasoning_parser=setting.reasoning_parser,
        tools=tuple(Tool(tool.name, tool.parameters, tool.strict) for tool in policy.tools),
        tool_choice=policy.choice,
        starts_in=setting.starts_in,
    )


def _held_spec(spec: ParseSpec, options: TagOptions) -> ParseSpec:
    """`spec` under a tag: a marker is structure where the grammar keeps it out of everything else.

    A ban lets reasoning markers stand anywhere, and so does reasoning before the grammar.
    """
    held = (
        spec.tool_choice != "none"
        and options.exclude_special_tokens is not False
        and options.reasoning_boundary != "backend"
    )
    return msgspec.structs.replace(spec, held=held)


def _max_calls(policy: ToolPolicy) -> int | None:
    return 1 if policy.single and policy.choice != "none" else None


def _callable(policy: ToolPolicy) -> tuple[Tool, ...]:
    return () if policy.choice == "none" else policy.tools


def _lines(policy: ToolPolicy, held: Sequence[Arguments]) -> tuple[HeldSchema, ...]:
    return () if policy.choice == "none" else tuple(entry.report for entry in held)


def _schema_params(request: ChatRequest) -> dict[str, str]:
    return {
        tool.name: f"tools[{index}].function.parameters" for index, tool in enumerate(request.tools)
    }
