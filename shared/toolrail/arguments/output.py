"""Where readers put what they read: one ordered list of events, calls numbered as they start."""

from __future__ import annotations

from toolrail.events import ArgumentsDelta, CallEnd, CallStart, Event, ReasoningDelta, TextDelta
from toolrail.scan import Buffer


class Output:
    """The events of one turn.

    `hold` keeps events back until `release` (they happened) or `discard` (they did not).
    `mute_calls`: calls are read and left out (`tool_choice: none`). `buffer`: what calls are read
    from.
    """

    __slots__ = (
        "_buffer",
        "_events",
        "_held_from",
        "_index",
        "_mute",
        "_open",
        "complete_calls",
        "name",
        "seen",
        "started_calls",
    )

    def __init__(self, *, mute_calls: bool = False, buffer: Buffer | None = None) -> None:
        self._buffer = buffer
        self._events: list[Event] = []
        self._held_from: tuple[int, int, bool, int] | None = None
        self._index = 0
        self._open = False
        self._mute = mute_calls
        self.complete_calls = 0
        """Calls that ended complete so far, muted ones included."""
        self.started_calls = 0
        """Calls that started so far, also those that proved to be none."""
        self.name = ""
        """Name of the call that started last."""
        self.seen = 0
        """Characters of the buffer that were consumed when a call last started or completed."""

    @property
    def in_call(self) -> bool:
        """Whether a call was started and has not ended."""
        return self._open

    def text(self, text: str) -> None:
        """More visible text."""
        if text:
            self._events.append(TextDelta(text))

    def reasoning(self, text: str) -> None:
        """More reasoning."""
        if text:
            self._events.append(ReasoningDelta(text))

    def start(self, name: str, wire_id: str | None = None) -> None:
        """A call starts. The one before it must have ended."""
        self._open = True
        self.started_calls += 1
        self.name = name
        self._see()
        if not self._mute:
            self._events.append(CallStart(self._index, name, wire_id))

    def arguments(self, text: str) -> None:
        """More of the open call's arguments."""
        if text and not self._mute:
            self._events.append(ArgumentsDelta(self._index, text))

    def end(self, *, complete: bool = True) -> None:
        """The open call ends; nothing happens when there is none."""
        if not self._open:
            return
        self._open = False
        self.complete_calls += complete
        if complete:
            self._see()
        if not self._mute:
            self._events.append(CallEnd(self._index, complete))
            self._index += 1

    def _see(self) -> None:
        if self._buffer is not None:
            self.seen = self._buffer.consumed

    @property
    def holding(self) -> bool:
        """Whether events are being held back."""
        return self._held_from is not None

    def hold(self) -> None:
        """Keep what comes from now on."""
        self._held_from = (len(self._events), self._index, self._open, self.complete_calls)

    def release(self) -> None:
        """What was held happened."""
        self._held_from = None

    def discard(self) -> None:
        """What was held did not happen."""
        if self._held_from is not None:
            kept, self._index, self._open, self.complete_calls = self._held_from
            del self._events[kept:]
            self._held_from = None

    def drain(self) -> list[Event]:
        """The events that are certain, once."""
        if self._held_from is None:
            events, self._events = self._events, []
            return events
        kept = self._held_from[0]
        events = self._events[:kept]
        del self._events[:kept]
        self._held_from = (0, *self._held_from[1:])
        return events
