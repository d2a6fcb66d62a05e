"""The shortest way from a position in a grammar to an end of text, or nearly so.

A step looks at what may follow. Where that is little, the token is taken that closes most, by a
fixed ranking. Where running text may follow, a way out of it is sought: a closing quote or bracket,
or a string that the grammar spells out. Where that takes too long, other tokens are tried at every
fork, each followed to its end.

All of it is counted (see `work`). A walk that has spent its share searches no more: it takes the
ways out that worked before, or the plain closers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from services.worker.scripted.lexicon import Lexicon, Order
from services.worker.scripted.trail import Trail

FORK_WIDTH: Final = 5
"""Tokens tried at a fork."""

SEARCH_STEPS: Final = 4_000
"""Bound of one search, in tokens tried."""

EXIT_WORK: Final = 4_000
"""Bound of the search for one way out of running text, in units of work."""

_CHEAP_TRIES: Final = 8
"""Ways of each kind tried at a step when the work of a walk is used up."""

_CIRCLE_FROM: Final = 768
"""Ids from which a way that repeats itself is given up; arrays repeat themselves, too."""

_CIRCLE_EVERY: Final = 64
_ESCAPE: Final = "\\"
"""What begins an escape: little may follow it, and yet it leads out of no text."""
_ENDER: Final = re.compile(r"</|(?:\b|_)(?:end|close)(?:\b|_)", re.IGNORECASE)


class Closing:
    """Ways to an end in one grammar; remembers which ways out of running text worked.

    Attributes:
        end_of_text: the id that ends a choice.
    """

    def __init__(
        self,
        lexicon: Lexicon,
        literals: Sequence[str],
        encode: Callable[[str], Sequence[int]],
        end_of_text: int,
    ) -> None:
        self._lexicon = lexicon
        self._literals = [text for text in literals if text != _ESCAPE]
        self._encode = encode
        self._enders = [text for text in literals if _ENDER.search(text)]
        self.end_of_text = end_of_text
        self._exits: list[tuple[int, ...]] = []
        self._encoded: dict[str, tuple[int, ...]] = {}
        self._steps_left = SEARCH_STEPS
        self._misses = 0
        self._onward: tuple[int, ...] = ()

    def step(self, trail: Trail) -> bool:
        """One move towards an end; False when there is none."""
        move = self._next(trail)
        return bool(move) and trail.push(*move)

    def way(self, trail: Trail, limit: int) -> list[int] | None:
        """Ids from here to the end of text, at most `limit`; `trail` stays where it is."""
        way = self._follow(trail, limit, self._next)
        # Where the grammar lets a turn go on for ever, the nearest token may lead round and round.
        return way or self._follow(trail, limit, _Turns(self).move)

    def shorter_way(self, trail: Trail, limit: int) -> list[int] | None:
        """Like `way`, with a search at every fork. Bounded, so it may miss one that there is."""
        self._steps_left = SEARCH_STEPS
        end = len(trail.ids) + limit
        return self._follow(trail, limit, lambda at: self._best_move(at, end - len(at.ids)))

    def exit(self, trail: Trail) -> tuple[int, ...] | None:
        """A way out of running text: ids after which little, or the end, may follow."""
        for position, known in enumerate(self._exits[:_CHEAP_TRIES]):
            if self._leads_out(trail, known):
                self._exits.insert(0, self._exits.pop(position))
                return known
        if trail.work.over_limit:
            self._misses += 1
            cheap = [(closer,) for closer in self._lexicon.closers[:_CHEAP_TRIES]]
            cheap += [self._ids(text) for text in self._literals[:_CHEAP_TRIES]]
            return next((ids for ids in cheap if self._leads_out(trail, ids)), None)
        found = self._find_exit(trail)
        if found is not None and found not in self._exits:
            self._exits.insert(0, found)
        return found

    def _follow(
        self, trail: Trail, limit: int, move: Callable[[Trail], Sequence[int]]
    ) -> list[int] | None:
        """The ids that `move` leads through to an end within `limit`; `trail` stays."""
        start = len(trail.ids)
        self._misses, self._onward = 0, ()
        while len(trail.ids) - start < limit and not trail.over and not trail.work.over_limit:
            ids = move(trail)
            if not ids or not trail.push(*ids) or _circles(trail, start):
                break
        way = trail.ids[start:]
        over = trail.over
        trail.pop(len(way))
        return way if over and len(way) <= limit else None

    def _next(self, trail: Trail) -> Sequence[int]:
        if trail.can_end:
            return (self.end_of_text,)
        if not trail.wide:
            return self._ender(trail) or self._nearest(trail)
        way_out = self.exit(trail)
        if way_out:
            return way_out
        # No way out yet: into the next part of it, as after the @ of an address, or, as in a
        # string that must be longer, on in big steps of all kinds.
        onward, self._onward = self._onward, ()
        if onward and self._misses > 1:
            return onward
        orders = self._lexicon.going_on
        longest = next(trail.in_order(orders[max(self._misses - 1, 0) % len(orders)]), None)
        return () if longest is None else (longest,)

    def _ender(self, trail: Trail) -> Sequence[int] | None:
        """A string that closes something, such as `</function>`, where the grammar reads one."""
        enders = self._enders[:_CHEAP_TRIES] if trail.work.over_limit else self._enders
        for text in enders:
            if trail.reads(text):
                return self._ids(text)
        return None

    def _nearest(self, trail: Trail) -> Sequence[int]:
        nearest = trail.in_order(self._order(trail))
        best = next(nearest, None)
        if best is None:
            return ()
        if best in self._lexicon.blank and trail.ids and trail.ids[-1] == best:
            # Optional whitespace before a string that begins with another kind of it.
            best = next(nearest, best)
        return (best,)

    def _order(self, trail: Trail) -> Order:
        last = self._lexicon.tokens[trail.ids[-1]][-1:] if trail.ids else b""
        return self._lexicon.closing_number if last.isdigit() else self._lexicon.closing

    def _best_move(self, trail: Trail, limit: int) -> Sequence[int]:
        """The move with the shortest way after it; the plain one where there is no fork."""
        moves = self.fork(trail) if self._steps_left > 0 else [self._next(trail)]
        best, shortest = moves[0], limit + 1
        for move in moves if len(moves) > 1 else ():
            length = self._length_by(trail, move, shortest - 1)
            if length is not None:
                best, shortest = move, length
        return best

    def _length_by(self, trail: Trail, move: Sequence[int], limit: int) -> int | None:
        """How long the way is that begins with `move`, if it is at most `limit`."""
        if not move or not trail.push(*move):
            return None
        rest = [] if trail.over else self.way(trail, limit - len(move))
        trail.pop(len(move))
        self._steps_left -= limit if rest is None else len(rest)
        return None if rest is None else len(move) + len(rest)

    def fork(self, trail: Trail) -> list[Sequence[int]]:
        """The plain move, then the best tokens of each beginning.

        `"a` and `"b` are a fork, `"a` and `"ab` are not.
        """
        plain = self._next(trail)
        if trail.can_end or trail.wide or not plain:
            return [plain]
        tokens = self._lexicon.tokens
        moves: dict[bytes, Sequence[int]] = {tokens[plain[0]][:2].strip(): plain}
        for token_id in trail.in_order(self._order(trail)):
            moves.setdefault(tokens[token_id][:2].strip(), (token_id,))
            if len(moves) == FORK_WIDTH:
                break
        return list(moves.values())

    def _find_exit(self, trail: Trail) -> tuple[int, ...] | None:
        for closer in self._lexicon.closers:
            if self._leads_out(trail, (closer,)):
                return (closer,)
        readable = [text for text in self._literals if trail.reads(text)]
        for text in readable:
            if self._leads_out(trail, ids := self._ids(text)):
                self._misses = 0
                return ids
        # The next word seldom opens a way of two strings: after each miss twice as long a break.
        self._misses += 1
        self._onward = ()
        if self._misses & (self._misses - 1):
            return None
        found = self._find_double_exit(trail, readable)
        if found is not None:
            self._misses = 0
        return found

    def _find_double_exit(self, trail: Trail, readable: Sequence[str]) -> tuple[int, ...] | None:
        """Two strings, where the first leads into other running text."""
        enough = trail.work.done + EXIT_WORK
        for first in readable:
            ids = self._ids(first)
            if not trail.push(*ids):
                continue
            # Text that changes nothing of what may be read was itself running text.
            after = [text for text in self._literals if trail.reads(text)]
            found = None
            if after != list(readable):
                seconds = (self._ids(second) for second in after)
                found = next((ids + more for more in seconds if self._leads_out(trail, more)), None)
                self._onward = self._onward or ids
            trail.pop(len(ids))
            if found or trail.work.done >= enough:
                return found
        return None

    def _ids(self, text: str) -> tuple[int, ...]:
        if text not in self._encoded:
            self._encoded[text] = tuple(self._encode(text))
        return self._encoded[text]

    def _leads_out(self, trail: Trail, ids: Sequence[int]) -> bool:
        could_end = trail.can_end
        if not trail.push(*ids):
            return False
        out = not trail.wide or (trail.can_end and not could_end)
        trail.pop(len(ids))
        return out


class _Turns:
    """Takes the moves of a fork in turn, each time it comes to the same one."""

    def __init__(self, closing: Closing) -> None:
        self._closing = closing
        self._visits: Counter[tuple[tuple[int, ...], ...]] = Counter()

    def move(self, trail: Trail) -> Sequence[int]:
        moves = self._closing.fork(trail)
        visit = tuple(tuple(move) for move in moves)
        self._visits[visit] += 1
        return moves[(self._visits[visit] - 1) % len(moves)]


def _circles(trail: Trail, start: int) -> bool:
    """Whether the ids from `start` end in the same stretch three times over."""
    count = len(trail.ids) - start
    if count < _CIRCLE_FROM or count % _CIRCLE_EVERY:
        return False
    ids = trail.ids[start:]
    trail.work.add(count // 3)
    return any(
        ids[-period:] == ids[-2 * period : -period] == ids[-3 * period : -2 * period]
        for period in range(1, len(ids) // 3 + 1)
    )
