"""The waiting room before the work queue: jobs wait here, not there, while all slots are taken.

The queue on the bus is first come, first served, so it is kept short: a job is put there when a
slot is free for it, or will be soon. Who is next is decided here, by `fair`. A stream that waits
here has been accepted; its gateway has all that it takes to hand it to another postprocessor.

How many jobs may be out is known from the workers' cards and from what the other postprocessors
say; what they say may be old, so one job may always wait in the queue. Pure; one for a process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import msgspec

from services.postprocessor.fair import FairQueue
from services.postprocessor.run import Run
from services.postprocessor.stream import RequestStream
from toolrail.messages import Job, Room

OUTPUT_COST: Final = 4
"""A token that is written, in tokens that are read: what providers charge is about that."""

_FIRST_GUESS_TOKENS: Final = 32.0
_REMEMBERED: Final = 16
_MIN_AHEAD: Final = 2
_ALWAYS_IN_LINE: Final = 1

_Key: TypeAlias = tuple[str, int]
"""Request and choice."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A job and whose it is."""

    stream: RequestStream
    run: Run
    job: Job

    @property
    def key(self) -> _Key:
        """What tells it from others."""
        return (self.stream.request_id, self.job.choice)


@dataclass(slots=True)
class _Out:
    """A job that is on the queue or with a worker; what its owner was charged, and when."""

    ticket: Ticket
    charged: float = 0.0
    period: int = 0


@dataclass(slots=True)
class _Length:
    """How long answers of a model are, by the last ones: a guess at the next."""

    tokens: float = _FIRST_GUESS_TOKENS
    seen: int = 0

    def learn(self, tokens: int) -> None:
        self.seen = min(self.seen + 1, _REMEMBERED)
        self.tokens += (tokens - self.tokens) / self.seen


@dataclass(slots=True)
class _Line:
    """The jobs of one model."""

    length: _Length

    waiting: FairQueue[_Key, Ticket] = field(default_factory=FairQueue[_Key, Ticket])
    out: dict[_Key, _Out] = field(default_factory=dict[_Key, _Out])
    unbegun: set[_Key] = field(default_factory=set[_Key])
    spent: dict[str, float] = field(default_factory=dict[str, float])

    def charge(self, owner: str, work: float) -> None:
        self.waiting.charge(owner, work)
        if self.waiting:  # else it is nobody's loss
            self.spent[owner] = self.spent.get(owner, 0.0) + work


class WaitingRoom:
    """All models' jobs of this process.

    `slots`: of a model's workers. `ahead_per_slot`: jobs that may be out beyond the slots, for each
    of them; None: all are, the queue alone decides. `out_elsewhere`: a model's jobs that other
    postprocessors have out.
    """

    def __init__(
        self,
        slots: Callable[[str], int],
        out_elsewhere: Callable[[str], int],
        *,
        ahead_per_slot: float | None,
    ) -> None:
        self._slots = slots
        self._out_elsewhere = out_elsewhere
        self._ahead_per_slot = ahead_per_slot
        self._lines: dict[str, _Line] = {}
        self._lengths: dict[str, _Length] = {}
        self._changed: set[str] = set()

    def __len__(self) -> int:
        """How many jobs wait here."""
        return sum(len(line.waiting) for line in self._lines.values())

    @property
    def unbegun(self) -> int:
        """Jobs of this process that no worker has begun, here or in the queue."""
        return sum(len(line.waiting) + len(line.unbegun) for line in self._lines.values())

    def enter(self, stream: RequestStream, jobs: Iterable[Job]) -> None:
        """`jobs` of `stream` wait; those of a later attempt before all others of their owner."""
        line = self._line(stream.model)
        for job in jobs:
            ticket = Ticket(stream, stream.runs[job.choice], job)
            self._leave(line, ticket.key)
            ticket.run.waits = True
            line.waiting.put(stream.owner, ticket.key, ticket, first=job.attempt > 0)
        self._changed.add(stream.model)

    def adopt(self, stream: RequestStream) -> None:
        """The jobs of `stream` are out already: another postprocessor saw to that."""
        line = self._line(stream.model)
        for run in stream.runs:
            ticket = Ticket(stream, run, run.job)
            line.out[ticket.key] = _Out(ticket)
        stream.queued_any = True
        self._changed.add(stream.model)

    def settle(self, stream: RequestStream) -> None:
        """Runs of `stream` began or ended, or it is over."""
        line = self._lines.get(stream.model)
        if line is None:
            return
        for run in stream.runs:
            key = (stream.request_id, run.job.choice)
            if stream.over or run.over:
                self._leave(line, key)
            elif run.worker is not None:
                line.unbegun.discard(key)
                if (ticket := line.waiting.remove(key)) is not None:  # a former owner had it queued
                    run.waits = False
                    line.out[key] = _Out(ticket)
        self._changed.add(stream.model)

    def check(self) -> None:
        """Settle whatever may have been missed, and look at all lines anew. O(jobs)."""
        for line in list(self._lines.values()):
            tickets = (out.ticket for out in line.out.values())
            for stream in {ticket.stream.request_id: ticket.stream for ticket in tickets}.values():
                self.settle(stream)
        self._changed.update(self._lines)

    def ready(self, now_s: float) -> list[Ticket]:
        """The jobs that may go to the queue now. To be called after anything has changed."""
        found: list[Ticket] = []
        while self._changed:
            model = self._changed.pop()
            line = self._lines[model]
            limit = self._limit(model) if line.waiting else 0
            while line.waiting and (len(line.out) < limit or len(line.unbegun) < _ALWAYS_IN_LINE):
                found.append(self._go(line, now_s))
            if not (line.waiting or line.out):
                line.waiting.forget()
                if not line.spent:
                    del self._lines[model]
        return found

    def heard(self, rooms: Iterable[Room]) -> None:
        """What another postprocessor gave to the owners that wait there, and has out."""
        for room in rooms:
            line = self._lines.get(room.model)
            if line is not None and line.waiting:
                for owner, work in room.spent.items():
                    line.waiting.charge(owner, work)
        self._changed.update(self._lines)

    def report(self) -> Sequence[Room]:
        """What the others are to know; what was spent is told once."""
        rooms: list[Room] = []
        for model, line in self._lines.items():
            spent, line.spent = line.spent, {}
            rooms.append(Room(model, len(line.out), len(line.waiting), spent))
            self._changed.add(model)
        return rooms

    def _line(self, model: str) -> _Line:
        if (line := self._lines.get(model)) is None:
            length = self._lengths.setdefault(model, _Length())
            line = self._lines[model] = _Line(length)
        return line

    def _limit(self, model: str) -> float:
        """How many jobs of a model this process may have out."""
        if self._ahead_per_slot is None:
            return math.inf
        slots = self._slots(model)
        ahead = max(_MIN_AHEAD, math.ceil(self._ahead_per_slot * slots))
        return slots + ahead - self._out_elsewhere(model)

    def _go(self, line: _Line, now_s: float) -> Ticket:
        owner, ticket = line.waiting.take()
        expected = min(line.length.tokens, ticket.job.sampling.max_tokens)
        charged = _cost(ticket, expected) / ticket.stream.weight
        line.charge(owner, charged)
        line.out[ticket.key] = _Out(ticket, charged, line.waiting.period)
        line.unbegun.add(ticket.key)
        ticket.run.waits = False
        waited_s = max(0.0, now_s - ticket.run.last_s)
        if ticket.run.inherited:
            ticket.run.last_s = now_s  # it has been silent from now on
        ticket.stream.queued_any = True
        return replace(ticket, job=msgspec.structs.replace(ticket.job, waited_s=waited_s))

    def _leave(self, line: _Line, key: _Key) -> None:
        """That job is over, wherever it was."""
        if (ticket := line.waiting.remove(key)) is not None:
            ticket.run.waits = False
        line.unbegun.discard(key)
        out = line.out.pop(key, None)
        if out is None:
            return
        written = out.ticket.run.choice.completion_tokens
        if written:
            line.length.learn(written)
        if out.charged and out.period == line.waiting.period:
            stream = out.ticket.stream
            line.charge(stream.owner, _cost(out.ticket, written) / stream.weight - out.charged)


def _cost(ticket: Ticket, written: float) -> float:
    """What a job costs, with so many tokens of output. Its choices share the prompt."""
    stream = ticket.stream
    read = 0 if ticket.job.choice else stream.prompt_tokens - stream.cached_tokens
    return max(1.0, read + OUTPUT_COST * written)
