"""Peers that were registered and are not any more: dead, or about to register again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

_FORGET_S: Final = 3600.0
"""No stream lives as long as that after its peer; so the memory of peers is bounded."""


class Absences:
    """Since when each peer that was there has been gone."""

    def __init__(self) -> None:
        self._present: set[str] = set()
        self._gone: dict[str, float] = {}

    def update(self, present: Collection[str], now_s: float) -> None:
        """Who is there now."""
        for name in self._present.difference(present):
            self._gone[name] = now_s
        self._present = set(present)
        self._gone = {
            name: since_s
            for name, since_s in self._gone.items()
            if name not in self._present and now_s - since_s < _FORGET_S
        }

    def longer_than(self, seconds: float, now_s: float) -> set[str]:
        """Peers gone for at least `seconds`."""
        return {name for name, since_s in self._gone.items() if now_s - since_s >= seconds}
