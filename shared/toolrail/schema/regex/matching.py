"""Whether a text matches, in time linear in the text: no backtracking.

For what must be checked after generation, where both the expression and the text come from outside.
Bounds are written out, the automaton's states are made when they are met and remembered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, assert_never

from toolrail.schema.regex.anchored import ANYTHING, whole
from toolrail.schema.regex.charset import CharSet
from toolrail.schema.regex.parse import RegexError, parse
from toolrail.schema.regex.syntax import Alt, Chars, Edge, Node, Repeat, Seq, sequence, size

MAX_POSITIONS: Final = 2_000
"""Of an automaton; a larger expression is refused."""
_MAX_REMEMBERED: Final = 20_000
"""Steps that one automaton remembers before it forgets them all."""


@lru_cache(maxsize=512)
def matcher(pattern: str) -> Matcher:
    """What tells whether `pattern` can be found in a text. Raises RegexError."""
    regex = parse(pattern)
    looks = [(whole(sequence(look.node, ANYTHING)), look.negative) for look in regex.looks]
    return Matcher(_Automaton(whole(regex.node)), [(_Automaton(n), neg) for n, neg in looks])


class Matcher:
    """A compiled expression; may be shared."""

    def __init__(self, main: _Automaton, looks: list[tuple[_Automaton, bool]]) -> None:
        self._main = main
        self._looks = looks

    def found_in(self, text: str) -> bool:
        """True when the expression can be found in `text`. O(len(text))."""
        return self._main.matches(text) and all(
            look.matches(text) is not negative for look, negative in self._looks
        )


class _Automaton:
    """Glushkov's automaton of one node, run as sets of positions."""

    def __init__(self, node: Node) -> None:
        if size(node) > MAX_POSITIONS:
            raise RegexError("an expression too large to be matched", is_valid=True)
        self._sets: list[CharSet] = []
        self._follow: list[set[int]] = []
        nullable, first, last = self._build(node)
        self._accepting = frozenset(last)
        self._nullable = nullable
        self._first = frozenset(first)
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        if not text:
            return self._nullable
        # A state is the set of positions whose character may come next.
        state = self._first
        taken: frozenset[int] = frozenset()
        for character in text:
            step = (state, character)
            known = self._steps.get(step)
            if known is None:
                known = frozenset(p for p in state if character in self._sets[p])
                if len(self._steps) >= _MAX_REMEMBERED:
                    self._steps.clear()
                self._steps[step] = known
            if not known:
                return False
            taken = known
            state = self._next(known)
        return not self._accepting.isdisjoint(taken)

    def _next(self, taken: frozenset[int]) -> frozenset[int]:
        step = (taken, "")
        known = self._steps.get(step)
        if known is None:
            known = frozenset[int]().union(*(self._follow[p] for p in taken))
            self._steps[step] = known
        return known

    def _build(self, node: Node) -> tuple[bool, set[int], set[int]]:
        match node:
            case Chars(chars):
                self._sets.append(chars)
                self._follow.append(set())
                position = len(self._sets) - 1
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
                self._follow[position] |= part_first
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
                self._follow[position] |= copy_first
            if may_be_empty or copy + 1 >= low:
                last |= copy_last
            previous = copy_last
            if high is None and copy + 1 == copies:
                for position in copy_last:
                    self._follow[position] |= copy_first
        return nullable, first, last
