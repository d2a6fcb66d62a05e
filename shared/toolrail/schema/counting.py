"""How a tag counts the characters of a raw value beside the guard of its closer, and at what price.

The grammar engine itself drops lengths beside a guard. Free text counts characters up to a longest
length, however long, for next to nothing. A shortest length takes a grammar with a rule for each
count and each matched start of the guard (`structural_tag.lengths`); where those would be too many,
the first characters are counted without the one that begins the guard, and that is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MAX_LONGEST: Final = 2**31 - 1
"""The longest length that the engine can be told; no answer comes near."""
MAX_BETWEEN: Final = 12
"""Greatest longest length up to which one grammar counts every character."""
MAX_EXTRA: Final = 3
"""Characters over a shortest length through which a start of the guard is followed."""
_MAX_WEIGHT: Final = 96
"""What exact counting of one value may cost."""
_MAX_HEAD: Final = 256
"""Characters that are counted without the one that begins the guard."""


@dataclass(frozen=True, slots=True)
class Counting:
    """How the characters of a value are counted.

    Attributes:
        way: `longest`: free text counts; `least`, `between`, `both`: a grammar does, for a shortest
            length, for both where the longest is short, for both; `head`: the first characters are
            counted without the one that begins the guard.
        weight: what it costs an engine, in counted characters of a plain expression (some 9 ms with
            a vocabulary of 49,152 tokens, 20 ms with one of 129,000).
    """

    way: Literal["longest", "least", "between", "both", "head"]
    weight: int

    def narrowed(self, guard: str, shortest: int) -> tuple[str, ...]:
        """What values cannot do because of the way, after the word "cannot"."""
        match self.way:
            case "both":
                return (
                    f"go on {MAX_EXTRA} times with the start of {guard!r} at their shortest length",
                )
            case "head":
                return (f"have {guard[0]!r} among their first {shortest} characters",)
            case _:
                return ()


def counting(guard: str, shortest: int, longest: int | None) -> Counting | None:
    """The way to count; None: a shortest length so great is not counted.

    A longest length alone always is.
    """
    text = len(guard)
    if shortest == 0:
        return Counting("longest", text)
    found = _exactly(guard, shortest, longest)
    if found.weight <= _MAX_WEIGHT:
        return found
    if shortest > _MAX_HEAD:
        return None
    return Counting("head", shortest // 2 + text)


def _exactly(guard: str, shortest: int, longest: int | None) -> Counting:
    if longest is None:
        return Counting("least", _rules(guard, shortest - 1) + len(guard))
    if longest <= MAX_BETWEEN:
        return Counting("between", _rules(guard, longest))
    extras = min(len(guard), MAX_EXTRA)
    ways = sum(_rules(guard, shortest + extra) for extra in range(extras))
    ways += _rules(guard, shortest + extras)
    # They are alike, and the engine finds that a third of them are the same.
    return Counting("both", ways * 2 // 3 + extras * len(guard))


def _rules(guard: str, last: int) -> int:
    """States of (characters so far, matched start of the guard) up to a count."""
    return sum(min(count + 1, len(guard)) for count in range(last + 1))
