"""Lark grammars: what is read of them, against Lark itself, and what is refused and why."""

from __future__ import annotations

from functools import cache

import lark
import pytest

from tests.grammars.drawing import Drawing
from toolrail.arguments.types import json_string
from toolrail.grammar import accepts
from toolrail.grammars import UnheldGrammarError, read
from toolrail.grammars.common import COMMON
from toolrail.grammars.patterns import pattern
from toolrail.schema.regex.positions import Positions
from toolrail.structural_tag import TagFormat, grammar
from toolrail.structural_tag.inputs import input_rules
from toolrail.syntax import JSON, XmlStyle
from toolrail.tools import InputGrammar

XML = XmlStyle("xml", open="<p=", key_end=">", close="</p>")

ARITHMETIC = r"""
?start: expr
?expr: term (("+" | "-") term)*      // left to right
?term: factor ((("*" | "/")) factor)*
factor: NUMBER -> number
      | "-" factor
      | "(" expr ")"
# the usual imports
%import common.NUMBER
%import common (WS_INLINE, CNAME)
%ignore WS_INLINE
"""
STATEMENT = r"""
start: "select"i _list "from"i NAME ["where"i condition] ";"?
_list: "*" | NAME ("," NAME)~0..2
condition: NAME OP (VALUE | ESCAPED_STRING)
OP.2: "=" | "<" "="? | ">"
NAME: LETTER (LETTER | DIGIT | "_")*
VALUE: /[0-9]{1,4}(\.[0-9]+)?/
LETTER: "a".."z" | "A".."Z"
%import common.DIGIT
%import common.ESCAPED_STRING
%import common.WS
%ignore WS
"""
SHAPES = r"""
start: (item NL)+
item: "é" ~ 2 | /[^\S\n]+\w*/i | _HEX ["h"] | "x"* "y"
!nothing: "never"
_HEX: ("0".."9" | "a".."f")~2
NL: "\n" | "\r\n"
"""
NESTED = r"""
start: value
value: "{" [pair ("," pair)*] "}" | "[" [value ("," value)*] "]" | ESCAPED_STRING | "true"
pair: ESCAPED_STRING ":" value
%import common.ESCAPED_STRING
"""
CASES = {
    "arithmetic": (
        ARITHMETIC,
        ["1", "1 + 2*3", "-(4 - .5) / 2 ", " 7", "1e3"],
        ["", "1 +", "(1", "1 2", "1\n"],
    ),
    "statement": (
        STATEMENT,
        [
            "select * from t",
            'SELECT a, b1 FROM t WHERE a <= "x\\"y";',
            "Select a,b,c from t where a>12.5",
            "selecta fromb",
        ],
        ["select a,b,c,d from t", "select from t", "select * from t where a > 12345 x", ";"],
    ),
    "shapes": (
        SHAPES,
        ["éé\n", " \tabc\r\n00h\n", "xxxy\ny\n", "ff\n"],
        ["é\n", "éé", "0h\n", "\n", "FF\n", "never\n"],
    ),
    "nested": (
        NESTED,
        ['{"a":[true,{}],"b":"c\\\\"}', "[]", '"\\""'],
        ['{"a"}', "[true", "true true", '"\\"'],
    ),
}


@cache
def oracle(name: str) -> lark.Lark:
    return lark.Lark(CASES[name][0], parser="earley", lexer="dynamic_complete")


def by_lark(name: str, text: str) -> bool:
    try:
        oracle(name).parse(text)
    except lark.exceptions.UnexpectedInput:
        return False
    return True


def json_tag(name: str) -> TagFormat:
    return grammar(input_rules(JSON, InputGrammar("lark", CASES[name][0]), guarded=True))


def xml_tag(name: str) -> TagFormat:
    return grammar(input_rules(XML, InputGrammar("lark", CASES[name][0]), guarded=True))


def matches(tag: TagFormat, text: str) -> bool:
    return accepts({"type": "structural_tag", "format": tag}, text)


@pytest.mark.parametrize("name", CASES)
def test_texts_pass_that_lark_takes(name: str) -> None:
    _, good, bad = CASES[name]
    for text in (*good, *bad):
        known = text in good
        assert by_lark(name, text) is known, text
        assert matches(json_tag(name), f'{{"input": {json_string(text)}}}') is known, text
        assert matches(xml_tag(name), f"<p=input>{text}</p>") is known, text


@pytest.mark.parametrize("name", CASES)
def test_lark_takes_what_is_drawn(name: str) -> None:
    words = ["select", "from", "where", " a", "1", '"', "\\n", "éé", "<", "ff", "true", ":"]
    ends = ["</p>", "\n", ")", "]", "}", "1"]
    for wire in Drawing(words, ends).texts(xml_tag(name), 6, name):
        text = wire.removeprefix("<p=input>").removesuffix("</p>")
        assert by_lark(name, text), text


@pytest.mark.parametrize("name", sorted(COMMON))
def test_common_terminals_are_lark_s(name: str) -> None:
    """Every terminal, on texts that its neighbours match as well."""
    texts = [
        *("0", "7", "12", "a", "F", "g", "+1", "-2", "1.", ".5", "1.5e-3", "1e+2", "word", "_a1"),
        *(" ", "\t ", "\n", "\r\n\n", "\r", "# x", "// x", "/* * a */", "/**/", "-- x"),
        *('"a\\"b"', '""', '"\\\\"', '"a', "é", "1_", "/* a"),
    ]
    lib = lark.Lark(
        f"start: {name}\n%import common.{name}", parser="earley", lexer="dynamic_complete"
    )
    places = Positions(pattern(COMMON[name]).node)
    for text in texts:
        state, taken = places.first, frozenset[int]()
        for character in text:
            taken = frozenset(p for p in state if character in places.sets[p])
            state = frozenset[int]().union(*(places.follow[p] for p in taken))
        try:
            lib.parse(text)
        except lark.exceptions.UnexpectedInput:
            assert not taken & places.last, text
        else:
            assert taken & places.last, text


REFUSED = [
    ("begin: \"a\"", "no rule 'start'"),
    ("start: other", "line 1: the rule 'other' is not defined"),
    ("start: OTHER", "the terminal 'OTHER' is not defined"),
    ("start: A\nA: b\nb: \"x\"", "rule, which no terminal has, 'b'"),
    ("start: A\nA: \"a\" B\nB: A", "the terminal 'A' is part of itself"),
    ("start: start \"a\"", "no text matches it"),
    ("start: /a(?=b)/", "look-ahead inside the expression"),
    ("start: /(?<!a)b/", "look-behind"),
    ("start: /(a)\\1/", "back reference"),
    ("start: /\\bword/", "word boundary"),
    ("start: /^a$/", "has an anchor"),
    ("start: /\".*?\"/", "has a lazy repeat"),
    ("start: /\\Aa/", "escape \\A"),
    ("start: /\\p{L}/", "Unicode property"),
    ("start: /a/x", "the flag 'x'"),
    ("start: /a{,3}/", "bounds without the lower one"),
    ("start: /[a/", "line 1 cannot be read"),
    ("start: a{\"x\"}\na{x}: x", "line 1: templates are not supported"),
    ("a{x}: x\nstart: \"a\"", "has parameters"),
    ("start[capture]: \"a\"", "has parameters or attributes"),
    ("start: \"a\"\n%declare B", "'%declare' is not supported"),
    ("start: \"a\"\n%import other.X", "only 'common' can be imported"),
    ("start: \"a\"\n%import common.NOPE", "'common' has no 'NOPE'"),
    ("start: \"a\"\n%json {}", "'%json' is not supported"),
    ("start: \"a\"\nstart: \"b\"", "'start' is defined twice"),
    ("start: \"a\"~3..2", "out of order"),
    ("start: \"a\"~2000", "a count is a number up to 1,000"),
    ("start: \"z\"..\"a\"", "a range out of order"),
    ("start: \"ab\"..\"c\"", "from one character to another"),
    ("start: (\"a\"", "')' is missing"),
    ("start: \"a\" )", "line 1 cannot be read at ')'"),
    ("start \"a\"", "':' is missing"),
    ("start: 'a'", "line 1 cannot be read"),
    ("start: \"\\q\"\n: x", "line 2 cannot be read"),
    ("start: " + "(" * 40 + '"a"' + ")" * 40, "nest more than 32 deep"),
    ("\n".join(f"r{i}: \"a\"" for i in range(1001)), "more than 1,000 definitions"),
    # Terminals that double with each line, and those that do it with nothing in them.
    ("start: A19\nA0: \"ab\"\n" + "\n".join(f"A{i + 1}: A{i} A{i}" for i in range(20)), "4,000"),
    ("start: A19\nA0: \"\"|\"\"\n" + "\n".join(f"A{i + 1}: A{i}|A{i}" for i in range(20)), "4,000"),
    ("start: A400\nA0: \"a\"\n" + "\n".join(f"A{i + 1}: A{i}" for i in range(400)), "150 deep"),
    ("start: " + " ".join('"' + "a" * 900 + '"' for _ in range(30)), "20,000 parts"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_what_cannot_be_held_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UnheldGrammarError) as caught:
        read(InputGrammar("lark", text))
    assert reason in caught.value.reason


def test_aliases_priorities_and_comments_change_nothing() -> None:
    plain = 'start: a | b\na: "x"\nb: Y\nY: "y"'
    dressed = (
        '// one\n?start.3: a -> first\n     | b -> second // two\n!a: "x" # three\n\n'
        '_unused: "z"\nb: Y\nY.-1: "y"\n'
    )
    one, two = (read(InputGrammar("lark", text)) for text in (plain, dressed))
    assert {name: two.rules[name] for name in one.rules} == dict(one.rules)


def test_brackets_may_span_lines() -> None:
    declared = InputGrammar("lark", 'start: ("a"\n  "b"\n) "c"')
    tag = grammar(input_rules(XML, declared, guarded=True))
    assert matches(tag, "<p=input>abc</p>")
    assert not matches(tag, "<p=input>ab</p>")


def test_anchors_of_a_regex_format_mean_the_whole_text() -> None:
    date = r"^(?P<month>January|May)\s+(?P<day>\d{1,2})(?:st|th)?\s+(?P<year>\d{4})$"
    for text in (date, date[1:-1]):
        tag = grammar(input_rules(XML, InputGrammar("regex", text), guarded=True))
        assert matches(tag, "<p=input>May 4th 2026</p>")
        assert not matches(tag, "<p=input>May 4th 2026 x</p>")
    with pytest.raises(UnheldGrammarError, match=r"\^ after other text"):
        read(InputGrammar("regex", "a^b"))
    with pytest.raises(UnheldGrammarError, match="look-ahead"):
        read(InputGrammar("regex", "^(?!a)b"))
