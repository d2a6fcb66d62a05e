"""Text that would end the value is kept out of it, and of nothing else."""

from __future__ import annotations

import random

import pytest

from toolrail.grammar import accepts
from toolrail.grammars import UnheldGrammarError
from toolrail.grammars.guard import Guard
from toolrail.schema.regex.charset import ANY
from toolrail.structural_tag import grammar
from toolrail.structural_tag.inputs import input_rules
from toolrail.syntax import XmlStyle
from toolrail.tools import InputGrammar

STYLE = XmlStyle("xml", open="<p=", key_end=">", close="</p>")
BOTH = XmlStyle("xml", open="<p=", key_end=">", close="</p>", next_ends=True)
RESERVED = XmlStyle("xml", open="<p=", key_end=">", close="</p>", reserved="</")


def held(text: str, definition: str, style: XmlStyle = STYLE, syntax: str = "regex") -> bool:
    declared = InputGrammar(syntax, definition)  # type: ignore[arg-type]
    rules = input_rules(style, declared, guarded=True)
    tag = {"type": "structural_tag", "format": grammar(rules)}
    return accepts(tag, f"<p=input>{text}</p>")


@pytest.mark.parametrize("definition", [".*", ".+", "(?:.|x)*", "[^\\n]{0,9}", "[</p>ab]*", ".*b?"])
def test_only_texts_with_the_closer_are_left_out(definition: str) -> None:
    draw = random.Random(definition)
    for _ in range(30):
        text = "".join(draw.choices(["<", "/", "p", ">", "</p", "a", "b"], k=draw.randint(1, 5)))
        if len(text) <= 9:
            # The closer may as well be that of the value: `</p` and `>` before it.
            assert held(text, definition) is ("</p>" not in text), text


def test_the_empty_text_is_one_where_it_may_be() -> None:
    assert held("", ".*")
    assert not held("", ".+")


def test_an_opener_may_end_a_value_too() -> None:
    assert held("a<p=b", ".*")
    assert not held("a<p=b", ".*", BOTH)
    assert held("a<p<p>b", ".*", BOTH)


def test_what_is_reserved_is_left_out_unless_exclusions_are_off() -> None:
    assert not held("a</b", ".*", RESERVED)
    rules = input_rules(RESERVED, InputGrammar("regex", ".*"), guarded=False)
    tag = {"type": "structural_tag", "format": grammar(rules)}
    assert accepts(tag, "<p=input>a</b</p>")
    assert not accepts(tag, "<p=input>a</p>b</p>")


CROSSING = {
    'start: "<" /[a-z\\/>]+/': ("<a>", "</p", "<//p>", "</pp>"),
    'start: "<" /.*/': ("<a", "<</", "<p>"),
    'start: a*\na: "<" | "/p>"': ("<<", "/p>/p>", ""),
    'start: "</" NAME ">" b\nNAME: /[a-z]+/\nb: "</"? "q"': ("</pp></q", "</q>q"),
    'start: (open | "-")+\nopen: "<" tail\ntail: /[^-]*/': ("<a-<b", "-</-<p>"),
}


@pytest.mark.parametrize("definition", CROSSING)
def test_a_closer_across_parts_is_left_out_as_well(definition: str) -> None:
    for text in CROSSING[definition]:
        assert held(text, definition, syntax="lark"), text
    for text in ("</p>", "<</p>", "</p>q", "-</p>", "<</p>/p>"):
        assert not held(text, definition, syntax="lark"), text


@pytest.mark.parametrize(
    "definition",
    [
        'start: a "p>"\na: b | "x"\nb: "y" a | "</"',
        'start: "<" (e | "/p>")\ne: "(" e ")" | "1"',
    ],
)
def test_parts_of_recursive_rules_that_make_the_closer_together_are_refused(
    definition: str,
) -> None:
    with pytest.raises(UnheldGrammarError, match="together make '</p>'"):
        held("", definition, syntax="lark")


def test_parts_that_cannot_make_it_are_not() -> None:
    definition = 'start: (line "\\n")+\nline: /<.*/ | "</" /[^p\\n]*/'
    assert held("<a</pb\n</q>\n", definition, syntax="lark")
    assert not held("<a</p>\n", definition, syntax="lark")


def test_a_text_that_needs_the_closer_cannot_be_written() -> None:
    assert not held("</p>", "</p>|a")
    assert held("a", "</p>|a")


def test_large_expressions_are_refused_beside_a_closer() -> None:
    with pytest.raises(UnheldGrammarError, match="500 character positions"):
        held("", "(?:a?.){300}")


def test_the_guard_reads_as_a_search_does() -> None:
    strings = ("</p>", "<p=", "pp")
    guard = Guard(strings)
    draw = random.Random(3)
    for _ in range(300):
        text = "".join(draw.choices("</p>=a", k=8))
        state: int | None = 0
        for character in text:
            assert state is not None
            (state,) = (after for chars, after in guard.moves(state, ANY) if character in chars)
            if state is None:
                break
        assert (state is None) is any(string in text for string in strings), text
