"""From a record of strings to a whole family: parser, tag, ban strings, renderer and markers.

Most model families differ in a dozen strings only; `templated` derives everything from them, so
that the tag, the parser and the renderer cannot disagree. A family that does not fit builds
`Family` itself, from its own constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal

from toolrail.events import Item
from toolrail.parsing import ParseSpec, StreamParser
from toolrail.parsing.blocks import Block, CallBlock, ObjectsBlock, Reading
from toolrail.parsing.guided import GuidedParser
from toolrail.parsing.shapes import CallShape, closers
from toolrail.parsing.turn import TurnParser
from toolrail.parsing.turn_grammar import Grammar
from toolrail.render import render_turn
from toolrail.structural_tag import TagFormat
from toolrail.structural_tag.templated import CallMarkers, TagRequest, bans, templated_tag
from toolrail.syntax import (
    JSON,
    Args,
    ArgumentStyle,
    Lit,
    Marker,
    Objects,
    ReasoningMarkers,
    Syntax,
)
from toolrail.tools import StartsIn, ToolChoice


@dataclass(frozen=True, slots=True)
class PromptPolicy:
    """What the chat template of the family needs of history and switches.

    Attributes:
        arguments: whether history `arguments` are rendered from an object or from the JSON text.
        call_id: shape of the ids that history shows the model.
        named_choice: template variables that a named tool choice sets, whatever the request says.
        defaults: template variables, unless the request says otherwise.
        fixed: template variables, whatever the request says.
        request_fields: request fields of these models alone; each is a template variable.
        tool_names: template variables that name offered tools and are shown those tools.
        reasoning: under which keys history shows reasoning.
        single_calls: whether the template shows one call a message at most, and the text beside it
            as reasoning only.
        text_apart: where the template leaves out the text beside calls: the keys that make a
            message of its own before them out of it.
    """

    arguments: Literal["object", "text"] = "object"
    call_id: Literal["any", "functions_index", "nine_alphanumeric"] = "any"
    named_choice: tuple[tuple[str, bool], ...] = ()
    defaults: tuple[tuple[str, bool], ...] = ()
    fixed: tuple[tuple[str, bool], ...] = ()
    request_fields: tuple[str, ...] = ()
    tool_names: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ("reasoning_content", "reasoning")
    single_calls: bool = False
    text_apart: tuple[tuple[str, str | bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """One output syntax, whole.

    Attributes:
        name: the parser name.
        aliases: further parser names.
        source: where the format was read, with its revision.
        reasoning: markers of the family's own reasoning, or None.
        markers: every control string that skip-special decoding must keep, reasoning's included.
        prompt: what the chat template needs.
        parser: a parser for a request. The second argument: markers of the configured reasoning
            parser, None when there is none (or the family owns its reasoning).
        tag: the structural tag of a request; None: this family has none for it.
        render: canonical wire text of a turn.
        bans: strings that a `tool_choice: none` tag excludes from the output.
        arguments: how arguments are written.
        reasoning_names: reasoning parsers of the same models as this family: one machine reads
            both, and a call inside reasoning is a call.
        owns_reasoning: reasoning is a part of how the family writes turns (a message, a channel),
            or one machine's by specification: no other reasoning parser can stand beside it, and
            its own beside no other family.
        never_beside: further reasoning parsers that cannot stand beside it.
        needs_reasoning: whether the family works with one of `reasoning_names` only.
        routes: generations of parsers (`dyn_parser_version`) that have this name.
        kept_tags: tool choices whose native tag stays where structural tags are switched off.
        turn_grammar: whether a tag holds every turn, also one without tools or a forced choice.
        strict_refuses: schema keywords with which a strict tool is refused, held or not.
        starts_in: what a rendered prompt left open, for families whose reasoning is not a pair of
            markers.
    """

    name: str
    aliases: tuple[str, ...]
    source: str
    reasoning: ReasoningMarkers | None
    markers: tuple[Marker, ...]
    prompt: PromptPolicy
    parser: Callable[[ParseSpec, ReasoningMarkers | None], StreamParser]
    tag: Callable[[TagRequest], TagFormat | None]
    render: Callable[[Sequence[Item]], str]
    bans: tuple[str, ...] = ()
    arguments: ArgumentStyle = JSON
    reasoning_names: tuple[str, ...] = ()
    owns_reasoning: bool = False
    never_beside: tuple[str, ...] = ()
    needs_reasoning: bool = False
    routes: frozenset[str] = frozenset({"1", "2"})
    kept_tags: tuple[ToolChoice, ...] = ()
    turn_grammar: bool = False
    strict_refuses: tuple[str, ...] = ()
    starts_in: Callable[[str], StartsIn] | None = None


def templated(  # noqa: PLR0913 - the fields of a record
    *,
    name: str,
    source: str,
    syntax: Syntax,
    aliases: tuple[str, ...] = (),
    reasoning: ReasoningMarkers | None = None,
    reasoning_names: tuple[str, ...] = (),
    special: tuple[str, ...] = (),
    prompt: PromptPolicy | None = None,
    routes: frozenset[str] = frozenset({"1", "2"}),
    kept_tags: tuple[ToolChoice, ...] = (),
    owns_reasoning: bool = False,
) -> Family:
    """The family that `syntax` describes. `special`: those of its markers that are one token."""
    style = next((p.style for p in syntax.call if isinstance(p, Args)), JSON)
    calls = CallMarkers(opener_markers(syntax), (*stray_markers(syntax), *syntax.inner))
    spoken = (reasoning.begin, reasoning.end) if reasoning else ()
    return Family(
        name=name,
        aliases=aliases,
        source=source,
        reasoning=reasoning,
        markers=tuple(
            Marker(m, special=m in special) for m in dict.fromkeys((*calls.all, *spoken))
        ),
        prompt=prompt or PromptPolicy(),
        parser=partial(_parser, syntax),
        tag=partial(templated_tag, syntax, calls),
        render=partial(_render, syntax, reasoning),
        bans=bans(syntax, calls),
        arguments=style,
        reasoning_names=reasoning_names,
        routes=routes,
        kept_tags=kept_tags,
        owns_reasoning=owns_reasoning,
    )


def opener_markers(syntax: Syntax) -> tuple[str, ...]:
    """Every marker that begins tool markup: the section's spellings, then a call's own opener."""
    section = syntax.section
    found = (section.begin.strip() + "[" * section.word, *section.begins) if section else ()
    if not isinstance(syntax.call[0], Objects) and (section is None or syntax.bare):
        found = (*found, CallShape(syntax).opener)
    return found


def stray_markers(syntax: Syntax) -> tuple[str, ...]:
    """Control strings that mean nothing by themselves: closers, and the record's own strays."""
    last = syntax.call[-1]
    call = last.text.strip().rpartition("\n")[2] if isinstance(last, Lit) else ""
    return tuple(dict.fromkeys((*closers(syntax), *([call] if call else []), *syntax.strays)))


@cache
def grammar(syntax: Syntax, reasoning: ReasoningMarkers | None) -> Grammar:
    """What the turn machine must know of a templated family."""
    first = syntax.call[0]
    if isinstance(first, Objects):
        block: Callable[[str, Reading], Block] = partial(_objects, first, syntax)
        resume, header, prefix = None, "", ""
    else:
        shape = CallShape(syntax)
        block = partial(_calls, shape)
        resume = partial(_resume, shape) if syntax.section else None
        prefix = shape.prefix
        header = shape.opener + prefix if prefix else ""
    return Grammar(
        openers=opener_markers(syntax),
        block=block,
        reasoning=reasoning,
        strays=stray_markers(syntax),
        inner=syntax.inner,
        resume=resume,
        lead=syntax.lead,
        lead_in_part=syntax.lead_in_part,
        separator=syntax.trailing,
        prose_after_opener=syntax.prose_after_opener,
        header=header,
        prefix=prefix,
    )


def _parser(syntax: Syntax, spec: ParseSpec, reasoning: ReasoningMarkers | None) -> StreamParser:
    return turn_parser(grammar(syntax, reasoning), spec)


def turn_parser(grammar: Grammar, spec: ParseSpec) -> StreamParser:
    """The machine of a grammar that `spec` wants: its own markup, or guided JSON."""
    guided = spec.mode == "guided_json" and spec.tool_choice != "none"
    return GuidedParser(grammar, spec) if guided else TurnParser(grammar, spec)


def _render(syntax: Syntax, reasoning: ReasoningMarkers | None, items: Sequence[Item]) -> str:
    return render_turn(syntax, items, reasoning)


def _objects(keys: Objects, syntax: Syntax, opener: str, reading: Reading) -> Block:
    return ObjectsBlock(keys, syntax, reading.output)


def _calls(shape: CallShape, opener: str, reading: Reading) -> Block:
    bare = opener == shape.opener
    careful = reading.careful or (bare and bool(shape.section_begins))
    where = "call" if bare else "section"
    return CallBlock(shape, replace(reading, careful=careful), where=where)


def _resume(shape: CallShape, closer: str, reading: Reading) -> Block | None:
    return None if closer in shape.section_ends else CallBlock(shape, reading, where="resumed")
