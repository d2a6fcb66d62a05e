"""Whether a text is of a grammar, as Lark and Python's `re` say it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.grammars.patch import BAD, GOOD, PATCH, is_patch
from tests.grammars.test_lark import CASES, by_lark
from toolrail.grammars.recognising import Recogniser, recogniser
from toolrail.tools import InputGrammar

EDITS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(["", " ", "1", "(", '"', "\n", "y"]))
)


def of(syntax: str, definition: str) -> Recogniser:
    found = recogniser(InputGrammar(syntax, definition))  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.mark.parametrize("name", CASES)
def test_texts_are_told_apart(name: str) -> None:
    definition, good, bad = CASES[name]
    told = {text: of("lark", definition).matches(text) for text in (*good, *bad)}
    assert told == {text: text in good for text in told}


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(CASES)), st.integers(0, 9), EDITS)
def test_texts_near_them_are_told_as_lark_tells_them(name: str, pick: int, edits: list) -> None:
    definition, good, bad = CASES[name]
    text = [*good, *bad][pick % len([*good, *bad])]
    for at, put in edits:
        text = text[:at] + put + text[at + 1 :]
    assert of("lark", definition).matches(text) is by_lark(name, text)


@pytest.mark.parametrize("text", [GOOD, *BAD])
def test_patches(text: str) -> None:
    assert of("lark", PATCH).matches(text) is is_patch(text)


def test_a_long_patch_costs_no_more_a_line_than_a_short_one() -> None:
    def patch(lines: int) -> str:
        added = "".join(f"+line {number}\n" for number in range(lines))
        return f"*** Begin Patch\n*** Add File: a\n{added}*** End Patch\n"

    recognise = of("lark", PATCH)
    short, long = patch(100), patch(400)
    steps = next(n for n in range(1000, 10**6, 1000) if recognise.matches(short, n) is not None)
    assert recognise.matches(long, 5 * steps) is True


@settings(max_examples=20, deadline=None)
@given(
    st.from_regex(r"\A[ab(c]?[|*+?a-c]{0,4}\Z") | st.sampled_from([r"(ab|c){2,3}d?", r"[^a]*b"]),
    st.text("abcd|", max_size=6),
)
def test_expressions_match_as_python_s(pattern: str, text: str) -> None:
    found = recogniser(InputGrammar("regex", pattern))
    if found is not None:
        assert found.matches(text) is (re.fullmatch(pattern, text) is not None)


def test_rules_that_begin_or_end_with_themselves() -> None:
    left = of("lark", 'start: start "a" | "b"')
    right = of("lark", 'start: "a" start | "b"')
    nothing = of("lark", 'start: x x "c"\nx: y?\ny: "b"')
    assert left.matches("b" + "a" * 2000) is True
    assert left.matches("b" + "a" * 2000 + "b") is False
    assert right.matches("a" * 50 + "b") is True
    assert [nothing.matches(text) for text in ("c", "bc", "bbc", "bbbc")] == [True] * 3 + [False]


def test_what_takes_too_long_is_not_said() -> None:
    assert of("lark", 'start: "a" start | "b"').matches("a" * 5000 + "b", 10_000) is None
    assert recogniser(InputGrammar("lark", "start: missing")) is None


def test_what_takes_too_much_memory_is_not_read() -> None:
    def written(many: int) -> InputGrammar:
        return InputGrammar("lark", f'start: {"x~1..200 " * many}\nx: "a"')

    assert recogniser(written(90)) is not None
    assert recogniser(written(110)) is None
