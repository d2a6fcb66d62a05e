"""Markers and the buffer: what is held back, what waits, what is given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrail.scan import Ahead, Buffer, Markers, words

MARKERS = Markers(["<call>", "</call>", "<c", "\n<call>", "ab", "abc"])


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("", 0),
        ("x", 0),
        ("x<", 1),
        ("x\n<cal", 5),
        ("x</", 2),
        ("xa", 1),
        ("abcd", 0),
        ("<call>", 0),
    ],
)
def test_held_is_the_longest_suffix_that_begins_a_marker(text: str, held: int) -> None:
    assert MARKERS.held(text) == held


@given(st.text("<>/cal\nabx", max_size=40))
def test_held_is_what_a_search_of_all_suffixes_finds(text: str) -> None:
    longest = max(
        (n for m in MARKERS.texts for n in range(1, len(m)) if text.endswith(m[:n])), default=0
    )
    assert MARKERS.held(text) == longest


@given(st.text("<>/cal\nabx", max_size=60), st.lists(st.integers(0, 8), max_size=60))
def test_until_does_not_depend_on_the_cuts(text: str, sizes: list[int]) -> None:
    assert pieces([text]) == pieces(cut(text, sizes))
    assert "".join(piece for piece, _ in pieces([text])) == text


def pieces(chunks: list[str]) -> list[tuple[str, bool]]:
    """The stream as runs of prose and markers."""
    buffer, found, prose = Buffer(), [], ""

    def read(final: bool) -> None:
        nonlocal prose
        while True:
            text, marker = buffer.until(MARKERS, final=final)
            prose += text
            if marker is None:
                return
            found.extend([(prose, False), (buffer.take(len(marker)), True)])
            prose = ""

    for chunk in chunks:
        buffer.push(chunk)
        read(final=False)
    read(final=True)
    return [*found, (prose, False)]


def cut(text: str, sizes: list[int]) -> list[str]:
    """The text in pieces of these sizes, the rest whole."""
    out, at = [], 0
    for size in sizes:
        out.append(text[at : at + size])
        at += size
    return [*out, text[at:]]


def test_a_marker_that_can_grow_waits() -> None:
    buffer = Buffer()
    buffer.push("x ab")
    assert buffer.until(MARKERS) == ("x ", None)
    buffer.push("d")
    assert buffer.until(MARKERS) == ("", "ab")


def test_a_literal_is_read_with_any_whitespace_before_its_words() -> None:
    parts = words("\n</function>\n</call>")
    for text, expected in {
        "</function></call>x": True,
        " \n</function>\t</call>x": True,
        "</function> </ca": None,
        "</function> oops": False,
    }.items():
        buffer = Buffer()
        buffer.push(text)
        assert buffer.literal(parts) is expected
        assert buffer.peek(99) == ("x" if expected else text)


def test_the_journal_gives_text_back() -> None:
    buffer = Buffer()
    buffer.push("abcdef")
    buffer.keep()
    assert buffer.take(2) + buffer.take(2) == "abcd"
    buffer.give_back("d")
    assert buffer.kept == "abc"
    buffer.rewind(1)
    assert buffer.take(99) == "bcdef"


@pytest.mark.parametrize("gap", [256, 257])
def test_words_far_apart_are_no_literal_however_they_come(gap: int) -> None:
    text = f"</function>{' ' * gap}</call>"
    for chunks in ([text], list(text)):
        buffer, came = Buffer(), None
        for chunk in chunks:
            buffer.push(chunk)
            came = buffer.literal(("</function>", "</call>")) if came is None else came
        assert came is (gap == 256)


@pytest.mark.parametrize("journal", [True, False])
def test_what_was_passed_comes_back_as_it_was(journal: bool) -> None:
    buffer, ahead = Buffer(), Ahead()
    buffer.push("a")
    if journal:
        buffer.keep()
    buffer.take(1)
    for character in " \t}\n x":
        buffer.push(character)
        ahead.skip_space(buffer)
        if buffer.peek() == "}":
            ahead.take(buffer, 1)
    assert buffer.peek(9) == "x"
    ahead.give_back(buffer)
    ahead.give_back(buffer)
    assert buffer.peek(9) == " \t}\n x"
    assert buffer.consumed == 1
    assert buffer.kept == ("a" if journal else "")
    ahead.skip_space(buffer)
    ahead.settle()
    ahead.give_back(buffer)
    assert buffer.peek(9) == "}\n x"


def test_searching_costs_what_the_text_is_long() -> None:
    def work(size: int) -> int:
        buffer = Buffer()
        for _ in range(size):
            buffer.push("a < b ")
            buffer.until(MARKERS)
        return buffer.work

    assert work(4_000) <= 4 * work(1_000) + 100
