"""Sets of characters as sorted ranges of code points.

Surrogates are no characters: no set holds one, so that whatever is written from a set is UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

Range: TypeAlias = tuple[int, int]
_LAST: Final = 0x10FFFF
_SURROGATES: Final = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class CharSet:
    """Characters as ranges: inclusive, sorted, neither overlapping nor adjacent."""

    ranges: tuple[Range, ...]

    def __contains__(self, character: str) -> bool:
        """True when the set holds the (one) character. O(ranges)."""
        code = ord(character)
        return any(low <= code <= high for low, high in self.ranges)

    def __or__(self, other: CharSet) -> CharSet:
        """All characters of both."""
        return charset(self.ranges + other.ranges)

    def __sub__(self, other: CharSet) -> CharSet:
        """The characters of this set that `other` lacks."""
        return self & ~other

    def __invert__(self) -> CharSet:
        """All characters that the set lacks."""
        gaps: list[Range] = []
        start = 0
        for low, high in self.ranges:
            if start < low:
                gaps.append((start, low - 1))
            start = high + 1
        if start <= _LAST:
            gaps.append((start, _LAST))
        return charset(gaps)

    def __and__(self, other: CharSet) -> CharSet:
        """The characters that both hold. O(ranges of both)."""
        common: list[Range] = []
        left, right = iter(self.ranges), iter(other.ranges)
        one, two = next(left, None), next(right, None)
        while one is not None and two is not None:
            low, high = max(one[0], two[0]), min(one[1], two[1])
            if low <= high:
                common.append((low, high))
            if one[1] < two[1]:
                one = next(left, None)
            else:
                two = next(right, None)
        return CharSet(tuple(common))

    def __bool__(self) -> bool:
        """True unless the set is empty."""
        return bool(self.ranges)


def charset(ranges: Iterable[Range]) -> CharSet:
    """The set of these ranges, in any order, overlapping or not; surrogates are left out."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        for piece_low, piece_high in _without_surrogates(low, high):
            if merged and piece_low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], piece_high))
            else:
                merged.append((piece_low, piece_high))
    return CharSet(tuple(merged))


def _without_surrogates(low: int, high: int) -> Iterable[Range]:
    first, last = _SURROGATES
    if high < first or low > last:
        return ((low, high),)
    pieces = ((low, first - 1), (last + 1, high))
    return tuple(piece for piece in pieces if piece[0] <= piece[1])


def of(characters: str) -> CharSet:
    """The set of the characters of a string."""
    return charset((ord(character), ord(character)) for character in characters)


ANY: Final = charset([(0, _LAST)])
NONE: Final = CharSet(())
DIGIT: Final = charset([(0x30, 0x39)])
WORD: Final = charset([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
LINE_END: Final = of("\n\r\u2028\u2029")
SPACE: Final = of("\t\n\v\f\r \u00a0\u1680\u202f\u205f\u3000\ufeff\u2028\u2029") | charset(
    [(0x2000, 0x200A)]
)
"""What `\\s` is in ECMA-262: white space and line terminators."""
