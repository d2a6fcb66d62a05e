"""What is remembered of requests and runs that have ended here. Bounded; every call is O(1)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple, TypeAlias, TypeVar

from toolrail.messages import Failed

_K = TypeVar("_K")
_V = TypeVar("_V")

TOLD_KEPT: Final = 8192
"""Ended requests and choices remembered, so that a worker that did not hear of it is told again."""

Told: TypeAlias = tuple[str, int | None] | tuple[str, int, int, str]
"""Request and choice, or None for all its choices; or one attempt at one on one worker."""


class Said(NamedTuple):
    """What was said of a run, when, as which owner of its stream, and how that failed, if so."""

    model: str
    at_s: float
    term: int
    failed: Failed | None = None


class Remembered:
    """By request; the oldest is forgotten first."""

    def __init__(self) -> None:
        self._told: OrderedDict[Told, Said] = OrderedDict()
        self._outranked: OrderedDict[str, int] = OrderedDict()
        self._answered: OrderedDict[str, tuple[float, Collection[str]]] = OrderedDict()

    def said(self, run: Told) -> Said | None:
        """What was said of `run` last."""
        return self._told.get(run)

    def say(self, run: Told, said: Said) -> None:
        """That was said of it now."""
        _keep(self._told, run, said)

    def latest_term(self, request_id: str) -> int:
        """Of the owners that are known to have come after this one; 0: of none."""
        return self._outranked.get(request_id, 0)

    def outrank(self, request_id: str, term: int) -> None:
        """An owner of that `term` has the request."""
        _keep(self._outranked, request_id, max(term, self.latest_term(request_id)))

    def answer(self, request_id: str, workers: Collection[str], now_s: float) -> None:
        """The request is answered; `workers` have what they wrote of it."""
        self._answered[request_id] = now_s, workers

    def come_back(self, request_id: str) -> None:
        """It is owned anew: what `workers` have of it is wanted."""
        self._answered.pop(request_id, None)

    def expire(self, now_s: float, kept_s: float) -> Iterator[tuple[str, Collection[str]]]:
        """Requests that were answered so long ago that nobody can have missed anything of them."""
        while self._answered:
            request_id, (over_s, workers) = next(iter(self._answered.items()))
            if now_s - over_s < kept_s and len(self._answered) <= TOLD_KEPT:
                return
            del self._answered[request_id]
            yield request_id, workers


def _keep(where: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    where[key] = value
    where.move_to_end(key)
    if len(where) > TOLD_KEPT:
        where.popitem(last=False)
