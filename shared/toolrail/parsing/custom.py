"""Calls of custom tools: the function that a model was shown, back to the raw input of the tool.

Models write a custom tool's input as the one string of a function's arguments (`INPUT_SCHEMA`),
each family in its own notation; its parser makes JSON of it: `{"input": "print(1)"}`. Here such a
call is kept until it is complete and leaves as one piece with the text of that string. Arguments of
another shape leave as they are. A call that breaks off never leaves: its input is not known.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, assert_never

import msgspec

from toolrail.events import ArgumentsDelta, CallEnd, CallStart, Event, ReasoningDelta, TextDelta
from toolrail.tools import INPUT


class _Wrapper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: str


_decoder: Final = msgspec.json.Decoder(_Wrapper)


def wrapped(text: str) -> str:
    """The arguments, as JSON text, in which a model passes `text` to a custom tool."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


def unwrapped(arguments: str) -> str:
    """The input in `arguments`: what its one string says, or all of it if it is no such wrapper."""
    try:
        return _decoder.decode(arguments).input
    except (msgspec.MsgspecError, UnicodeError):  # lone surrogates have no bytes
        return arguments


@dataclass(frozen=True, slots=True)
class _Held:
    start: CallStart
    parts: list[str] = field(default_factory=list[str])


class CustomCalls:
    """Unwraps the calls of custom tools in the events of one choice.

    Events of other calls pass at once. Calls that leave are numbered without gaps.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held: dict[int, _Held] = {}
        self._numbers: dict[int, int] = {}
        self._next = 0

    def feed(self, event: Event) -> list[Event]:
        """What `event` makes certain. Amortised O(text); memory is the open call's text."""
        match event:
            case TextDelta() | ReasoningDelta():
                return [event]
            case CallStart(index, name) if name in self._names:
                self._held[index] = _Held(event)
                return []
            case CallStart(index):
                self._numbers[index] = self._number()
                return [msgspec.structs.replace(event, index=self._numbers[index])]
            case ArgumentsDelta(index, text) if index in self._held:
                self._held[index].parts.append(text)
                return []
            case CallEnd(index, complete) if index in self._held:
                held = self._held.pop(index)
                return self._call(held) if complete else []
            case ArgumentsDelta(index) | CallEnd(index):
                return [msgspec.structs.replace(event, index=self._numbers[index])]
            case _:
                assert_never(event)

    def _call(self, held: _Held) -> list[Event]:
        index = self._number()
        text = unwrapped("".join(held.parts))
        start = msgspec.structs.replace(held.start, index=index, custom=True)
        return [start, *([ArgumentsDelta(index, text)] if text else []), CallEnd(index)]

    def _number(self) -> int:
        self._next += 1
        return self._next - 1
