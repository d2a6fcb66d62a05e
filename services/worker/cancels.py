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
        self._until: dict[tuple[str, int | None], tuple[float, Cancel]] = {}

    def __len__(self) -> int:
        return len(self._until)

    def add(self, cancel: Cancel) -> None:
        """Remember `cancel`."""
        now = self._clock()
        key = (cancel.request_id, cancel.choice)
        _, known = self._until.pop(key, (now, cancel))
        self._until[key] = now + self._keep_s, _wider(cancel, known)
        while self._until:
            oldest = next(iter(self._until))
            if len(self._until) <= self._limit and self._until[oldest][0] > now:
                return
            del self._until[oldest]

    def hit(self, job: Job, term: int = 0) -> bool:
        """Whether `job` was cancelled, by an owner of its stream of `term` or a later one."""
        now = self._clock()
        found = (self._until.get((job.request_id, choice)) for choice in (None, job.choice))
        said = (one[1] for one in found if one is not None and one[0] > now)
        return any(cancel.term >= term and means(cancel, job) for cancel in said)


def means(cancel: Cancel, job: Job) -> bool:
    """Whether `cancel` is about `job`."""
    return (
        cancel.request_id == job.request_id
        and cancel.choice in (None, job.choice)
        and (cancel.attempt is None or job.attempt <= cancel.attempt)
    )


def _wider(one: Cancel, other: Cancel) -> Cancel:
    """The one of the later owner; of the same, the one that means more attempts."""
    if one.term != other.term:
        return one if one.term > other.term else other
    if one.attempt is None or other.attempt is None:
        return one if one.attempt is None else other
    return one if one.attempt >= other.attempt else other
