"""Calls as JSON objects without any marker, where visible text begins.

Only the names of the offered tools tell such a call from an answer that is JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from toolrail.arguments.json_calls import CallObjects
from toolrail.arguments.json_value import Read
from toolrail.arguments.output import Output
from toolrail.events import ArgumentsDelta, CallEnd, CallStart, Event
from toolrail.parsing.blocks import Reading
from toolrail.scan import Buffer
from toolrail.syntax import Objects

_STARTS: Final = ("{", "[")


class BelievedObjects:
    """Objects that are calls once the first one names an offered tool; further ones are read on.

    A `Block`. Text after the last object is prose again.
    """

    def __init__(self, keys: Objects, reading: Reading) -> None:
        self._reading: Final = reading
        self._found: Final = Output()
        self._calls: Final = CallObjects(keys, self._found, strict=True, separators=";")
        self._begins: bool | None = None
        self._believed = False

    @property
    def begun(self) -> bool:
        """Whether the first object named an offered tool."""
        return self._believed

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        if self._begins is None:
            self._begins = _begins(buffer)
        if not self._begins:
            return Read.MORE if self._begins is None and not final else Read.BAD
        status = self._calls.read(buffer, final=final)
        events = self._found.drain()
        if events and not self._believed:
            first = events[0]
            self._believed = isinstance(first, CallStart) and first.name in self._reading.tools
        if self._believed:
            _replay(events, self._reading.output)
            return status
        undecided = status is Read.MORE and not events and not final
        return Read.MORE if undecided else Read.BAD


class WholeObjects:
    """The whole text is calls of offered tools, or none of it is; decided where that is certain.

    A `Block`. Nothing goes out before the end of the stream.
    """

    def __init__(self, keys: Objects, reading: Reading) -> None:
        self._reading: Final = reading
        self._found: Final = Output()
        self._calls: Final = CallObjects(keys, self._found, strict=True)
        self._begins: bool | None = None
        self._over = False
        self.begun = False

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        if self._begins is None:
            self._begins = _begins(buffer)
        if not self._begins:
            return Read.MORE if self._begins is None and not final else Read.BAD
        if not self._over:
            status = self._calls.read(buffer, final=final)
            if self._found.name and self._found.name not in self._reading.tools:
                return Read.BAD
            if status is not Read.DONE:
                return Read.MORE if status is Read.MORE and not final else Read.BAD
            self._over = True
        buffer.skip_space()
        if len(buffer) or not self._calls.ended:
            return Read.BAD
        return self._dispatch() if final else Read.MORE

    def _dispatch(self) -> Read:
        events = self._found.drain()
        names = [event.name for event in events if isinstance(event, CallStart)]
        if not names or any(name not in self._reading.tools for name in names):
            return Read.BAD
        self.begun = True
        _replay(events, self._reading.output)
        return Read.DONE


def _replay(events: Sequence[Event], output: Output) -> None:
    for event in events:
        match event:
            case CallStart(_, name, wire_id):
                output.start(name, wire_id)
            case ArgumentsDelta(_, text):
                output.arguments(text)
            case CallEnd(_, complete):
                output.end(complete=complete)
            case _:
                raise AssertionError("call objects put out calls only")


def _begins(buffer: Buffer) -> bool | None:
    """Whether an object or an array comes first; None: nothing but whitespace so far."""
    buffer.skip_space()
    first = buffer.peek()
    return first in _STARTS if first else None
