"""Watches visible text for control markers: quoted by the model on purpose, or leaked by a parser.

A counter, not a filter: the parser alone decides what is text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache


@lru_cache(maxsize=256)
def _pattern(markers: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(markers, key=len, reverse=True)
    return re.compile("|".join(re.escape(marker) for marker in longest_first))


class LeakWatch:
    """Counts the markers in one choice's visible text, also those cut over deltas. O(len)."""

    def __init__(self, markers: Sequence[str]) -> None:
        wanted = tuple(marker for marker in markers if marker.strip())
        self._find = _pattern(wanted).finditer
        self._starts = frozenset(marker[0] for marker in wanted)
        self._keep = max((len(marker) for marker in wanted), default=1) - 1
        self._tail = ""

    def feed(self, text: str) -> int:
        """How many markers `text` completes."""
        if not self._tail and self._starts.isdisjoint(text):
            return 0  # nearly all text
        window = self._tail + text
        count, end = 0, 0
        for found in self._find(window):
            count += 1
            end = found.end()
        tail = window[max(end, len(window) - self._keep) :]
        self._tail = "" if self._starts.isdisjoint(tail) else tail
        return count
