"""What was sent of each run, kept so that it can be sent again.

Ids are kept in arrays, 4 bytes each; a logprob counts for what it weighs. Bounded as a whole: where
it is full the runs that have ended go first, the oldest before the others, then the one that would
take more: it cannot be sent again from then on, and says so.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from toolrail.messages import Job, TokenDelta, TokenLogprob

ORPHAN_S: Final = 30.0
"""How long what has ended waits for another owner when its owner is dead; longer than a gateway
looks for one."""

_LOGPROB_WEIGHT: Final = 32
"""A logprob in memory, alternatives not counted, as a multiple of an id in an array."""


@dataclass(slots=True)
class Sent:
    """The deltas of one attempt at one choice.

    Attributes:
        address: where they go.
        over_s: when the last was sent, on the clock of its store; None: it still runs.
        complete: they can be sent again.
    """

    job: Job
    address: str
    over_s: float | None = None
    complete: bool = True
    weight: int = 0
    _ids: array[int] = field(default_factory=lambda: array("I"))
    _ends: array[int] = field(default_factory=lambda: array("I"))
    _logprobs: dict[int, tuple[TokenLogprob, ...]] = field(default_factory=dict)
    _first: TokenDelta | None = None
    _last: TokenDelta | None = None

    def __len__(self) -> int:
        """How many deltas were sent."""
        return len(self._ends)

    def add(self, delta: TokenDelta) -> int:
        """Keep `delta`, the next one; by how much the weight rises. O(ids)."""
        self._first = self._first or delta
        self._last = delta
        if not self.complete:
            return 0
        before = self.weight
        self._ids.extend(delta.token_ids)
        self.weight += 1 + len(delta.token_ids)
        if delta.logprobs:
            self._logprobs[len(self._ends)] = delta.logprobs
            self.weight += sum(_LOGPROB_WEIGHT * (1 + len(one.top)) for one in delta.logprobs)
        self._ends.append(len(self._ids))
        return self.weight - before

    def forget(self) -> int:
        """Keep it no more; by how much the weight falls."""
        before, self.weight = self.weight, 0
        self.complete = False
        self._ids, self._ends, self._logprobs = array("I"), array("I"), {}
        return before

    def can_send(self, from_seq: int) -> bool:
        """Whether `deltas` would be right; of earlier attempts only the ids are known."""
        earlier = from_seq < 0 and bool(self.job.prefix_token_ids)
        return self.complete and not (earlier and self.job.sampling.logprobs is not None)

    def deltas(self, from_seq: int) -> Iterable[TokenDelta]:
        """The deltas from `from_seq` on; from -1 with the ids of earlier attempts in the first."""
        for seq in range(max(0, from_seq), len(self._ends)):
            delta = self._delta(seq)
            if from_seq < 0 and seq == 0 and self.job.prefix_token_ids:
                ids = self.job.prefix_token_ids + delta.token_ids
                delta = msgspec.structs.replace(delta, token_ids=ids)
            yield delta

    def _delta(self, seq: int) -> TokenDelta:
        if self._last is not None and seq == self._last.seq:
            return self._last
        assert self._first is not None
        start = self._ends[seq - 1] if seq else 0
        return TokenDelta(
            self._first.request_id,
            self._first.choice,
            self._first.epoch,
            seq,
            tuple(self._ids[start : self._ends[seq]]),
            logprobs=self._logprobs.get(seq),
            cached_tokens=self._first.cached_tokens if seq == 0 else None,
            trace=self._first.trace if seq == 0 else None,
        )


class Kept:
    """All that is kept, by request and choice. `clock` counts seconds."""

    def __init__(self, *, limit: int, keep_s: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._keep_s = keep_s
        self._clock = clock
        self._sent: OrderedDict[tuple[str, int], Sent] = OrderedDict()
        self._choices: dict[str, set[int]] = {}
        self.weight = 0

    def __len__(self) -> int:
        return len(self._sent)

    def of(self, request_id: str) -> list[Sent]:
        """What is kept of a request."""
        return [self._sent[request_id, choice] for choice in self._choices.get(request_id, ())]

    def get(self, request_id: str, choice: int) -> Sent | None:
        """What is kept of a choice."""
        return self._sent.get((request_id, choice))

    def begin(self, job: Job, address: str) -> Sent:
        """A new run; what an earlier attempt at it sent goes."""
        self._drop((job.request_id, job.choice))
        sent = self._sent[job.request_id, job.choice] = Sent(job, address)
        self._choices.setdefault(job.request_id, set()).add(job.choice)
        return sent

    def add(self, sent: Sent, delta: TokenDelta) -> None:
        """Keep `delta` of a run that was begun. Amortised O(ids)."""
        self.weight += sent.add(delta)
        if delta.finish is not None:
            sent.over_s = self._clock()
            self._sent.move_to_end((delta.request_id, delta.choice))
        if self.weight > self._limit:
            self._make_room(sent)

    def expire(self, present: Collection[str]) -> None:
        """Drop what ended long ago, or whose owner died and was not replaced. O(runs): slow timer.

        `present`: the addresses of owners that live.
        """
        now = self._clock()
        for key, sent in list(self._sent.items()):
            if sent.over_s is None:
                continue
            keep_s = self._keep_s if sent.address in present else min(self._keep_s, ORPHAN_S)
            if now - sent.over_s >= keep_s:
                self._drop(key)

    def drop(self, request_id: str) -> None:
        """Nobody will want this request again."""
        for choice in list(self._choices.get(request_id, ())):
            self._drop((request_id, choice))

    def drop_choice(self, request_id: str, choice: int) -> None:
        """Nobody will want this choice again."""
        self._drop((request_id, choice))

    def _make_room(self, latest: Sent) -> None:
        ended = [key for key, sent in self._sent.items() if sent.over_s is not None]
        for key in ended:
            if self.weight <= self._limit:
                return
            if self._sent[key] is not latest:
                self._drop(key)
        if self.weight > self._limit:
            self.weight -= latest.forget()

    def _drop(self, key: tuple[str, int]) -> None:
        sent = self._sent.pop(key, None)
        if sent is None:
            return
        self.weight -= sent.weight
        choices = self._choices[key[0]]
        choices.discard(key[1])
        if not choices:
            del self._choices[key[0]]
