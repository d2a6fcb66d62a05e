"""The strongest tag that the engine takes: which schemas hold, which must be left free.

The engine says only that it refuses a tag, so the schemas in it are tried one by one. A schema that
it cannot express is left free unless it must hold; one that costs more than the budgets allow is
the sender's to shrink.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import msgspec

from toolrail.errors import CallerError, ConfigError
from toolrail.openai.refusals import refusal
from toolrail.openai.report import HeldSchema, without
from toolrail.schema.enforcement import SchemaReport
from toolrail.schema.normalise import Normalised, normalise
from toolrail.structural_tag import TagOptions
from toolrail.tools import JsonSchema, Tool

Verdict: TypeAlias = CallerError | None
"""Of one tag: None when the engine takes it within the budgets."""

TagOf: TypeAlias = Callable[[Sequence[Tool]], str | None]
"""The tag (JSON text) over these tools, None when there is none."""

TOO_EXPENSIVE: Final = "grammar_too_expensive"
"""`code` of a verdict: the budgets do not allow the tag, whatever the engine would say of it."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """A tool that may be called, and how its arguments are held.

    Attributes:
        tool: as the request declares it.
        schema: what the grammar holds them to, None: any object.
        report: the line of the enforcement report.
        must_hold: the tool, or the deployment for all of them, allows no weakening.
    """

    tool: Tool
    schema: JsonSchema | None
    report: HeldSchema
    must_hold: bool = False

    @property
    def held(self) -> Tool:
        """The tool as the tag's builder must see it; its description is in no grammar."""
        return msgspec.structs.replace(self.tool, parameters=self.schema, description=None)

    @classmethod
    def banned(cls, tool: Tool) -> Arguments:
        """A tool that may not be called: its name matters, its schema does not."""
        return cls(tool, None, HeldSchema(tool.name, tool.strict))

    @classmethod
    def free(cls, tool: Tool, reason: str, detail: str) -> Arguments:
        """Any arguments."""
        return cls(tool, None, HeldSchema.free(tool, reason, detail))


def arguments_of(
    tools: Sequence[Tool],
    options: TagOptions,
    style: str,
    params: Mapping[str, str],
    left_free: Callable[[Tool, TagOptions], Sequence[str]] | None = None,
) -> tuple[Arguments, ...]:
    """How each tool's arguments are to be held, before the engine is asked.

    Args:
        tools: those that may be called.
        options: of the deployment.
        style: how the family spells arguments: what a grammar misreads depends on it.
        params: path of each tool's schema in the request, by name.
        left_free: what the family's tag does not hold of a tool's schema (`path: why`).

    Raises:
        CallerError: a schema that must hold says what neither grammar nor check can hold.
    """
    found = (_arguments(tool, options, style, params[tool.name]) for tool in tools)
    if left_free is None:
        return tuple(found)
    return tuple(_spelled(entry, left_free(entry.held, options)) for entry in found)


def _spelled(entry: Arguments, left_free: Sequence[str]) -> Arguments:
    """`entry` with what the family's spelling leaves free in its report."""
    if entry.schema is None or not left_free:
        return entry
    report = entry.report.report
    for line in left_free:
        path, _, detail = line.partition(": ")
        report = without(report, f"#/{path}", "spelling", detail or "not held in this format")
    return replace(entry, report=replace(entry.report, report=report))


def _arguments(tool: Tool, options: TagOptions, style: str, param: str) -> Arguments:
    if tool.strict is False and options.schema == "auto":
        return Arguments.free(tool, "not_strict", "the tool says strict: false")
    if tool.grammar is not None:  # whatever the schema mode: it was asked for
        report = HeldSchema(tool.name, tool.strict, SchemaReport(("#/format/grammar",)))
        return Arguments(tool, tool.parameters, report, must_hold=True)
    must_hold = tool.strict is True or options.schema == "strict"
    if tool.parameters is None:
        return Arguments(tool, None, HeldSchema(tool.name, tool.strict), must_hold)
    found = _normalised(tool.parameters, style, any_order=options.tool_arguments_any_order)
    if must_hold:
        refuse_lost(found.report, f"function '{tool.name}'", param)
    report = HeldSchema(tool.name, tool.strict, found.report)
    return Arguments(tool, found.schema, report, must_hold)


def _normalised(schema: JsonSchema, style: str, *, any_order: bool) -> Normalised:
    try:
        return normalise(schema, style=style, any_order=any_order)
    except ConfigError:  # a family's own spelling, made of JSON values
        return normalise(schema, any_order=any_order)


def refuse_lost(report: SchemaReport, owner: str, param: str) -> None:
    """Returns unless a keyword of a schema that must hold is lost, or exceeds the limits.

    An unknown `format` may be lost: by its own specification it is an annotation.

    Raises:
        CallerError: names the owner and the keyword.
    """
    for note in report.notes:
        if note.over_budget or (note.status == "dropped" and note.reason != "unknown_format"):
            raise refusal(
                f"The schema of {owner} must hold, and '{note.path}' cannot: {note.detail}.",
                param=param,
                code=TOO_EXPENSIVE if note.over_budget else "invalid_grammar",
            )


def compilable(
    tag_of: TagOf,
    alone: TagOf,
    wanted: Sequence[Arguments],
    params: Mapping[str, str],
) -> Generator[str, Verdict, tuple[str, tuple[Arguments, ...]] | str]:
    """The strongest tag that passes, and how the arguments are held in it; or why there is none.

    Args:
        tag_of: builds the tag of the request.
        alone: builds a tag over one tool and nothing else, to find the schema at fault.
        wanted: the tools, as they should be held.
        params: path of each tool's schema in the request, by name.

    Yields:
        Tags to be checked.

    Raises:
        CallerError: a schema that must hold cannot, or one costs too much.
    """
    tag = tag_of([entry.held for entry in wanted])
    if tag is None:
        return "this parser has no structural tag for these tools"
    verdict = yield tag
    if verdict is None:
        return tag, tuple(wanted)
    held = yield from _each_tried(alone, wanted, params)
    if held != tuple(wanted):
        tag = tag_of([entry.held for entry in held]) or tag
        verdict = yield tag
        if verdict is None:
            return tag, held
    # No schema is at fault by itself: all of them together are.
    if any(entry.must_hold for entry in held):
        raise blamed(verdict, "tools", "the tools together")
    reason = f"the tools together: {verdict.message}"
    held = tuple(
        entry if entry.schema is None else Arguments.free(entry.tool, "too_large", reason)
        for entry in held
    )
    tag = tag_of([entry.held for entry in held]) or tag
    verdict = yield tag
    if verdict is not None:
        return f"the grammar engine takes no tag of this parser: {verdict.message}"
    return tag, held


def _each_tried(
    alone: TagOf, wanted: Sequence[Arguments], params: Mapping[str, str]
) -> Generator[str, Verdict, tuple[Arguments, ...]]:
    tried: list[Arguments] = []
    for entry in wanted:
        tag = alone([entry.held]) if entry.schema is not None else None
        verdict = None if tag is None else (yield tag)
        if verdict is None:
            tried.append(entry)
        elif entry.must_hold or verdict.code == TOO_EXPENSIVE:
            raise blamed(verdict, params[entry.tool.name], _owner(entry.tool))
        else:
            tried.append(Arguments.free(entry.tool, "engine", verdict.message))
    return tuple(tried)


def _owner(tool: Tool) -> str:
    return f"{'function' if tool.kind == 'function' else 'custom tool'} '{tool.name}'"


def blamed(verdict: CallerError, param: str, owner: str) -> CallerError:
    """The engine's refusal as a 400 that says whose schema it is."""
    return CallerError(
        f"The grammar engine cannot hold the schema of {owner}: {verdict.message}",
        param=param,
        code=verdict.code or "invalid_grammar",
        status=verdict.status,
    )
