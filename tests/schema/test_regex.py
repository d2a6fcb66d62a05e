"""Expressions: read as ECMA-262 reads them, matched in linear time, held by the engine."""

from __future__ import annotations

import json
import random
import re
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schema.engine import compiled
from toolrail.grammar import accepts
from toolrail.schema.formats import FORMATS
from toolrail.schema.regex.anchored import whole
from toolrail.schema.regex.charset import ANY, CharSet, charset, of
from toolrail.schema.regex.matching import matcher
from toolrail.schema.regex.parse import RegexError, parse
from toolrail.schema.regex.syntax import has_wide_loop, lengths, merged
from toolrail.schema.regex.writing import written

# Expressions that Python reads as ECMA-262 does, `$` aside.
SHARED = (
    "a", "^a", "a$", "^a$", "^a|b$", "a|^b", "(^a|b)c", "^(a|b)*$", "[0-9]+", "^\\d{2,4}$", "^.*$",
    "[^a-c]", "^(?:ab)+c?$", "^[\\w-]+@[a-z]+$", "x{0}y", "^$", "", "a{2,}", "^(a|(b|c)d)?e$",
    "\\.", "^(?=.*a)(?!.*b).{2,}$", "a\\sb", "\\x61", "^a{1,3}b{0,2}$", "(a?b?){2}", "[a-]", "[-a]",
    "a+?b", "^(a*)*$", "[\\d.]+", "\\ta", "a{",
)  # fmt: skip


@pytest.mark.parametrize("pattern", SHARED)
def test_expressions_match_what_they_match_elsewhere(pattern: str) -> None:
    chance = random.Random(pattern)
    python = re.compile(pattern.replace("$", r"\Z"))
    mine = matcher(pattern)
    for _ in range(300):
        text = "".join(chance.choice("abcdey 1.@-\nx{,3}\t") for _ in range(chance.randint(0, 6)))
        assert mine.found_in(text) == (python.search(text) is not None), text


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^[^]$", "\n", True),
        ("[]", "a", False),
        ("^\\cA$", "\x01", True),
        ("^\\u{1F600}$", "😀", True),
        ("^\\uD83D\\uDE00$", "😀", True),
        ("^[\\u00e9-\\u00ff]$", "é", True),
        ("^\\s$", "\ufeff", True),
        ("^\\s$", "\u2028", True),
        ("^.$", "\u2028", False),
        ("^\\w$", "é", False),
        ("^\\d$", "٣", False),
        ("^\\$\\^$", "$^", True),
        ("^(?<year>[0-9]{4})$", "2026", True),
        ("^[\\b]$", "\b", True),
        ("^\\/\\-$", "/-", True),
        ("^\\0$", "\0", True),
    ],
)
def test_what_ecma_262_reads_in_its_own_way(pattern: str, text: str, found: bool) -> None:
    assert matcher(pattern).found_in(text) is found


@pytest.mark.parametrize(
    ("pattern", "feature", "is_valid"),
    [
        ("(", "missing )", False),
        ("a)", "unmatched )", False),
        ("[a", "missing ]", False),
        ("*a", "nothing to repeat", False),
        ("a**", "nothing to repeat", False),
        ("a{2}{3}", "nothing to repeat", False),
        ("a{3,2}", "out of order", False),
        ("[b-a]", "out of order", False),
        ("\\", "at the end", False),
        ("(?i)a", "unknown group", False),
        ("(a)\\1", "back reference", True),
        ("(?<n>a)\\k<n>", "back reference", True),
        ("\\bx", "word boundary", True),
        ("(?<=a)b", "look-behind", True),
        ("a(?=b)", "look-ahead", True),
        ("(?=a)b", "look-ahead", True),
        ("^(?=a)b|c", "look-ahead", True),
        ("\\p{L}", "Unicode property", True),
        ("a^b", "^ after", True),
        ("(a$)b", "$ before", True),
        ("(^a)*", "repeated anchor", True),
        ("a{1000000}", "more than", True),
        ("(" * 30 + ")" * 30, "deep", True),
        ("a{2000}b{2000}", "too large", True),
    ],
)
def test_what_cannot_be_matched_is_named(pattern: str, feature: str, is_valid: bool) -> None:
    with pytest.raises(RegexError) as caught:
        matcher(pattern)
    assert feature in caught.value.feature
    assert caught.value.is_valid is is_valid


ENGINE = (
    ("fox", ("a fox", 'a"b fox\n', "fo x")),
    ("^[a-z]{2,4}$", ("a", "ab", "abcde")),
    ('^a"b\\\\$', ('a"b\\', "ab")),
    ("^\\S+@\\S+\\.\\S+$", ("a@b.c", "a b@c.d", "é@é.é", '"@b.c')),
    ("^.*$", ("", "a\nb", 'a"b\tc')),
    ("^[^/]+$", ("a/b", 'a"b', "a\nb", "")),
    ("^(a|b)+c?$", ("aabc", "c")),
    ("a|^b$", ("xay", "b", "bb")),
    ("^[!-~]+$", ('a"b', "a\\b", "!~", " ")),
    ("^$", ("", "a")),
    ("^[\\^\\]\\-]+$", ("^]-", "a")),
    ("^\\.\\*\\+\\?\\|\\{\\}\\(\\)\\$\\/#&'`,;:=@<>%~$", (".*+?|{}()$/#&'`,;:=@<>%~", "x")),
    ("^(\\w+ )*\\w+$", ("a b c", "a  b", " a")),
    ("^(/[^/]+)+/?$", ("/usr/bin", "/a/", "usr")),
)


@pytest.mark.parametrize(("pattern", "texts"), ENGINE)
def test_the_engine_takes_what_the_expression_matches(
    pattern: str, texts: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    node = merged(whole(parse(pattern).node))
    expression = written(node, json_string=True)
    grammar = compiled({"type": "string", "pattern": expression.pattern})
    for text in texts:
        takes = accepts(grammar, json.dumps(text, ensure_ascii=False))
        found = matcher(pattern).found_in(text)
        assert takes == found or (expression.narrowed and not takes), text
    raw = compiled(
        {"type": "string", "pattern": written(node, json_string=False).pattern}, "glm_xml"
    )
    assert raw is not None
    assert "WARNING" not in capfd.readouterr().err.upper()


def test_escapes_are_written_where_json_needs_them_and_only_there() -> None:
    grammar = compiled(
        {"type": "string", "pattern": written(whole(parse('^"$').node), json_string=True).pattern}
    )
    assert accepts(grammar, '"\\""')
    assert not accepts(grammar, '"""')


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2026-11-29", "2026-11-32"),
        ("time", "23:59:60.25Z", "24:00:00Z"),
        ("date-time", "2026-11-29T22:02:00+01:00", "2026-11-29"),
        ("duration", "P1Y2M3DT4H", "1D"),
        ("email", "a.b+c@example.test", "a@b@c"),
        ("hostname", "www.example.test", "-a.test"),
        ("ipv4", "192.168.0.255", "192.168.0.256"),
        ("ipv6", "2001:db8::1", "1::2::3"),
        ("ipv6", "::ffff:10.0.0.1", "::ffff:10.0.0"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
        ("uri", "https://a.test/b?c=%20#d", "a b"),
        ("uri-reference", "../b?c", "a b"),
        ("json-pointer", "/a/b~1c", "a"),
        ("relative-json-pointer", "1/a", "/a"),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    assert matcher(FORMATS[name]).found_in(good)
    assert not matcher(FORMATS[name]).found_in(bad)


@pytest.mark.parametrize(
    ("pattern", "shortest", "longest"),
    [
        ("^a{2,4}b?$", 2, 5),
        ("^(a|bcd)+$", 1, None),
        ("^$", 0, 0),
        ("a", 1, None),
        ("^(a{2}){3}$", 6, 6),
    ],
)
def test_lengths(pattern: str, shortest: int, longest: int | None) -> None:
    assert lengths(whole(parse(pattern).node)) == (shortest, longest)


@pytest.mark.parametrize(
    ("pattern", "wide"),
    [
        ('^([^"é]|xy){0,250}$', True),
        ("^(a.)*$", True),
        ("^(.+\\n)*$", False),
        ("^(/[^/]+)+$", False),
        ("^([a-z]x)*$", False),
        ("^(\\S|\\s)*$", False),
        ("^(.x)?$", False),
    ],
)
def test_loops_that_an_engine_pays_for(pattern: str, wide: bool) -> None:
    assert has_wide_loop(merged(whole(parse(pattern).node))) is wide


def steps(pattern: str, text: str) -> int:
    """How many lines of Python a match runs."""
    count = 0
    found = matcher(pattern)

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        found.found_in(text)
    finally:
        sys.settrace(previous)
    return count


@pytest.mark.parametrize("pattern", ["^(a|a)*b$", "^(a+)+$", "(a*)*(a*)*b", "^(a?){50}a{50}$"])
def test_matching_is_linear_where_others_backtrack(pattern: str) -> None:
    steps(pattern, "a" * 4_000 + "c")  # the automaton's states are made
    assert steps(pattern, "a" * 4_000 + "c") < 4.2 * steps(pattern, "a" * 1_000 + "c")


codes = st.integers(0, 0x10FFFF)
sets = st.lists(st.tuples(codes, codes).map(lambda pair: (min(pair), max(pair))), max_size=4).map(
    charset
)


@given(sets, sets, st.characters(exclude_categories=["Cs"]))
@settings(max_examples=200, deadline=None)
def test_sets_are_sets(left: CharSet, right: CharSet, character: str) -> None:
    one, two = character in left, character in right
    assert (character in left | right) == (one or two)
    assert (character in left & right) == (one and two)
    assert (character in left - right) == (one and not two)
    assert (character in ~left) == (not one)
    assert bool(left) == bool(left.ranges)


def test_no_set_holds_a_surrogate() -> None:
    assert "\ud800" not in ANY
    assert "\udfff" not in ~of("a")
