"""What a constraint depends on beside the request, what it is, and the pieces it is made of."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import msgspec

from toolrail.messages import Checks, Guidance
from toolrail.openai.chat import ChatRequest
from toolrail.openai.compilable import Arguments, Verdict
from toolrail.openai.policy import DEFAULT_OPTIONS, Deployment
from toolrail.openai.report import HeldSchema, Report
from toolrail.parsing import ParseSpec
from toolrail.structural_tag import TagFormat, TagOptions
from toolrail.structural_tag.arguments import MAX_WHITESPACE
from toolrail.tools import JsonSchema, StartsIn, Tool, ToolKind, ToolPolicy

Settling: TypeAlias = "Generator[str, Verdict, Constraint]"
"""Yields tags (JSON text) to be checked, is sent each one's verdict, returns the constraint."""


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

    def left_free(self, tool: Tool, options: TagOptions) -> Sequence[str]:
        """What of a tool's schema the tag does not hold, each as `path: why`."""
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
        checks: what is left to be checked after generation.
    """

    guidance: Guidance
    parse: ParseSpec
    max_calls: int | None
    report: Report
    checks: Checks = field(default_factory=Checks)

    @property
    def tag(self) -> object | None:
        """The structural tag as JSON data, None when there is none."""
        text = self.guidance.structural_tag
        return None if text is None else msgspec.json.decode(text)


def unenforceable(setting: Setting) -> str:
    """What the specification answers where a turn grammar cannot give what a request asks for."""
    name = (setting.tool_parser or "this model").capitalize()
    return (
        f"{name} cannot enforce the requested tool constraints with this schema and prompt "
        "configuration"
    )


def json_format(schema: JsonSchema) -> TagFormat:
    """JSON of this schema, with bounded whitespace."""
    return {
        "type": "json_schema",
        "json_schema": schema,
        "style": "json",
        "max_whitespace_cnt": MAX_WHITESPACE,
    }


def tag_json(format_: TagFormat) -> str:
    """The tag of this format, as the engine takes it."""
    return msgspec.json.encode({"type": "structural_tag", "format": format_}).decode()


def parse_spec(setting: Setting, policy: ToolPolicy) -> ParseSpec:
    """What the parser is told: declared schemas, which give the types, without descriptions.

    Grammars of custom tools are held by the tag; where violations fail they are checked as well.
    """
    checked = setting.deployment.argument_validation == "fail"
    return ParseSpec(
        tool_parser=setting.tool_parser,
        reasoning_parser=setting.reasoning_parser,
        tools=tuple(
            Tool(
                tool.name,
                tool.parameters,
                tool.strict,
                kind=tool.kind,
                grammar=tool.grammar if checked else None,
            )
            for tool in policy.tools
        ),
        tool_choice=policy.choice,
        starts_in=setting.starts_in,
    )


def held_spec(spec: ParseSpec, options: TagOptions) -> ParseSpec:
    """`spec` under a tag: a marker is structure where the grammar keeps it out of everything else.

    A ban lets reasoning markers stand anywhere, and so does reasoning before the grammar.
    """
    held = (
        spec.tool_choice != "none"
        and options.exclude_special_tokens is not False
        and options.reasoning_boundary != "backend"
    )
    return msgspec.structs.replace(spec, held=held)


def max_calls(policy: ToolPolicy) -> int | None:
    """Calls after which a choice ends; None: no bound."""
    return 1 if policy.single and policy.choice != "none" else None


def report_lines(policy: ToolPolicy, held: Sequence[Arguments]) -> tuple[HeldSchema, ...]:
    """The tools of the report: those that may be called."""
    return () if policy.choice == "none" else tuple(entry.report for entry in held)


_SCHEMA_PLACES: Final[Mapping[ToolKind, str]] = {
    "function": "function.parameters",
    "custom": "custom.format",
}


def schema_params(request: ChatRequest) -> dict[str, str]:
    """Path of each tool's schema in the request, by name."""
    if request.origin.schemas is not None:
        return dict(request.origin.schemas)
    return {
        tool.name: f"tools[{index}].{_SCHEMA_PLACES[tool.kind]}"
        for index, tool in enumerate(request.tools)
    }
