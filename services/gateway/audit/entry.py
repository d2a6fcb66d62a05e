"""What is gathered of a request while it is answered, to become a record when it has ended.

On the path of an answer this costs a reference to what is there anyway, and one addition an event;
everything that costs time is left to the writer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from services.gateway.answer import Outcome
from services.gateway.audit.record import Caller, Client
from toolrail.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    TextDelta,
)
from toolrail.messages import Api, EventDelta

_COMPACT_AT: Final = 512
"""Events of a choice after which neighbours of one kind are put together."""


class Budget:
    """Bytes held for audit records, by all requests of the process and by what waits."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    def take(self, size: int) -> bool:
        """Hold `size` more; False when that is too much, and nothing is taken."""
        if self.held + size > self._limit:
            return False
        self.held += size
        return True

    def give_back(self, size: int) -> None:
        """They are held no more."""
        self.held -= size


@dataclass(slots=True)
class Choice:
    """One choice of an answer; `loose`: its last events, not put together yet."""

    events: list[Event] = field(default_factory=list[Event])
    loose: int = 0
    finish: str | None = None
    migrations: int = 0

    def extend(self, events: Sequence[Event]) -> None:
        """More of it. O(events), on average."""
        self.events.extend(events)
        self.loose += len(events)
        if self.loose >= _COMPACT_AT:
            start = len(self.events) - self.loose
            self.events[start:] = joined(self.events[start:])
            self.loose = 0


class Transcript:
    """What a request was answered, as far as there is room for it.

    Attributes:
        choices: by number.
        cut: something of it is left out.
    """

    def __init__(self, budget: Budget, max_characters: int) -> None:
        self.choices: list[Choice] = []
        self.cut = False
        self._budget = budget
        self._room = max_characters
        self.held = 0

    def feed(self, deltas: Sequence[EventDelta]) -> None:
        """What came since the last time. O(events)."""
        for delta in deltas:
            while len(self.choices) <= delta.choice:
                self.choices.append(Choice())
            choice = self.choices[delta.choice]
            if delta.events and self._hold(delta.events):
                choice.extend(delta.events)
            if delta.end is not None:
                choice.finish = delta.end.finish
                choice.migrations = delta.end.migrations

    def _hold(self, events: Sequence[Event]) -> bool:
        if self.cut:
            return False
        size = sum(map(_size, events))
        if size > self._room or not self._budget.take(size):
            self.cut = True
            return False
        self._room -= size
        self.held += size
        return True


@dataclass(slots=True, kw_only=True)
class Entry:
    """One request, or one background response, on its way to a record.

    Attributes:
        transcript: None where no content is kept.
        received_s: when it came, in seconds since 1970.
        began_s: the same on the clock that measures how long it took.
    """

    kind: Literal["request", "background"] = "request"
    budget: Budget
    request_id: str
    method: str
    route: str
    api: Api | None = None
    trace_id: str = ""
    key: Caller | None = None
    client: Client | None = None
    transcript: Transcript | None = None
    received_s: float = field(default_factory=time.time)
    began_s: float = field(default_factory=time.perf_counter)
    took_s: float = 0.0
    status: int | None = None
    body: bytes | None = None
    body_bytes: int = 0
    enforcement: str | None = None
    outcome: Outcome | None = None
    hand_overs: int = 0

    @property
    def held(self) -> int:
        """Bytes it holds."""
        return len(self.body or b"") + (self.transcript.held if self.transcript else 0)

    def take_body(self, body: bytes, api: Api) -> bool:
        """Keep the body, if content is kept and there is room; False: there is not."""
        self.api = api
        self.body_bytes = len(body)
        if self.transcript is None:
            return True
        if not self.budget.take(len(body)):
            return False
        self.body = body
        return True

    def release(self) -> None:
        """It has been written, or never will be."""
        self.budget.give_back(self.held)
        self.body = None
        self.transcript = None


def joined(events: Sequence[Event]) -> list[Event]:
    """The same with neighbouring deltas of one kind put together. O(text)."""
    out: list[Event] = []
    texts: list[str] = []
    for event in events:
        if texts and _continues(out[-1], event):
            texts.append(_text(event))
            continue
        _finish(out, texts)
        out.append(event)
        texts = [_text(event)] if isinstance(event, _TEXTS) else []
    _finish(out, texts)
    return out


_TEXTS: Final = (ReasoningDelta, TextDelta, ArgumentsDelta)


def _continues(last: Event, event: Event) -> bool:
    if isinstance(event, ArgumentsDelta):
        return isinstance(last, ArgumentsDelta) and last.index == event.index
    return isinstance(event, _TEXTS) and type(event) is type(last)


def _finish(out: list[Event], texts: list[str]) -> None:
    if len(texts) < 2:
        return
    last, text = out[-1], "".join(texts)
    if isinstance(last, ArgumentsDelta):
        out[-1] = ArgumentsDelta(last.index, text)
    else:
        out[-1] = ReasoningDelta(text) if isinstance(last, ReasoningDelta) else TextDelta(text)


def _text(event: Event) -> str:
    assert isinstance(event, _TEXTS)
    return event.text


def _size(event: Event) -> int:
    match event:
        case CallStart(_, name, _, _):
            return 64 + len(name)
        case CallEnd():
            return 0
        case _:
            return len(event.text)
