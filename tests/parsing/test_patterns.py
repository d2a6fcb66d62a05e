"""Patterns without the character that begins every closing tag."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrail.structural_tag.patterns import without_opening_angle

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
        r"\u{1F600}",
        r"[\u-a]",
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
