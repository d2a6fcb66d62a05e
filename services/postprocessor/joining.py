"""Events as large as they should travel: neighbours of one kind joined, the very long ones cut.

A coalesced frame should not become many chunks, nor a value that a parser had to hold until its end
a message that the bus refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from toolrail.events import ArgumentsDelta, CallEnd, CallStart, Event, ReasoningDelta, TextDelta

PORTION_CHARACTERS: Final = 65_536
"""Text of one message's delta: at most four times as many bytes, well below any bus's bound."""


def joined(events: Sequence[Event]) -> list[Event]:
    """`events` with neighbours of one kind (and one call) joined. O(total text)."""
    out: list[Event] = []
    for _, run in groupby(events, key=_kind):
        same = list(run)
        texts = [e.text for e in same if isinstance(e, TextDelta | ReasoningDelta | ArgumentsDelta)]
        if len(texts) > 1:
            out.append(msgspec.structs.replace(same[0], text="".join(texts)))
        else:
            out += same
    return out


def portions(events: Sequence[Event]) -> list[list[Event]]:
    """`events` in lists of about `PORTION_CHARACTERS` at most; one list when that is enough."""
    if sum(map(_size, events)) <= PORTION_CHARACTERS:
        return [list(events)]
    out: list[list[Event]] = [[]]
    room = PORTION_CHARACTERS
    for event in events:
        for piece in _pieces(event):
            size = _size(piece)
            if size > room and out[-1]:
                out.append([])
                room = PORTION_CHARACTERS
            out[-1].append(piece)
            room -= size
    return out


def _pieces(event: Event) -> Iterable[Event]:
    if _size(event) <= PORTION_CHARACTERS:
        return (event,)
    assert isinstance(event, TextDelta | ReasoningDelta | ArgumentsDelta)
    return (
        msgspec.structs.replace(event, text=event.text[at : at + PORTION_CHARACTERS])
        for at in range(0, len(event.text), PORTION_CHARACTERS)
    )


def _size(event: Event) -> int:
    return 0 if isinstance(event, CallStart | CallEnd) else len(event.text)


def _kind(event: Event) -> tuple[type[Event], int]:
    match event:
        case TextDelta() | ReasoningDelta():
            return type(event), 0
        case ArgumentsDelta(index) | CallStart(index) | CallEnd(index):
            return type(event), index
