"""Whether a text is of a grammar: for what is checked after generation.

Earley's algorithm over characters. Every rule is a small automaton; what is known at a place of the
text is a set of (state, place where its rule began). Its cost is bounded in steps: linear for most
that people write, and where it is more, as for rules that end with themselves, nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar, assert_never

from toolrail.grammars import read
from toolrail.grammars.model import Expr, Grammar, Join, Leaf, Loop, Pick, Ref, UnheldGrammarError
from toolrail.schema.regex.charset import CharSet
from toolrail.schema.regex.syntax import Alt, Chars, Edge, Node, Repeat, Seq
from toolrail.tools import InputGrammar

MAX_STEPS: Final = 500_000
"""Items looked at for one text: some tenths of a second, and enough for a patch of 80,000
characters."""
MAX_STATES: Final = 20_000
"""Some 7 MiB: callers' grammars are remembered."""
_REMEMBERED: Final = 16

_P = TypeVar("_P")
_Item: TypeAlias = tuple[int, int]
"""A state, and the place of the text where its rule began."""


@lru_cache(maxsize=_REMEMBERED)
def recogniser(declared: InputGrammar) -> Recogniser | None:
    """What tells whether a text is of the grammar; None: it cannot be read, or is too large."""
    try:
        return Recogniser(read(declared))
    except UnheldGrammarError:
        return None


class Recogniser:
    """The automata of a grammar's rules; may be shared between threads."""

    def __init__(self, grammar: Grammar) -> None:
        """Write them. Raises UnheldGrammarError: the grammar is too large."""
        self.free: list[list[int]] = []
        self.reads: list[list[tuple[CharSet, int]]] = []
        self.calls: list[list[tuple[str, int]]] = []
        self.starts = {name: self._state() for name in grammar.rules}
        self.ends: dict[int, str] = {}
        for name, expr in grammar.rules.items():
            end = self._state()
            self._lead(self._expr(expr, self.starts[name]), end)
            self.ends[end] = name
        self.start = grammar.start

    def matches(self, text: str, max_steps: int = MAX_STEPS) -> bool | None:
        """Whether all of `text` is a text of the grammar; None: that takes more steps."""
        run = _Run(self, max_steps)
        return run.over(text)

    def _state(self) -> int:
        if len(self.free) >= MAX_STATES:
            raise UnheldGrammarError("it is too large to be checked")
        self.free.append([])
        self.reads.append([])
        self.calls.append([])
        return len(self.free) - 1

    def _lead(self, state: int, to: int) -> None:
        self.free[state].append(to)

    def _expr(self, expr: Expr, at: int) -> int:
        """Write `expr` from the state `at` on: the state in which it ends."""
        match expr:
            case Leaf(node):
                return self._node(node, at)
            case Ref(name):
                after = self._state()
                self.calls[at].append((name, after))
                return after
            case Join(parts):
                for part in parts:
                    at = self._expr(part, at)
                return at
            case Pick(options):
                return self._either(at, [self._of(self._expr, option) for option in options])
            case Loop(item, low, high):
                return self._repeat(at, self._of(self._expr, item), low, high)
            case _:
                assert_never(expr)

    def _node(self, node: Node, at: int) -> int:
        match node:
            case Chars(chars):
                after = self._state()
                self.reads[at].append((chars, after))
                return after
            case Edge():  # a place: there are none in what grammars are read into
                return at
            case Seq(parts):
                for part in parts:
                    at = self._node(part, at)
                return at
            case Alt(options):
                return self._either(at, [self._of(self._node, option) for option in options])
            case Repeat(inner, low, high):
                return self._repeat(at, self._of(self._node, inner), low, high)
            case _:
                assert_never(node)

    @staticmethod
    def _of(write: Callable[[_P, int], int], part: _P) -> Callable[[int], int]:
        return lambda at: write(part, at)

    def _either(self, at: int, options: Sequence[Callable[[int], int]]) -> int:
        end = self._state()
        for option in options:
            begin = self._state()
            self._lead(at, begin)
            self._lead(option(begin), end)
        return end

    def _repeat(self, at: int, item: Callable[[int], int], low: int, high: int | None) -> int:
        for _ in range(low):
            at = item(at)
        end = self._state()
        if high is None:
            again = self._state()
            self._lead(at, again)
            self._lead(item(again), again)
            self._lead(again, end)
            return end
        self._lead(at, end)
        for _ in range(high - low):
            at = item(at)
            self._lead(at, end)
        return end


class _Run:
    """One text on its way through the automata."""

    def __init__(self, automata: Recogniser, max_steps: int) -> None:
        self._of = automata
        self._left = max_steps
        self._waiting: list[dict[str, list[_Item]]] = []
        """By place: what goes on when a rule that began there ends."""

    def over(self, text: str) -> bool | None:
        now: set[_Item] = {(self._of.starts[self._of.start], 0)}
        for place in range(len(text) + 1):
            self._waiting.append({})
            if not self._close(now, place):
                return None
            if place == len(text):
                break
            character = text[place]
            now = {
                (after, origin)
                for state, origin in now
                for chars, after in self._of.reads[state]
                if character in chars
            }
            if not now:
                return False
        return any(origin == 0 and self._of.ends.get(end) == self._of.start for end, origin in now)

    def _close(self, items: set[_Item], place: int) -> bool:
        """Add what follows from `items` without a character; False: out of steps."""
        agenda = list(items)
        empty: set[str] = set()
        while agenda:
            state, origin = agenda.pop()
            follow: list[_Item] = [(after, origin) for after in self._of.free[state]]
            for name, after in self._of.calls[state]:
                self._waiting[place].setdefault(name, []).append((after, origin))
                follow.append((self._of.starts[name], place))
                if name in empty:
                    follow.append((after, origin))
            ended = self._of.ends.get(state)
            if ended is not None:
                if origin == place:
                    empty.add(ended)
                follow += self._waiting[origin].get(ended, ())
            self._left -= 1 + len(follow)
            if self._left < 0:
                return False
            for item in follow:
                if item not in items:
                    items.add(item)
                    agenda.append(item)
        return True
