"""Texts with few readings: rewritten without a change of what matches, or refused."""

from __future__ import annotations

import itertools
import re

import pytest

from tests.families.walking import tag_json
from toolrail.grammar import Matcher, accepts, compile_tag
from toolrail.grammars import UnheldGrammarError, read
from toolrail.grammars.patterns import pattern
from toolrail.grammars.readings import plain
from toolrail.schema.regex.positions import Positions
from toolrail.schema.regex.syntax import Node
from toolrail.structural_tag import grammar
from toolrail.structural_tag.inputs import input_rules
from toolrail.syntax import XmlStyle
from toolrail.tools import InputGrammar

XML = XmlStyle("xml", open="<p=", key_end=">", close="</p>")
TEXTS = ["".join(t) for n in range(5) for t in itertools.product("abc", repeat=n)]
EXPRESSIONS = [
    *("(((a*)*)*)*", "(a+)*", "(a+)+", "(a*|b)*", "(a?b?)*", "(a?b?c?)+", "(a?){3}", "(a+){2,}"),
    *("((a|b)*c?)*", "(a*b*){2}", "(?:)*", "(a|)*b", "(a{1,2}){0,3}", "(a*){1,2}c", "((ab)?|c+)*"),
]


def matches(node: Node, text: str) -> bool:
    places = Positions(node)
    state, taken = places.first, frozenset[int]()
    for character in text:
        taken = frozenset(p for p in state if character in places.sets[p])
        state = frozenset[int]().union(*(places.follow[p] for p in taken))
    return bool(taken & places.last) if text else places.nullable


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_matches_the_same_texts(text: str) -> None:
    expression = re.compile(text)
    node = plain(pattern(text).node)
    for each in TEXTS:
        assert matches(node, each) is bool(expression.fullmatch(each)), each


def held(definition: str, text: str) -> bool:
    rules = input_rules(XML, InputGrammar("lark", definition), guarded=True)
    tag = {"type": "structural_tag", "format": grammar(rules)}
    return accepts(tag, f"<p=input>{text}</p>")


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_rule_matches_the_same_texts(text: str) -> None:
    """The same operators over rules; `{1,2}` and the like are written `~1..2`."""
    expression = re.compile(text)
    rule = re.sub(r"\(\?:\)", '("")', text)
    rule = re.sub(r"\{(\d),\}", r"~\1..4", re.sub(r"\{(\d)\}", r"~\1", rule))
    rule = re.sub(r"\{(\d),(\d)\}", r"~\1..\2", rule)
    rule = re.sub(r"([abc])", r" \1 ", rule)
    rule = rule.replace("|)", '| "")')
    definition = f'start: {rule}\na: "a"\nb: "b"\nc: "c"'
    for each in TEXTS[:40]:
        assert held(definition, each) is bool(expression.fullmatch(each)), each


REFUSED = [
    ('start: e\ne: e "+" e | "1"', "the rule 'e' may begin and end with itself"),
    ('start: a\na: b | "x"\nb: a', "may begin and end with itself"),
    ('start: s\ns: n s s n | "x"\nn: "y"?', "may begin and end with itself"),
    ('start: (s | "a")+ | "b"\ns: start', "may begin and end with itself"),
    ('start: a*\na: "x"? b?\nb: "y"', "the rule 'a' may be empty and is repeated"),
    ('start: (("a"~100)~100)', "its counts multiply beyond 1,000"),
    ('start: a~100\na: b~100\nb: "x"', "its counts multiply beyond 1,000"),
]


@pytest.mark.parametrize(("definition", "reason"), REFUSED, ids=[r for _, r in REFUSED])
def test_what_has_many_readings_is_refused(definition: str, reason: str) -> None:
    with pytest.raises(UnheldGrammarError) as caught:
        read(InputGrammar("lark", definition))
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    "definition",
    [
        'start: e\ne: e "+" t | t\nt: "1" | "(" e ")"',
        'start: t ("+" t)*\nt: "1" | "-" t',
        'start: v\nv: "[" (v ("," v)*)? "]" | "1"',
        'start: s+\ns: "if" b | "x;"\nb: "{" s* "}"',
    ],
)
def test_what_people_write_is_not(definition: str) -> None:
    read(InputGrammar("lark", definition))


@pytest.mark.parametrize(
    "definition", ['start: ((("a"*)*)*)*', "start: /((a*)*)*/", 'start: ("a"+ | "b"*)*']
)
def test_loops_of_loops_cost_no_more_late_than_early(definition: str) -> None:
    """As they are written, the hundredth character would take the engine some 100 ms."""
    rules = input_rules(XML, InputGrammar("lark", definition), guarded=True)
    matcher = Matcher(compile_tag(tag_json(grammar(rules))))
    assert matcher.accept_string("<p=input>" + "a" * 3_000)
