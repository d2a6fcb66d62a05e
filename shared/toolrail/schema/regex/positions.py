"""The positions of an expression: Glushkov's automaton, bounds of repeats written out."""

from __future__ import annotations

from typing import Final, assert_never

from toolrail.schema.regex.charset import CharSet
from toolrail.schema.regex.syntax import Alt, Chars, Edge, Node, Repeat, Seq


class Positions:
    """Where a text may be in an expression: each position has just read one character.

    Attributes:
        sets: what each position reads.
        follow: the positions that may come after each.
        first: those that a text may begin with.
        last: those that it may end with.
        nullable: whether the empty text matches.
    """

    def __init__(self, node: Node) -> None:
        self.sets: Final[list[CharSet]] = []
        self.follow: Final[list[set[int]]] = []
        nullable, first, last = self._build(node)
        self.nullable: Final = nullable
        self.first: Final = frozenset(first)
        self.last: Final = frozenset(last)

    def _build(self, node: Node) -> tuple[bool, set[int], set[int]]:
        match node:
            case Chars(chars):
                self.sets.append(chars)
                self.follow.append(set())
                position = len(self.sets) - 1
                return False, {position}, {position}
            case Edge():
                return True, set(), set()
            case Seq(parts):
                return self._build_sequence(parts)
            case Alt(options):
                built = [self._build(option) for option in options]
                return (
                    any(nullable for nullable, _, _ in built),
                    set[int]().union(*(first for _, first, _ in built)),
                    set[int]().union(*(last for _, _, last in built)),
                )
            case Repeat(inner, low, high):
                return self._build_repeat(inner, low, high)
            case _:
                assert_never(node)

    def _build_sequence(self, parts: tuple[Node, ...]) -> tuple[bool, set[int], set[int]]:
        nullable, first, last = True, set[int](), set[int]()
        for part in parts:
            part_nullable, part_first, part_last = self._build(part)
            for position in last:
                self.follow[position] |= part_first
            if nullable:
                first |= part_first
            last = last | part_last if part_nullable else part_last
            nullable = nullable and part_nullable
        return nullable, first, last

    def _build_repeat(
        self, inner: Node, low: int, high: int | None
    ) -> tuple[bool, set[int], set[int]]:
        """Copies in a row, the text ending in any of those from the lowest count on.

        Where the inner node may be empty, a text that leaves out a copy fits the copies before it.
        """
        copies = max(low, 1) if high is None else high
        first, last, previous = set[int](), set[int](), set[int]()
        nullable = low == 0
        for copy in range(copies):
            may_be_empty, copy_first, copy_last = self._build(inner)
            nullable = nullable or may_be_empty
            if copy == 0:
                first = copy_first
            for position in previous:
                self.follow[position] |= copy_first
            if may_be_empty or copy + 1 >= low:
                last |= copy_last
            previous = copy_last
            if high is None and copy + 1 == copies:
                for position in copy_last:
                    self.follow[position] |= copy_first
        return nullable, first, last
