"""Remembers cancelled requests for as long as their jobs may still come off the queue."""

from __future__ import annotations

from collections.abc import Callable

from toolrail.messages import Cancel, Job


class Cancels:
    """Bounded by count and by age; the oldest is forgotten first. `clock` counts seconds."""

    def __init__(self, *, keep_s: float, limit: int, clock: Callable[[], float]) -> None:
        self._keep_s = keep_s
        self._limit = limit
        self._clock = clock
        self._until: dict[tuple[str, int | None], float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def add(self, cancel: Cancel) -> None:
        """Remember `cancel`."""
        now = self._clock()
        key = (cancel.request_id, cancel.choice)
        self._until.pop(key, None)
        self._until[key] = now + self._keep_s
        while self._until:
            oldest = next(iter(self._until))
            if len(self._until) <= self._limit and self._until[oldest] > now:
                return
            del self._until[oldest]

    def hit(self, job: Job) -> bool:
        """Whether `job` was cancelled."""
        now = self._clock()
        return any(
            self._until.get((job.request_id, choice), now) > now for choice in (None, job.choice)
        )
