"""A grammar's text without the strings that would end it in a family's notation.

An expression that may hold one is written out as rules, one for each place in it and how much of
such a string has been read. A string that only pieces together could make is not cut out: a grammar
in which that can happen is refused, once its pieces are as large as they can be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Final, TypeAlias, assert_never

from toolrail.grammars.guard import Guard
from toolrail.grammars.model import (
    CrossingError,
    Expr,
    Grammar,
    Join,
    Leaf,
    Loop,
    Pick,
    Ref,
    UnheldGrammarError,
)
from toolrail.schema.regex.charset import NONE, CharSet
from toolrail.schema.regex.positions import Positions
from toolrail.schema.regex.syntax import Chars, Node, Repeat, size
from toolrail.structural_tag import ebnf

_MAX_POSITIONS: Final = 500
"""Of an expression that is looked at character by character."""
_MAX_STEPS: Final = 200_000
"""Moves that are looked at for one grammar: some tenths of a second."""

_At: TypeAlias = tuple[int, int]
"""A position of an expression (-1: before it) and a state of the guard."""
NewRule: TypeAlias = Callable[[], str]
_Entry: TypeAlias = tuple[str, int]
"""A rule, and the state of the guard before it."""
_ExitsOf: TypeAlias = Callable[[_Entry], frozenset[int]]


@dataclass(slots=True)
class Excluding:
    """Writes the expressions of one grammar; `guard` is what no text may hold."""

    guard: Guard
    shown: str
    escaped: bool
    _places: dict[Node, Positions] = field(default_factory=dict["Node", Positions])
    _exits: dict[tuple[Node, int], frozenset[int]] = field(
        default_factory=dict["tuple[Node, int]", "frozenset[int]"]
    )
    _steps: int = 0

    # --- whether pieces together are safe ---

    def check(self, grammar: Grammar) -> None:
        """Returns if no text of the grammar, so written, holds a string of the guard.

        Raises:
            UnheldGrammarError: pieces of it could make one together.
        """
        flow = _Flow((grammar.start, 0))
        while (entry := flow.next()) is not None:
            name, state = entry
            exits_of = partial(flow.exits_of, user=entry)
            flow.found(entry, self._after(grammar.rules[name], frozenset([state]), exits_of))

    def _after(self, expr: Expr, states: frozenset[int], exits_of: _ExitsOf) -> frozenset[int]:
        """The states of the guard after an expression that may begin in `states`."""
        match expr:
            case Leaf(node):
                return frozenset[int]().union(*(self._leaf_after(node, s) for s in states))
            case Ref(name):
                return frozenset[int]().union(*(exits_of((name, state)) for state in states))
            case Join(parts):
                for part in parts:
                    states = self._after(part, states, exits_of)
                return states
            case Pick(options):
                return frozenset[int]().union(
                    *(self._after(option, states, exits_of) for option in options)
                )
            case Loop(item, low, high):
                return self._loop_after(item, low, high, states, exits_of)
            case _:
                assert_never(expr)

    def _loop_after(
        self,
        item: Expr,
        low: int,
        high: int | None,
        states: frozenset[int],
        exits_of: _ExitsOf,
    ) -> frozenset[int]:
        reached = states if low == 0 else frozenset[int]()
        count, now = 0, states
        while high is None or count < high:
            now = self._after(item, now, exits_of)
            count += 1
            if count < low:
                continue
            if now <= reached:
                break
            reached |= now
        return reached

    def _leaf_after(self, node: Node, state: int) -> frozenset[int]:
        """The states after an expression; written, it holds no string by itself."""
        key = (node, state)
        if key not in self._exits:
            self._exits[key] = frozenset(self._run(node, state))
        return self._exits[key]

    def _run(self, node: Node, start: int) -> set[int]:
        places = self._positions(node)
        found = {start} if places.nullable else set[int]()
        # The guard from the start of the expression, which it is written by, and from before it.
        seen: set[tuple[int, int, int]] = {(-1, 0, start)}
        pending = deque(seen)
        while pending:
            position, own, whole = pending.popleft()
            for after in self._next(places, position):
                for chars, own_after in self._moves(own, places.sets[after]):
                    if own_after is None:
                        continue  # written out of it
                    for _, whole_after in self._moves(whole, chars):
                        if whole_after is None:
                            raise CrossingError(
                                f"parts of its text may together make {self.shown}, which ends "
                                "the input in this model's format"
                            )
                        if after in places.last:
                            found.add(whole_after)
                        reached = (after, own_after, whole_after)
                        if reached not in seen:
                            seen.add(reached)
                            pending.append(reached)
        return found

    # --- how an expression is written without the strings ---

    def may_hold(self, node: Node) -> bool:
        """Whether some text of the expression holds one of the strings."""
        places = self._positions(node)
        seen: set[_At] = {(-1, 0)}
        pending = deque(seen)
        while pending:
            position, state = pending.popleft()
            for after in self._next(places, position):
                for _, state_after in self._moves(state, places.sets[after]):
                    if state_after is None:
                        return True
                    if (after, state_after) not in seen:
                        seen.add((after, state_after))
                        pending.append((after, state_after))
        return False

    def rules(self, node: Node, new_rule: NewRule) -> tuple[str, Mapping[str, str]]:
        """The rule of an expression's texts without the strings, and all rules it needs."""
        places = self._positions(node)
        first: _At = (_begins_at(places), 0)
        names: dict[_At, str] = {first: new_rule()}
        bodies: dict[str, str] = {}
        pending = deque(names)
        while pending:
            at = pending.popleft()
            loop, leads = self._leads(places, at)
            for after in leads:
                if after not in names:
                    names[after] = new_rule()
                    pending.append(after)
            ends = places.nullable if at[0] < 0 else at[0] in places.last
            ways = [ebnf.EMPTY] if ends else []
            ways += (ebnf.joined(self._one(chars), names[after]) for after, chars in leads.items())
            again = self._written(Repeat(Chars(loop), 0, None)) if loop else ebnf.EMPTY
            bodies[names[at]] = ebnf.joined(again, ebnf.either(ways))
        return names[first], bodies

    def _leads(self, places: Positions, at: _At) -> tuple[CharSet, dict[_At, CharSet]]:
        """The characters with which a place leads to itself, and those that lead elsewhere."""
        position, state = at
        leads: dict[_At, CharSet] = {}
        for after in self._next(places, position):
            for chars, state_after in self._moves(state, places.sets[after]):
                if state_after is not None:
                    reached = (after, state_after)
                    leads[reached] = leads.get(reached, NONE) | chars
        return leads.pop(at, NONE), leads

    def _one(self, chars: CharSet) -> str:
        return self._written(Chars(chars))

    def _written(self, node: Node) -> str:
        return ebnf.expression(node, escaped=self.escaped)

    def _positions(self, node: Node) -> Positions:
        if node not in self._places:
            if size(node) > _MAX_POSITIONS:
                raise UnheldGrammarError(
                    f"an expression with more than {_MAX_POSITIONS} character positions cannot be "
                    f"kept free of {self.shown}"
                )
            self._places[node] = Positions(node)
        return self._places[node]

    def _next(self, places: Positions, position: int) -> frozenset[int] | set[int]:
        return places.first if position < 0 else places.follow[position]

    def _moves(self, state: int, chars: CharSet) -> list[tuple[CharSet, int | None]]:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise UnheldGrammarError(f"it is too large to be kept free of {self.shown}")
        return list(self.guard.moves(state, chars))


def _begins_at(places: Positions) -> int:
    """Before an expression; at its one position where any number of that is all it is: `x*`."""
    loops = places.nullable and len(places.sets) == 1 and places.follow[0] == {0}
    return 0 if loops else -1


class _Flow:
    """The states after each rule, by the state before it, until they change no more.

    The rule that was met last is looked at first, so that one that refers to many waits for them.
    """

    def __init__(self, start: _Entry) -> None:
        self._exits: dict[_Entry, frozenset[int]] = {}
        self._users: dict[_Entry, set[_Entry]] = {}
        self._order: dict[_Entry, int] = {}
        self._heap: list[tuple[int, _Entry]] = []
        self._waiting: set[_Entry] = set()
        self._push(start)

    def next(self) -> _Entry | None:
        """What is to be looked at, None: nothing."""
        if not self._heap:
            return None
        _, entry = heappop(self._heap)
        self._waiting.remove(entry)
        return entry

    def exits_of(self, entry: _Entry, *, user: _Entry) -> frozenset[int]:
        """What is known of `entry`; `user` is looked at again when that changes."""
        self._users.setdefault(entry, set()).add(user)
        if entry not in self._order:
            self._push(entry)
        return self._exits.get(entry, frozenset())

    def found(self, entry: _Entry, states: frozenset[int]) -> None:
        """The states after `entry` are these."""
        if states != self._exits.get(entry, frozenset()):
            self._exits[entry] = states
            for user in self._users.get(entry, ()):
                self._push(user)

    def _push(self, entry: _Entry) -> None:
        if entry not in self._waiting:
            self._waiting.add(entry)
            heappush(self._heap, (-self._order.setdefault(entry, len(self._order)), entry))
