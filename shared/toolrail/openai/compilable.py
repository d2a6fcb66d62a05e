"""The strongest tag that the engine takes: which schemas hold, which must be left free.

The engine says only that it refuses a tag, so the schemas in it are tried one by one. A schema that
it cannot express is left free unless it must hold; one that costs more than the budgets allow is
the sender's to shrink.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from toolrail.errors import CallerError
from toolrail.openai.report import HeldSchema
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
        must_hold: the tool, or the deployment for all of them, allows no weakening.
        free_because: why they are left free, None: they are not.
    """

    tool: Tool
    schema: JsonSchema | None
    must_hold: bool = False
    free_because: str | None = None

    @property
    def held(self) -> Tool:
        """The tool as the tag's builder must see it."""
        return replace_schema(self.tool, self.schema)

    @property
    def report(self) -> HeldSchema:
        """Its line of the report."""
        return HeldSchema(self.tool.name, self.tool.strict, self.free_because)

    def freed(self, reason: str) -> Arguments:
        """The same tool, any arguments."""
        return Arguments(self.tool, None, free_because=reason)


def replace_schema(tool: Tool, schema: JsonSchema | None) -> Tool:
    """`tool` with another schema and without its description, which no grammar needs."""
    return Tool(tool.name, schema, tool.strict)


def arguments_of(tools: Sequence[Tool], options: TagOptions, style: str) -> tuple[Arguments, ...]:
    """How each tool's arguments are to be held, before the engine is asked.

    `style` is how the family spells arguments: what a grammar misreads depends on it.
    """
    return tuple(_arguments(tool, options, style) for tool in tools)


def _arguments(tool: Tool, options: TagOptions, style: str) -> Arguments:
    if tool.strict is False and options.schema == "auto":
        return Arguments(tool, None, free_because="strict is false")
    must_hold = tool.strict is True or options.schema == "strict"
    return Arguments(tool, tool.parameters, must_hold)


def compilable(
    tag_of: TagOf,
    alone: TagOf,
    wanted: Sequence[Arguments],
    params: Mapping[str, str],
) -> Generator[str, Verdict, tuple[str, tuple[Arguments, ...]] | None]:
    """The strongest tag that passes, and how the arguments are held in it; None: no tag at all.

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
        return None
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
    held = tuple(entry if entry.free_because else entry.freed(reason) for entry in held)
    tag = tag_of([entry.held for entry in held]) or tag
    verdict = yield tag
    return (tag, held) if verdict is None else None


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
            raise blamed(verdict, params[entry.tool.name], f"function '{entry.tool.name}'")
        else:
            tried.append(entry.freed(verdict.message))
    return tuple(tried)


def blamed(verdict: CallerError, param: str, owner: str) -> CallerError:
    """The engine's refusal as a 400 that says whose schema it is."""
    return CallerError(
        f"The grammar engine cannot hold the schema of {owner}: {verdict.message}",
        param=param,
        code=verdict.code or "invalid_grammar",
        status=verdict.status,
    )
