"""Whether a text matches, in time linear in the text: no backtracking.

For what must be checked after generation, where both the expression and the text come from outside.
Bounds are written out, the automaton's states are made when they are met and remembered.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from toolrail.schema.regex.anchored import ANYTHING, whole
from toolrail.schema.regex.parse import RegexError, parse
from toolrail.schema.regex.positions import Positions
from toolrail.schema.regex.syntax import Node, sequence, size

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
        places = Positions(node)
        self._sets = places.sets
        self._follow = places.follow
        self._accepting = places.last
        self._nullable = places.nullable
        self._first = places.first
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
