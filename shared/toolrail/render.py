"""The canonical wire text of a turn: what a perfect model writes.

Used by tests (round trip, tag accepts rendering), few-shot text and replay. It writes exactly the
framing that the parser eats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from toolrail.arguments.notation import arguments_text
from toolrail.arguments.types import json_string, value_kind
from toolrail.arguments.writing import parameter_opening, parameter_text
from toolrail.events import Call, Item, Reasoning, Text
from toolrail.syntax import (
    Args,
    ArgumentStyle,
    Index,
    JsonStyle,
    Lit,
    MessageSpelling,
    Name,
    NotationStyle,
    Objects,
    Part,
    ReasoningMarkers,
    Syntax,
    TurnSpelling,
    XmlStyle,
)


def render_turn(
    syntax: Syntax, items: Sequence[Item], reasoning: ReasoningMarkers | None = None
) -> str:
    """`items` as the family writes them; reasoning with its own opener. O(total text)."""
    out: list[str] = []
    before: Item | None = None
    calls = 0
    for at, item in enumerate(items):
        following = items[at + 1] if at + 1 < len(items) else None
        match item:
            case Reasoning(text):
                assert reasoning is not None, "the family writes no reasoning"
                opening = reasoning.begin + reasoning.label
                out += (_gap(syntax, before, item), opening, text, reasoning.end)
                if isinstance(following, (Text, Call)):
                    out.append(reasoning.after)
            case Text(text):
                out += (_gap(syntax, before, item), text)
            case Call():
                out += (_gap(syntax, before, item), _call(syntax, item, calls))
                calls += 1
                out.append(_section_text(syntax, "end", before=item, after=following))
        before = item
    return "".join(out)


def render_messages(spelling: TurnSpelling, style: ArgumentStyle, items: Sequence[Item]) -> str:
    """`items` as a turn made of messages; what the prompt has written of the first is left out."""
    last = len(items) - 1
    messages = [_message(spelling, style, item, last=at == last) for at, item in enumerate(items)]
    return spelling.between.join(messages)


def _message(spelling: TurnSpelling, style: ArgumentStyle, item: Item, *, last: bool) -> str:
    match item:
        case Reasoning(text):
            return _body(spelling.thought, text)
        case Text(text):
            return _body(spelling.answer if last else spelling.remark, text)
        case Call(name, arguments):
            call = spelling.call
            head = call.begin.replace("{name}", name)
            ends = call.last if last else call.ends
            return head + arguments_of(style, arguments) + call.end + ends[0]


def _body(spelling: MessageSpelling, text: str) -> str:
    return spelling.begin + text + spelling.ends[0]


def _gap(syntax: Syntax, before: Item | None, item: Item) -> str:
    """What stands between two items, the section's opener included."""
    opening = _section_text(syntax, "begin", before=before, after=item)
    if isinstance(before, Call):
        body = syntax.call[0]
        if not isinstance(item, Call):
            return syntax.trailing
        if opening or not syntax.section:
            return syntax.separator + opening
        return body.separator if isinstance(body, Objects) else syntax.separator
    led = isinstance(item, Call) and (syntax.always_led or isinstance(before, Text))
    return (syntax.lead if led else "") + opening


def _section_text(syntax: Syntax, side: str, *, before: Item | None, after: Item | None) -> str:
    """The section's opener before its first call, its closer after its last, or nothing."""
    inner, outer = (after, before) if side == "begin" else (before, after)
    body = syntax.call[0]
    each = syntax.section is None or syntax.section.each
    if not isinstance(inner, Call) or (isinstance(outer, Call) and not each):
        return ""
    begin, end = (syntax.section.begin, syntax.section.end) if syntax.section else ("", "")
    array = isinstance(body, Objects) and body.array
    return begin + "[" * array if side == "begin" else "]" * array + end


def _call(syntax: Syntax, call: Call, number: int) -> str:
    return "".join(_part(part, call, number) for part in syntax.call)


def _part(part: Part, call: Call, number: int) -> str:
    match part:
        case Lit(text):
            return text
        case Name(quotes):
            return quotes[:1] + call.name + quotes[:1]
        case Index(start):
            return str(start + number)
        case Args(style):
            return arguments_of(style, call.arguments)
        case Objects():
            identity = f', "{part.id}": {json_string(call.id)}' if part.id and call.id else ""
            return (
                f'{{"{part.name}": {json_string(call.name)}, '
                f'"{part.arguments[0]}": {call.arguments}{identity}}}'
            )


def arguments_of(style: ArgumentStyle, arguments: str) -> str:
    """Arguments (JSON text) in a style."""
    if isinstance(style, JsonStyle):
        return arguments
    values = cast("Mapping[str, object]", json.loads(arguments))
    if isinstance(style, NotationStyle):
        return arguments_text(style, values)
    return "".join(_parameter(style, *each) for each in values.items()) or style.empty


def _parameter(style: XmlStyle, key: str, value: object) -> str:
    opening = parameter_opening(style, key, value_kind(value))
    return f"{opening}{parameter_text(style, value)}{style.close}{style.after}"
