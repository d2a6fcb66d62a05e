"""What the renderer writes, the parser reads back; and the tag takes it where it may be written."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.families.loading import FAMILIES, events, random_cuts
from tests.families.walking import CHOICES, tag_json
from toolrail.events import Call, Item, Reasoning, Text, assemble
from toolrail.families import Dialect, dialect, family
from toolrail.grammar import accepts
from toolrail.parsing import ParseSpec
from toolrail.structural_tag import TagOptions
from toolrail.syntax import NotationStyle, XmlStyle
from toolrail.tools import Tool, ToolPolicy

TOOL = Tool(
    "write_file",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "text": {"type": "string"},
            "lines": {"type": "integer"},
            "options": {"type": "object"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    },
)
OTHER = Tool("ping", {"type": "object", "properties": {}})
# Without quotes, which would make a marker beside them a quoted one, and without marker characters.
# Formats in which calls are the whole output or text is.
WHOLE_OUTPUT = ("default",)
PROSE = st.text(st.sampled_from("abz é東,.!?\n\t0(){}-"), min_size=1, max_size=30)


@cache
def pair(name: str) -> Dialect:
    own = family(name)
    return dialect(name, own.reasoning_names[0] if own.reasoning_names else None)


def values(name: str) -> st.SearchStrategy[str]:
    """Text with the family's markers planted in it, less what its wire cannot carry."""
    planted = [marker.text for marker in pair(name).markers]
    style = family(name).arguments
    text = st.lists(
        st.sampled_from([*planted, '"', "\\", "\n", "{", "}", "]", "é", "東", "a", "  ", "null"]),
        max_size=8,
    ).map("".join)
    if isinstance(style, XmlStyle):
        # The value's own closer cannot be told from data when structure follows it.
        return text.filter(lambda value: style.close not in value)
    if isinstance(style, NotationStyle) and style.values.guard:
        return text.filter(lambda value: style.values.guard not in value)
    return text


def calls(name: str) -> st.SearchStrategy[Call]:
    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | values(name),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(values(name), inner, max_size=2)
        ),
        max_leaves=4,
    )
    arguments = st.fixed_dictionaries(
        {},
        optional={
            "path": values(name),
            "text": values(name),
            "lines": st.integers(),
            "options": st.dictionaries(values(name), json_values, max_size=2),
            "tags": st.lists(values(name), max_size=2),
        },
    )
    written = arguments.map(lambda a: Call(TOOL.name, json.dumps(a, ensure_ascii=False)))
    return written | st.just(Call(OTHER.name, "{}"))


def turns(name: str) -> st.SearchStrategy[list[Item]]:
    own = pair(name)
    reasoning = st.builds(Reasoning, PROSE)
    text = st.builds(Text, PROSE)
    kinds = [text, calls(name)]
    if own.family is not None and own.family.reasoning is not None:
        kinds.append(reasoning)
    if name in WHOLE_OUTPUT:
        return st.lists(calls(name), max_size=5) | st.lists(text, max_size=1)
    return st.lists(st.one_of(kinds), max_size=5).map(_merged)


def _merged(items: list[Item]) -> list[Item]:
    """Neighbours of one kind are one item: no parser can tell them apart."""
    out: list[Item] = []
    for item in items:
        if out and not isinstance(item, Call) and type(out[-1]) is type(item):
            continue
        out.append(item)
    return out


def examples(most: int) -> settings:
    return settings(
        max_examples=most,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )


@pytest.mark.parametrize("name", FAMILIES)
@examples(4)
@given(data=st.data())
def test_parse_of_render_is_the_turn(name: str, data: st.DataObject) -> None:
    check_round_trip(name, data)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FAMILIES)
@examples(20)
@given(data=st.data())
def test_parse_of_render_is_the_turn_in_many(name: str, data: st.DataObject) -> None:
    check_round_trip(name, data)


def check_round_trip(name: str, data: st.DataObject) -> None:
    items = data.draw(turns(name))
    text = pair(name).render(items)
    spec = ParseSpec(name, pair(name).reasoning_parser, (TOOL, OTHER))
    for chunks in ([text], text, random_cuts(text, text)):
        turn = assemble(events(spec, chunks))
        assert [_value(i) for i in turn.items] == [_value(i) for i in items], text
        assert not turn.incomplete_calls


def _value(item: Item) -> object:
    """Arguments as values: XML wires carry no spelling of JSON. Wire ids are the wire's."""
    if isinstance(item, Call):
        return item.name, json.loads(item.arguments)
    return item


CALL = Call(TOOL.name, '{"path": "a.txt", "lines": 3}')
PING = Call(OTHER.name, "{}")
BAD = Call(TOOL.name, '{"lines": "many", "options": []}')
TURNS = {
    "call": ([CALL], {"auto", "required", "named"}),
    "two calls": ([CALL, PING], {"auto", "required"}),
    "text": ([Text("Hello, how are you?")], {"auto", "none"}),
    "text then call": ([Text("On it."), CALL], {"auto"}),
    "another tool": ([PING], {"auto", "required"}),
    "wrong types": ([BAD], set[str]()),
}


@pytest.mark.parametrize("what", TURNS)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_tag_takes_what_may_be_written(name: str, what: str) -> None:
    items, allowed = TURNS[what]
    own = family(name)
    if own.turn_grammar:  # every turn reasons first, and says nothing before a call
        items = [Reasoning("hm"), *items]
        allowed = set[str]() if what == "text then call" else allowed
    text = pair(name).render(items)
    for choice in CHOICES:
        offered = (TOOL,) if choice == "named" else (TOOL, OTHER)
        for parallel in (True, False):
            policy = ToolPolicy(choice, offered, parallel)
            tag = pair(name).tag(policy, "none", TagOptions())
            if tag is None:
                continue
            too_many = policy.single and sum(isinstance(i, Call) for i in items) > 1
            expected = choice in allowed and not too_many
            assert accepts(tag_json(tag), text) == expected, (choice, parallel, text)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_tag_takes_reasoning_first(name: str) -> None:
    own = pair(name)
    if own.family is None or own.family.reasoning is None:
        return
    begin = own.family.reasoning.begin
    for items in ([Reasoning("hm"), CALL], [Reasoning("hm"), Text("Hello.")]):
        text = own.render(items)
        for choice in ("auto", "required", "named"):
            offered = (TOOL,) if choice == "named" else (TOOL, OTHER)
            policy = ToolPolicy(choice, offered)
            expected = choice == "auto" or isinstance(items[-1], Call)
            opened = own.tag(policy, "reasoning", TagOptions())
            unopened = own.tag(policy, "none", TagOptions())
            if opened is None or unopened is None:
                continue
            rest = text.removeprefix(begin)
            assert accepts(tag_json(opened), rest) == expected, (choice, rest)
            assert accepts(tag_json(unopened), text) == expected, (choice, text)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_ban_keeps_every_opener_out(name: str) -> None:
    own = pair(name)
    tag = own.tag(ToolPolicy("none", (TOOL, OTHER)), "none", TagOptions())
    assert own.bans or tag is None
    first = [Reasoning("hm")] if family(name).turn_grammar else []
    for ban in own.bans:
        assert tag is not None
        assert not accepts(tag_json(tag), own.render([*first, Text(f"Hm {ban}")]))
        assert not accepts(tag_json(tag), own.render([*first, CALL]))
        assert accepts(tag_json(tag), own.render([*first, Text(f"Hm {ban[:-1]}.")]))
