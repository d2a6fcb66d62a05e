"""Patterns without the character that begins every closing tag."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrail.structural_tag.patterns import (
    any_name_but,
    beginning_as_text,
    without_opening_angle,
)

TAME = {
    "^[a-z]+$": "^[a-z]+$",
    r"\d{3}-\w+": r"\d{3}-\w+",
    "a.b": r"a[^<\n]b",
    r"\S+\W\D": r"[^\s<]+[^\w<][^\d<]",
    "[^a]*": "[^a<]*",
    r"[\s\S]*": "[^<]*",
    "[!-~]": "[!-;=-~]",
    "[;-=]": "[;=]",
    "[<a]": "[a]",
    r"[a\]<]": r"[a\]]",
    r"[\u0000-\uffff]": r"[\u0000-;=-\uffff]",
    r"(?:é|\u00e9)?": r"(?:é|\u00e9)?",
    r"[^<\n]": r"[^<\n<]",
    r"^[\x01-\u{10ffff}]\u{1F600}$": r"^[\x01-;=-\u{10ffff}]\u{1F600}$",
}


@pytest.mark.parametrize("pattern", TAME)
def test_reduced(pattern: str) -> None:
    assert without_opening_angle(pattern) == TAME[pattern]


@pytest.mark.parametrize(
    "pattern",
    [
        "<a>",
        r"\<",
        "[<]",
        "a(?=b)",
        "(?<!a)b",
        r"(a)\1",
        r"\p{L}",
        r"\b",
        "[a",
        r"\u{}",
        r"[\u-a]",
        "a\\",
    ],
)
def test_what_needs_it_or_is_not_understood_is_given_up(pattern: str) -> None:
    assert without_opening_angle(pattern) is None


@given(st.text("ab<[]^-\\.*+?dDsSwWu0n()|{}1,", max_size=12), st.text("ab<1 \n-", max_size=6))
def test_a_reduced_pattern_matches_less_and_never_an_angle(pattern: str, text: str) -> None:
    reduced = without_opening_angle(pattern)
    if reduced is None:
        return
    try:
        whole, part = re.compile(pattern), re.compile(reduced)
    except (re.error, FutureWarning):
        return
    if part.fullmatch(text):
        assert "<" not in text
        assert whole.search(text)


AS_TEXT = {
    "^[A-Z]{2}-[0-9]{2}$": "^[A-Z][A-Z]{1,1}-[0-9]{2}$",
    "^abc|def$": None,
    "^(a|b)c$": None,
    "^a(b|c)$": "^a(b|c)$",
    "^[ -~]+$": "^[\\x21\\x23-~][ -~]*$",
    "^[ -~]{2,5}$": "^[\\x21\\x23-~][ -~]{1,4}$",
    "^[ -~]{3,}$": "^[\\x21\\x23-~][ -~]{2,}$",
    "^[ -~]{0,3}$": "^(?:[\\x21\\x23-~][ -~]{0,2})?$",
    "^[ -~]*\x7f{0}$": "^(?:[\\x21\\x23-~][ -~]*)?\x7f{0}$",
    "^[a-z]*x$": None,
    "^x?$": "^(?:x)?$",
    '^"a"$': None,
    r"^\s": None,
    "": None,
}


@pytest.mark.parametrize("pattern", AS_TEXT)
def test_what_may_begin_a_text_that_is_no_json(pattern: str) -> None:
    assert beginning_as_text(pattern) == AS_TEXT[pattern]


@given(st.text('ab"[]^-\\.*+?(|){}12, ', max_size=12), st.text('ab"1 \n-', max_size=6))
def test_it_matches_less_and_nothing_that_begins_like_json(pattern: str, text: str) -> None:
    found = beginning_as_text(pattern)
    if found is None:
        return
    try:
        whole, part = re.compile(pattern), re.compile(found)
    except (re.error, FutureWarning):
        return
    if part.fullmatch(text):
        assert not text[:1].isspace()
        assert not text.startswith('"')
        assert whole.match(text)


@given(st.lists(st.text("abc_1", max_size=4), max_size=4), st.text("abc_1", max_size=5))
def test_any_identifier_but_some(names: list[str], name: str) -> None:
    identifier = re.fullmatch("[a-c_][a-c_1]*", name) is not None
    matched = re.fullmatch(any_name_but(names), name) is not None
    assert matched == (identifier and name not in names)
