from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from services.postprocessor.stop import StopMatcher, StopStrings


def run(stops: Sequence[str], chunks: Iterable[str]) -> tuple[str, str | None]:
    """What is shown, and what stopped it."""
    matcher = StopMatcher(StopStrings(stops))
    shown = ""
    for chunk in chunks:
        text, hit = matcher.feed(chunk)
        shown += text
        if hit is not None:
            return shown, hit
    return shown + matcher.flush(), None


def expected(stops: Sequence[str], text: str) -> tuple[str, str | None]:
    """The same by trying every prefix: the first to end wins, and of those the longest."""
    for end in range(len(text) + 1):
        hits = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if hits:
            longest = max(hits, key=len)
            return text[: end - len(longest)], longest
    return text, None


few = st.text(alphabet="ab<", max_size=5)


@given(stops=st.lists(few, max_size=4), text=st.text(alphabet="ab<", max_size=30), data=st.data())
def test_a_stop_string_is_found_wherever_the_text_is_cut(
    stops: list[str], text: str, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(text)))
    for chunks in ([text], list(text), [text[:cut], "", text[cut:]]):
        assert run(stops, chunks) == expected(stops, text)


def test_only_what_could_become_a_stop_string_is_held() -> None:
    matcher = StopMatcher(StopStrings(["STOP", "TOE"]))
    assert matcher.feed("a ST") == ("a ", None)
    assert matcher.feed("O") == ("", None)
    assert matcher.feed("R") == ("STOR", None)
    assert matcher.feed("STO") == ("", None)
    assert matcher.feed("E") == ("S", "TOE")


def test_held_text_is_flushed_and_then_forgotten() -> None:
    matcher = StopMatcher(StopStrings(["ab"]))
    assert matcher.feed("xa") == ("x", None)
    assert matcher.flush() == "a"
    assert matcher.feed("b") == ("b", None)


def test_empty_stop_strings_mean_none() -> None:
    assert not StopStrings(["", ""])
    assert run(["", ""], ["text"]) == ("text", None)


def test_characters_that_mean_something_to_a_pattern_are_plain() -> None:
    for stop in ("]", "^", "-", "\\", "a]b", "\n\n", "😀"):
        assert run([stop], [f"x{stop}y"]) == ("x", stop)


def test_the_steps_grow_with_the_text_and_not_with_the_strings() -> None:
    def steps(length: int, stop_length: int) -> int:
        strings = StopStrings(["a" * stop_length + "b", "b" * stop_length + "c"])
        counted = [0]

        class Counted(dict[str, int]):
            def __contains__(self, key: object) -> bool:
                counted[0] += 1
                return super().__contains__(key)

            def get(self, key: str, default: int = 0) -> int:  # type: ignore[override]
                counted[0] += 1
                return super().get(key, default)

        strings.moves = [Counted(move) for move in strings.moves]
        rng = random.Random(3)
        matcher = StopMatcher(strings)
        for _ in range(length):
            matcher.feed(rng.choice("aaab"))
        return counted[0]

    assert steps(8000, 50) <= 4.2 * steps(2000, 50)
    assert steps(8000, 500) <= 4 * 8000
