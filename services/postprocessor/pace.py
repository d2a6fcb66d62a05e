"""How fast the line for the workers moves, to tell those who find it full when to come again."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

HALF_LIFE_S: Final = 10.0
MAX_RETRY_AFTER_S: Final = 30
_UNKNOWN_RETRY_AFTER_S: Final = 1


class Line(NamedTuple):
    """Streams of a model of which no worker has begun anything; the first came `oldest_s` ago."""

    streams: int = 0
    oldest_s: float = 0.0


class Pace:
    """Streams that leave the line in a second, the older ones counting less and less. O(1)."""

    def __init__(self) -> None:
        self._count = 0.0
        self._at_s = 0.0

    def leave(self, now_s: float) -> None:
        """One has left the line: a worker has begun it."""
        self._count = self._now(now_s) + 1
        self._at_s = now_s

    def retry_after_s(self, in_line: int, now_s: float) -> int:
        """Whole seconds until those `in_line` now are probably gone, within bounds."""
        a_second = self._now(now_s) * math.log(2) / HALF_LIFE_S
        if not a_second:
            return _UNKNOWN_RETRY_AFTER_S
        return max(1, min(MAX_RETRY_AFTER_S, math.ceil(in_line / a_second)))

    def _now(self, now_s: float) -> float:
        return self._count * 0.5 ** (max(0.0, now_s - self._at_s) / HALF_LIFE_S)


class Paces:
    """The pace of the whole line, and of each owner that waits in it: in fair order they differ."""

    def __init__(self) -> None:
        self._all = Pace()
        self._owners: dict[str, Pace] = {}

    def leave(self, owner: str, now_s: float) -> None:
        """One of `owner` has left the line."""
        self._all.leave(now_s)
        self._owners.setdefault(owner, Pace()).leave(now_s)

    def forget(self, owner: str) -> None:
        """None of `owner` is in line any more."""
        self._owners.pop(owner, None)

    def retry_after_s(self, owner: str | None, in_line: int, now_s: float) -> int:
        """Whole seconds until those `in_line` are probably gone: all of `owner`, or all there are.

        By the pace of the whole line, while the owner's own is not known.
        """
        pace = self._all if owner is None else self._owners.get(owner, self._all)
        return pace.retry_after_s(in_line, now_s)
