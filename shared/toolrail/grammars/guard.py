"""What must not occur in a text: the strings that would end it, character by character.

An automaton of the strings (Aho and Corasick) runs beside the text. A piece of a grammar is safe
after a state if no text of it completes a string from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from toolrail.schema.regex.charset import ANY, CharSet, of


class Guard:
    """The automaton of `strings`. State 0: nothing of any has been read."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._next: Final[list[dict[str, int]]] = [{}]
        self._dead: Final[set[int]] = set()
        for string in strings:
            state = 0
            for character in string:
                if character not in self._next[state]:
                    self._next[state][character] = len(self._next)
                    self._next.append({})
                state = self._next[state][character]
            self._dead.add(state)
        self._fill()

    def _fill(self) -> None:
        """Every state gets its step for every character of the strings."""
        fall = [0] * len(self._next)
        pending = deque(self._next[0].values())
        while pending:
            state = pending.popleft()
            back = self._next[fall[state]]
            if fall[state] in self._dead:
                self._dead.add(state)
            for character, after in self._next[state].items():
                fall[after] = back.get(character, 0)
                pending.append(after)
            self._next[state] = {**back, **self._next[state]}

    @cached_property
    def _others(self) -> CharSet:
        known = "".join({character for row in self._next for character in row})
        return ANY - of(known)

    def moves(self, state: int, chars: CharSet) -> Iterator[tuple[CharSet, int | None]]:
        """Where each character of a set leads, by where; None: it completes a string."""
        leads: dict[int | None, str] = {}
        for character, after in self._next[state].items():
            if character in chars:
                after_it = None if after in self._dead else after
                leads[after_it] = leads.get(after_it, "") + character
        # What this state has no step for begins anew.
        rest = chars - of("".join(self._next[state]))
        found: dict[int | None, CharSet] = {after: of(text) for after, text in leads.items()}
        if rest:
            found[0] = found.get(0, of("")) | rest
        yield from ((found[after], after) for after in found)
