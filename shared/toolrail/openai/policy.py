"""Which constraint holds a request's output, decided once, before any family sees it.

Pure tables over the request and the deployment's options. The rows are the product specification's
(*Activation Scope*, *Schema Modes*, *Preserve Previous Behavior*, the `none` table); where it is
silent: a response format never gives way to tool calls, nor they to it, without the report saying
so, and tags that are switched off leave response formats held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from toolrail.families.family import Family
from toolrail.openai.answers import GuidedAnswer, JsonAnswer
from toolrail.openai.chat import ChatRequest
from toolrail.openai.prompt import prompt_tools
from toolrail.structural_tag import TagOptions
from toolrail.tools import ArgumentValidation, ToolChoice, ToolPolicy

DEFAULT_OPTIONS: Final = TagOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What the worker's command line says about tools; a model card carries it.

    Attributes:
        options: structural-tag options, None when tags are switched off.
        exclude_tools_when_none: whether `tool_choice: none` takes the tools out of the prompt.
        kept_tags: tool choices whose native tag stays when tags are off (the family's record).
        turn_grammar: whether a tag holds every turn (the family's record).
        free_turns: whether that is switched off where no call is forced.
        strict_refuses: keywords with which a strict tool is refused (the family's record).
        argument_validation: what becomes of arguments that break what the grammar does not hold.
    """

    options: TagOptions | None = DEFAULT_OPTIONS
    exclude_tools_when_none: bool = True
    kept_tags: tuple[ToolChoice, ...] = ()
    turn_grammar: bool = False
    free_turns: bool = False
    strict_refuses: tuple[str, ...] = ()
    argument_validation: ArgumentValidation = "report"

    @classmethod
    def of(
        cls,
        family: Family | None,
        *,
        options: TagOptions | None,
        exclude_tools_when_none: bool,
        turn_grammar: bool = True,
        argument_validation: ArgumentValidation = "report",
    ) -> Deployment:
        """The deployment of models of `family` with these flags."""
        return cls(
            options=options,
            exclude_tools_when_none=exclude_tools_when_none,
            kept_tags=family.kept_tags if family else (),
            turn_grammar=family.turn_grammar if family else False,
            free_turns=not turn_grammar,
            strict_refuses=family.strict_refuses if family else (),
            argument_validation=argument_validation,
        )


@dataclass(frozen=True, slots=True)
class Unconstrained:
    """Nothing holds the output, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Bare:
    """A guided-decoding field holds all output."""

    answer: GuidedAnswer


@dataclass(frozen=True, slots=True)
class Tagged:
    """A structural tag of the family holds the output.

    Attributes:
        policy: what may be called in it.
        answer: the schema-held answer that may stand instead of calls, or alone under `none`.
        must_hold: whether to fall back on guided JSON where the family has no tag.
        bare: whether the answer is held alone, from the first token on, no markup around it.
    """

    policy: ToolPolicy
    answer: JsonAnswer | None = None
    must_hold: bool = False
    bare: bool = False


@dataclass(frozen=True, slots=True)
class GuidedCall:
    """A forced call as bare JSON: structural tags are off."""

    policy: ToolPolicy


Decision: TypeAlias = Unconstrained | Bare | Tagged | GuidedCall


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, and what the request asked for that it leaves out."""

    decision: Decision
    notes: tuple[str, ...] = ()


def decide(request: ChatRequest, deployment: Deployment) -> Decided:
    """The constraint for `request`.

    Raises:
        CallerError: never here; contradictions were refused when the request was parsed.
    """
    match request.answer:
        case GuidedAnswer() as guided:
            note = f"{guided.param} holds all output: no tool can be called"
            return Decided(Bare(guided), (note,) if request.choice.callable else ())
        case JsonAnswer() as wanted:
            return _with_response_format(request, deployment, wanted)
        case _:
            return Decided(_free_answer(request, deployment))


def tool_policy(request: ChatRequest, deployment: Deployment) -> ToolPolicy:
    """The tool choice as families read it; under `none`, the tools that the prompt still shows."""
    mode = request.choice.mode
    tools = (
        prompt_tools(request, exclude_when_none=deployment.exclude_tools_when_none)
        if mode == "none"
        else request.choice.callable
    )
    callable_ = {tool.name for tool in tools}
    shown = () if mode == "none" else request.tools
    others = tuple(tool.name for tool in shown if tool.name not in callable_)
    return ToolPolicy(mode, tools, request.parallel_tool_calls, others)


def _with_response_format(
    request: ChatRequest, deployment: Deployment, wanted: JsonAnswer
) -> Decided:
    policy = tool_policy(request, deployment)
    if policy.choice in ("required", "named"):
        note = "response_format is not applied: the forced tool choice takes its place"
        return Decided(_free_answer(request, deployment), (note,))
    options = deployment.options
    bare = deployment.turn_grammar and deployment.free_turns
    if policy.choice == "none":
        return Decided(Tagged(policy, wanted, must_hold=True, bare=bare))
    if options is not None and options.allow_tool_calls_with_structured_output and not bare:
        return Decided(Tagged(policy, wanted, must_hold=True))
    note = (
        "response_format holds the answer: no tool can be called (structural-tag option "
        "allow_tool_calls_with_structured_output is off)"
    )
    alone = ToolPolicy("none", policy.tools, policy.parallel)
    return Decided(Tagged(alone, wanted, must_hold=True, bare=bare), (note,))


def _free_answer(request: ChatRequest, deployment: Deployment) -> Decision:
    policy = tool_policy(request, deployment)
    options = deployment.options
    if deployment.turn_grammar:
        forced = policy.choice in ("required", "named")
        banned = policy.choice == "none" and request.choice.stated
        if deployment.free_turns and not forced and not banned:
            return Unconstrained("the grammar of turns is switched off")
        return Tagged(policy, must_hold=forced)
    match policy.choice:
        case "required" | "named":
            if options is None and policy.choice not in deployment.kept_tags:
                return GuidedCall(policy)
            return Tagged(policy, must_hold=True)
        case "auto":
            return _auto(policy, options)
        case "none":
            return _none(request, policy, options)


def _auto(policy: ToolPolicy, options: TagOptions | None) -> Decision:
    if options is None:
        return Unconstrained("structural tags are off")
    if options.scope == "auto" and policy.parallel and not any(t.strict for t in policy.tools):
        return Unconstrained("scope auto: no tool is strict and parallel_tool_calls is not false")
    return Tagged(policy)


def _none(request: ChatRequest, policy: ToolPolicy, options: TagOptions | None) -> Decision:
    if not request.choice.stated:
        return Unconstrained("no tools")
    if options is None:
        return Unconstrained("structural tags are off")
    if options.scope == "auto" and not policy.tools:
        return Unconstrained("scope auto: no tools in the prompt")
    return Tagged(policy)
