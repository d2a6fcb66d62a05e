"""What of a choice was heard, so that what is said again can be told from what is new.

Where a stream is cut into deltas is chance, what it says is not: a parser's events do not depend on
how its text came. So a position in a choice is a count, of characters and of the beginnings and
ends of calls, and a new owner of the stream, who says all of it again from the start, goes on from
there exactly. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from toolrail.events import CallEnd, CallStart, Event
from toolrail.messages import EventDelta


def length(events: Sequence[Event]) -> int:
    """How far `events` go. O(events)."""
    total = 0
    for event in events:
        total += 1 if isinstance(event, CallStart | CallEnd) else len(event.text)
    return total


class Heard:
    """How much of one choice was heard, and how much of that is being said again.

    Attributes:
        ended: its end was heard.
    """

    __slots__ = ("_again", "_length", "_logprobs", "_logprobs_again", "ended")

    def __init__(self) -> None:
        self.ended = False
        self._length = 0
        self._logprobs = 0
        self._again = 0
        self._logprobs_again = 0

    def start_again(self) -> None:
        """The stream has a new owner, who says everything from the start."""
        self._again = self._length
        self._logprobs_again = self._logprobs

    @property
    def anything(self) -> bool:
        """Whether something of it was heard."""
        return bool(self._length or self._logprobs or self.ended)

    @property
    def behind(self) -> bool:
        """Whether more was heard than was said again so far."""
        return bool(self._again or self._logprobs_again)

    def take(self, delta: EventDelta) -> EventDelta:
        """What is new in `delta`. O(events); of a stream with one owner, `delta` itself."""
        if self._again or self._logprobs_again or self.ended:
            delta = self._new_in(delta)
        self._length += length(delta.events)
        if delta.logprobs is not None:
            self._logprobs += len(delta.logprobs)
        if delta.end is not None:
            self.ended = True
        return delta

    def _new_in(self, delta: EventDelta) -> EventDelta:
        if self.ended:
            return msgspec.structs.replace(delta, events=(), logprobs=None, end=None)
        logprobs = delta.logprobs
        if logprobs is not None and self._logprobs_again:
            skipped = min(self._logprobs_again, len(logprobs))
            self._logprobs_again -= skipped
            logprobs = logprobs[skipped:] or None
        events = tuple(self._rest(delta.events))
        return msgspec.structs.replace(delta, events=events, logprobs=logprobs)

    def _rest(self, events: Sequence[Event]) -> list[Event]:
        rest: list[Event] = []
        for event in events:
            if not self._again:
                rest.append(event)
                continue
            size = length((event,))
            if size > self._again and not isinstance(event, CallStart | CallEnd):
                rest.append(msgspec.structs.replace(event, text=event.text[self._again :]))
            self._again = max(0, self._again - size)
        return rest
