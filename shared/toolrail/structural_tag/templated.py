"""The structural tag of a templated family: what free text, reasoning and calls may be.

Everything follows from the family's `Syntax`: the trigger, what each call begins and ends with, and
what free text must not contain, which is every marker of the family but the trigger, so that the
grammar lets nothing through that the parser would take for markup.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolrail.structural_tag import (
    TagFormat,
    TagOptions,
    any_text,
    const,
    either,
    optional,
    regex,
    separated,
    sequence,
    tag,
    triggered,
)
from toolrail.structural_tag.arguments import held_arguments
from toolrail.syntax import JSON, Args, Index, Lit, Name, Objects, ReasoningMarkers, Syntax
from toolrail.tools import StartsIn, Tool, ToolPolicy

DEFAULT_OPTIONS: Final = TagOptions()


@dataclass(frozen=True, slots=True)
class TagRequest:
    """What a tag depends on.

    `reasoning`: markers of the configured reasoning parser, or None. `response`: the tag of a
    schema-held answer that may stand instead of calls.
    """

    policy: ToolPolicy
    starts_in: StartsIn = "none"
    options: TagOptions = DEFAULT_OPTIONS
    reasoning: ReasoningMarkers | None = None
    response: TagFormat | None = None

    @property
    def excludes(self) -> bool:
        """Whether free text excludes the family's markers."""
        return self.options.exclude_special_tokens is not False

    @property
    def counts_calls(self) -> bool:
        """Whether a call in free text would break the choice, whatever else text may contain."""
        return self.policy.single or self.policy.choice == "required"


@dataclass(frozen=True, slots=True)
class CallMarkers:
    """The control strings of a family's calls. `openers[0]` is the trigger."""

    openers: tuple[str, ...]
    closers: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.openers, *self.closers)


def templated_tag(syntax: Syntax, markers: CallMarkers, request: TagRequest) -> TagFormat | None:
    """The tag of `request`; None when there is nothing to hold."""
    policy = request.policy
    if policy.choice == "none":
        return _without_calls(syntax, markers, request)
    if not policy.tools:
        return None
    tags = [call_tag(syntax, tool, request.options) for tool in policy.tools]
    if request.response is not None:
        calls = calls_only(syntax, tags, single=policy.single)
        body = either([_led(syntax, calls), request.response])
    elif policy.choice == "named":
        body = _led(syntax, calls_only(syntax, tags, single=True))
    else:
        body = _calls_in_text(syntax, tags, markers, request)
    return after_reasoning(body, syntax, markers, request)


def call_tag(syntax: Syntax, tool: Tool, options: TagOptions) -> TagFormat:
    """One call of `tool`, with its section when each call has its own."""
    first = syntax.call[0]
    begin, end = ("", "")
    if syntax.section is not None and syntax.section.each:
        begin, end = syntax.section.begin, syntax.section.end
    if isinstance(first, Objects):
        name = json.dumps(tool.name, ensure_ascii=False)
        begin += f'{{"{first.name}": {name}, "{first.arguments[0]}": '
        arguments = held_arguments(JSON, tool, options).format
        return tag(begin, arguments, "}" + end)
    content: list[TagFormat] = []
    for part in syntax.call[:-1]:
        match part:
            case Lit(text) if content:
                content.append(const(text))
            case Lit(text):
                begin += text
            case Name(quotes):
                begin += quotes[:1] + tool.name + quotes[:1]
            case Index():
                content.append(regex("[0-9]+"))
            case Args(style):
                content.append(held_arguments(style, tool, options).format)
            case Objects():
                raise AssertionError("objects are the whole of a call")
    last = syntax.call[-1]
    assert isinstance(last, Lit)
    return _tag(syntax, begin, sequence(content), last.text + end)


def calls_only(syntax: Syntax, tags: Sequence[TagFormat], *, single: bool) -> TagFormat:
    """Calls and nothing else, in one section where the family has one for all of them."""
    first, array = syntax.call[0], _is_array(syntax)
    section = syntax.section
    if section is not None and section.each:
        return _list(tags, syntax.separator, single=single)
    between = first.separator if isinstance(first, Objects) else syntax.separator
    calls = _list(tags, between, single=single)
    if section is None:
        return calls
    return _tag(syntax, section.begin + "[" * array, calls, "]" * array + section.end)


def _tag(syntax: Syntax, begin: str, content: TagFormat, end: str) -> TagFormat:
    if not syntax.loose:
        return tag(begin, content, end)
    if begin.endswith("\n"):
        begin, content = begin[:-1], sequence([optional(const("\n")), content])
    held = tag(begin, content, end)
    return {**held, "end": [end, end[:-1]]} if end.endswith("\n") else held


def _is_array(syntax: Syntax) -> bool:
    first = syntax.call[0]
    return isinstance(first, Objects) and first.array


def _list(tags: Sequence[TagFormat], separator: str, *, single: bool) -> TagFormat:
    if single and len(tags) == 1:
        return tags[0]
    return separated(tags, separator, stop_after_first=single)


def _calls_in_text(
    syntax: Syntax, tags: Sequence[TagFormat], markers: CallMarkers, request: TagRequest
) -> TagFormat:
    section = syntax.section
    single = request.policy.single
    trigger = markers.openers[0]
    if section is not None and not section.each:
        tags = [calls_only(syntax, tags, single=single)]
    banned = [*markers.all, *reasoning_strings(request.reasoning), *syntax.reserved]
    # A string that is part of the trigger would make the trigger itself impossible to write.
    excludes = [b for b in _kept_out(banned, syntax, markers, request) if b not in trigger]
    required = request.policy.choice == "required"
    body = triggered(
        trigger, tags, excludes=excludes, at_least_one=required, stop_after_first=single
    )
    return _led(syntax, body) if required else body


def _led(syntax: Syntax, calls: TagFormat) -> TagFormat:
    """`calls`, after the lead where the template writes it in any case."""
    return sequence([optional(const(syntax.lead)), calls]) if syntax.always_led else calls


def _without_calls(syntax: Syntax, markers: CallMarkers, request: TagRequest) -> TagFormat:
    """The ban: any text in which no call can begin. It holds inside reasoning as well."""
    if request.response is None:
        return any_text(bans(syntax, markers))
    return after_reasoning(request.response, syntax, markers, request)


def bans(syntax: Syntax, markers: CallMarkers) -> tuple[str, ...]:
    """The strings that keep calls out of a text."""
    return syntax.bans or markers.openers


def after_reasoning(
    body: TagFormat, syntax: Syntax, markers: CallMarkers, request: TagRequest
) -> TagFormat:
    """`body` after the reasoning that the prompt opened, or that the model may open itself."""
    before = _reasoning(syntax, markers, request)
    if not before:
        return body
    after = request.reasoning.after if request.reasoning else ""
    framing = after if syntax.always_led else after + syntax.lead
    if framing and not framing.strip("\n"):
        gap = [regex(f"\\n{{0,{len(framing)}}}")]
    else:
        gap = [optional(const(framing))] if framing else []
    if request.starts_in == "reasoning":
        return sequence([*before, *gap, body])
    return sequence([optional(sequence([*before, *gap])), body])


def _kept_out(
    strings: Sequence[str], syntax: Syntax, markers: CallMarkers, request: TagRequest
) -> Sequence[str]:
    """`strings`, or where the deployment lets text contain them those that begin calls too many."""
    if request.excludes:
        return strings
    return bans(syntax, markers) if request.counts_calls else ()


def _reasoning(syntax: Syntax, markers: CallMarkers, request: TagRequest) -> list[TagFormat]:
    """The reasoning before everything else; nothing when the engine owns its boundary."""
    reasoning = request.reasoning
    if reasoning is None or request.options.reasoning_boundary == "backend":
        return []
    banned = [*markers.all, reasoning.begin, *reasoning.begins]
    banned = _kept_out(banned, syntax, markers, request)
    span = any_text([b for b in banned if b not in reasoning.end])
    if request.starts_in == "reasoning":
        return [tag("", span, reasoning.end)]
    if request.starts_in == "none":
        return [tag(reasoning.begin, span, reasoning.end)]
    return []


def reasoning_strings(reasoning: ReasoningMarkers | None) -> tuple[str, ...]:
    """Every control string of reasoning."""
    if reasoning is None:
        return ()
    return (
        reasoning.begin,
        reasoning.end,
        *reasoning.begins,
        *reasoning.ends,
        *reasoning.strays,
    )
