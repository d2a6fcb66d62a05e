"""Expressions as Python and Rust read them: no set holds more than Python's."""

from __future__ import annotations

import re

import pytest

from toolrail.grammars.patterns import folded, pattern, terminal
from toolrail.schema.regex.charset import CharSet, of
from toolrail.schema.regex.syntax import Chars

STEP = 89


def characters(chars: CharSet) -> list[str]:
    """Those of small ranges, a sample of large ones."""
    found: list[str] = []
    for low, high in chars.ranges:
        step = 1 if high - low < 1_000 else STEP
        found += map(chr, [*range(low, high + 1, step), high])
    return found


def set_of(text: str, flags: str = "") -> CharSet:
    node = terminal(text, flags)
    assert isinstance(node, Chars)
    return node.set


@pytest.mark.parametrize(
    "text", [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", ".", r"[^\w\s]", r"[^a-c]"]
)
def test_a_class_holds_what_python_s_holds(text: str) -> None:
    expression = re.compile(text)
    wrong = [c for c in characters(set_of(text)) if not expression.fullmatch(c)]
    assert not wrong


@pytest.mark.parametrize("text", ["k", "[a-z]", "[^s]", "é", "[^é]", r"[\w]", "ß", "[A-Zß-þ]"])
def test_case_is_ignored_as_python_ignores_it(text: str) -> None:
    expression = re.compile(text, re.IGNORECASE)
    found = set_of(text, "i")
    wrong = [c for c in characters(found) if not expression.fullmatch(c)]
    assert not wrong
    for character in "kKsSaZéÉ":
        assert (character in found) is bool(expression.fullmatch(character)), character


def test_flags() -> None:
    assert "\n" in set_of(".", "s")
    assert "\n" not in set_of(".")
    assert set_of("a", "u") == of("a")


def test_characters_that_python_and_browsers_read_differently() -> None:
    assert set_of("[]a]") == of("]a")
    assert set_of("[^]a]") == ~of("]a")
    assert set_of(r"\x41") == of("A")
    assert set_of(r"\u00e9") == of("é")
    assert pattern("(?P<name>a)").node == pattern("(?:a)").node


def test_folding_is_its_own_closure() -> None:
    assert folded(folded(of("kS"))) == folded(of("kS"))
