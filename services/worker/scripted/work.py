"""What walks cost: counted, bounded, and in slices between which other walks get their turn.

Counted, not timed: a walk is the same on every machine, however busy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Final

WALK_WORK: Final = 100_000
"""What one walk may spend on ways to an end; a unit is about one call of the grammar's matcher."""

SLICE_WORK: Final = 2_000
"""What a walk spends between two pauses: some 20 ms."""


class WalkAbandonedError(Exception):
    """Nobody waits for this walk any more."""


class Work:
    """Counts the work of one walk.

    `pause` is called every `SLICE_WORK` units; it may wait, or raise WalkAbandonedError.

    Attributes:
        done: units so far.
    """

    def __init__(self, pause: Callable[[], None] | None = None, limit: int = WALK_WORK) -> None:
        self._pause = pause
        self._limit = limit
        self._next_pause = SLICE_WORK
        self.done = 0

    @property
    def over_limit(self) -> bool:
        """Whether a walk must search no more, and write on as is cheapest."""
        return self.done >= self._limit

    def add(self, units: int = 1) -> None:
        """Count `units`."""
        self.done += units
        if self.done >= self._next_pause:
            self._next_pause = self.done + SLICE_WORK
            if self._pause is not None:
                self._pause()


class Turns:
    """One thread works at a time, those that wait follow in the order they came.

    Many threads of pure Python at once would hold up the event loop, and a plain lock would let the
    one that has it take it again.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken = False
        self._waiting: deque[Lock] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine = self._queue()
        mine.acquire()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._taken = self._call_next()

    def give_way(self) -> None:
        """Let those who wait have a turn each, if any do."""
        with self._lock:
            if not self._call_next():
                return
            mine = self._queue()
        mine.acquire()

    def _queue(self) -> Lock:
        mine = Lock()
        mine.acquire()
        self._waiting.append(mine)
        return mine

    def _call_next(self) -> bool:
        if not self._waiting:
            return False
        self._waiting.popleft().release()
        return True
