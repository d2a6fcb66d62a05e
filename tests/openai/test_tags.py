"""Policies × families: what the grammar of a request accepts and refuses, string by string.

Turns are written by each family's own renderer. `F`: a good call of `f`; `G`: of `g`; `BAD`: of `f`
with a wrong type; `ODD`: of a tool that was not offered; `T`: prose; `J`: JSON of the schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.openai import bodies
from toolrail.errors import CallerError
from toolrail.events import Call, Item, Reasoning, Text, assemble
from toolrail.families import Dialect, dialect, families
from toolrail.grammar import GrammarError, Matcher, compile_tag
from toolrail.openai.chat import check_chat
from toolrail.openai.constraint import Constraint, Setting, settle
from toolrail.openai.policy import Deployment
from toolrail.structural_tag import TagOptions
from toolrail.tools import StartsIn

TRIP = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


def function(name: str, **more: Any) -> dict[str, Any]:
    return bodies.function(name, TRIP, **more)


TOOLS = [function("f"), function("g")]
LOOSE = [function("f", strict=False), function("g", strict=False)]
NAMED = {"type": "function", "function": {"name": "f"}}
ONLY_G = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]},
}
JSON = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": TRIP}}}
F = Call("f", '{"city": "Paris", "days": 2}')
G = Call("g", '{"city": "Rome", "days": 3}')
BAD = Call("f", '{"city": "Paris", "days": "many"}')
ODD = Call("h", '{"city": "Paris", "days": 2}')
T = Text("Sure, one moment.")
J = Text('{"city": "Paris", "days": 2}')
WRONG_J = Text('{"city": "Paris", "days": "2"}')
EITHER = TagOptions(allow_tool_calls_with_structured_output=True)


@dataclass(frozen=True)
class Row:
    name: str
    fields: dict[str, Any]
    accepts: tuple[tuple[Item, ...], ...]
    refuses: tuple[tuple[Item, ...], ...]
    options: TagOptions | None = field(default_factory=TagOptions)


ROWS = [
    Row("auto", {"tools": TOOLS}, ((T,), (F,), (T, F), (F, G), (F, F)), ((BAD,), (ODD,))),
    Row(
        "auto, one call",
        {"tools": TOOLS, "parallel_tool_calls": False},
        ((T,), (F,), (T, F)),
        ((F, G), (F, F), (BAD,)),
    ),
    Row("required", {"tools": TOOLS, "tool_choice": "required"}, ((F,), (F, G)), ((T,), (BAD,))),
    Row(
        "required, one call",
        {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
        ((F,), (G,)),
        ((F, G), (T,), (ODD,)),
    ),
    Row("named", {"tools": TOOLS, "tool_choice": NAMED}, ((F,),), ((G,), (F, F), (T,), (BAD,))),
    Row("allowed", {"tools": TOOLS, "tool_choice": ONLY_G}, ((G,), (T,)), ((F,),)),
    Row("none", {"tools": TOOLS, "tool_choice": "none"}, ((T,),), ((F,), (T, F))),
    Row("loose", {"tools": LOOSE}, ((F,), (BAD,), (T, BAD)), ((ODD,),)),
    Row(
        "loose, strict mode",
        {"tools": LOOSE, "tool_choice": "required"},
        ((F,),),
        ((BAD,), (ODD,)),
        TagOptions(schema="strict"),
    ),
    Row("format", JSON, ((J,),), ((T,), (WRONG_J,))),
    Row("format beside tools", {"tools": TOOLS, **JSON}, ((J,),), ((T,), (F,))),
    Row("format or calls", {"tools": TOOLS, **JSON}, ((J,), (F,)), ((T,), (WRONG_J,)), EITHER),
    Row(
        "format, call required",
        {"tools": TOOLS, "tool_choice": "required", **JSON},
        ((F,),),
        ((J,), (T,)),
        EITHER,
    ),
]


def constrained(
    speaks: Dialect,
    fields: dict[str, Any],
    options: TagOptions | None,
    starts_in: StartsIn = "none",
) -> Constraint:
    """As the server makes it; the engine's word is the real engine's."""
    deployment = Deployment.of(speaks.family, options=options, exclude_tools_when_none=False)
    setting = Setting(deployment, speaks, speaks.tool_parser, speaks.reasoning_parser, starts_in)
    settling = settle(check_chat(bodies.body(**fields)), setting)
    try:
        tag = next(settling)
        while True:
            verdict: CallerError | None = None
            try:
                compile_tag(tag)
            except GrammarError as error:
                verdict = CallerError(str(error), code="invalid_grammar")
            tag = settling.send(verdict)
    except StopIteration as settled:
        return settled.value


def accepted(tag: str, text: str) -> bool:
    matcher = Matcher(compile_tag(tag))
    return matcher.accept_string(text) and matcher.can_end


def written(speaks: Dialect, *items: Item) -> str:
    """The turn in the family's markup; reasoning comes first where every turn has some."""
    if speaks.family and speaks.family.turn_grammar and not isinstance(items[0], Reasoning):
        items = (Reasoning("Let me see."), *items)
    return speaks.render(items)


HOLDING = [family for family in families() if family.name != "default"]
"""Only `default` has no tag."""


def spoken(family: Any) -> Dialect:
    reasoning = family.reasoning_names[0] if family.reasoning_names else None
    return dialect(family.name, reasoning)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
@pytest.mark.parametrize("family", HOLDING, ids=[family.name for family in HOLDING])
def test_what_a_policy_accepts(family: Any, row: Row) -> None:
    speaks = spoken(family)
    constraint = constrained(speaks, row.fields, row.options)
    assert constraint.report.held_by == "structural_tag"
    tag = constraint.guidance.structural_tag
    assert tag is not None
    for items in row.accepts:
        # Under a turn grammar a turn has calls or an answer, never both.
        both = {type(item) for item in items} == {Text, Call}
        expected = not (both and family.turn_grammar)
        assert accepted(tag, written(speaks, *items)) is expected, items
    for items in row.refuses:
        text = written(speaks, *items)
        assert not accepted(tag, text) or is_prose(speaks, constraint, text), items


def is_prose(speaks: Dialect, constraint: Constraint, text: str) -> bool:
    """Whether the parser reads text, where only an offered name tells a call from it."""
    if any(marker.text in text for marker in speaks.markers):
        return False
    parser = speaks.parser(constraint.parse)
    return assemble([*parser.feed(text), *parser.finish()]).items == (Text(text),)


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
@pytest.mark.parametrize(
    "family",
    [family for family in HOLDING if family.reasoning],
    ids=[family.name for family in HOLDING if family.reasoning],
)
def test_a_policy_holds_after_reasoning_that_the_prompt_opened(family: Any, row: Row) -> None:
    speaks = spoken(family)
    tag = constrained(speaks, row.fields, row.options, "reasoning").guidance.structural_tag
    assert tag is not None
    begun = len(family.reasoning.begin)
    for items in row.accepts:
        text = speaks.render((Reasoning("Let me see."), *items))
        both = {type(item) for item in items} == {Text, Call}
        expected = not (both and family.turn_grammar)
        assert accepted(tag, text[begun:]) is expected, items
    for items in row.refuses:
        text = speaks.render((Reasoning("Let me see."), *items))
        assert not accepted(tag, text[begun:]), items


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
@pytest.mark.parametrize("family", families(), ids=[family.name for family in families()])
def test_with_tags_off_a_forced_call_is_held_all_the_same(family: Any, choice: Any) -> None:
    constraint = constrained(spoken(family), {"tools": TOOLS, "tool_choice": choice}, None)
    held_by = constraint.report.held_by
    mode = "required" if choice == "required" else "named"
    kept = mode in family.kept_tags or family.turn_grammar
    assert held_by == ("structural_tag" if kept else "guided_json")


@pytest.mark.parametrize("family", families(), ids=[family.name for family in families()])
def test_with_tags_off_an_auto_choice_is_free(family: Any) -> None:
    constraint = constrained(spoken(family), {"tools": TOOLS}, None)
    assert constraint.report.held_by == ("structural_tag" if family.turn_grammar else "nothing")


@pytest.mark.parametrize("family", HOLDING, ids=[family.name for family in HOLDING])
def test_a_ban_holds_in_any_cut(family: Any) -> None:
    """Byte by byte, as an engine that spells a marker from pieces would write it."""
    speaks = spoken(family)
    fields = {"tools": TOOLS, "tool_choice": "none"}
    tag = constrained(speaks, fields, TagOptions()).guidance.structural_tag
    assert tag is not None
    matcher = Matcher(compile_tag(tag))
    assert not all(matcher.accept_string(bytes([byte])) for byte in written(speaks, F).encode())
