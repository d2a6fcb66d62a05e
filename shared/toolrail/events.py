"""What a parser yields: one ordered list of small deltas for a choice, and its one fold.

The same structs cross the bus inside an `EventFrame`, hence msgspec and `array_like`.
`assemble` is the only fold: a non-streamed answer, `toolrail parse` and every test go through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

import msgspec


class ReasoningDelta(msgspec.Struct, frozen=True, tag="r", array_like=True, gc=False):
    """More reasoning text."""

    text: str


class TextDelta(msgspec.Struct, frozen=True, tag="t", array_like=True, gc=False):
    """More visible text."""

    text: str


class CallStart(msgspec.Struct, frozen=True, tag="s", array_like=True, gc=False):
    """A call begins: its complete name is known.

    `index` counts the calls of the choice from 0 without gaps. `id` is the id on the wire (kimi_k2,
    mistral) or None; ids that clients see are made above the parser. `custom`: a call of a custom
    tool, whose `ArgumentsDelta`s are its raw input instead of JSON; it is whole when it begins.
    """

    index: int
    name: str
    id: str | None = None
    custom: bool = False


class ArgumentsDelta(msgspec.Struct, frozen=True, tag="a", array_like=True, gc=False):
    """More of a call's arguments, as JSON text. Append-only: never retracted."""

    index: int
    text: str


class CallEnd(msgspec.Struct, frozen=True, tag="e", array_like=True, gc=False):
    """The call is over. `complete` False: cut or malformed, it must not be dispatched."""

    index: int
    complete: bool = True


Event: TypeAlias = ReasoningDelta | TextDelta | CallStart | ArgumentsDelta | CallEnd


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A run of reasoning text."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A run of visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A complete call; `arguments` is JSON text exactly as a client gets it.

    `custom`: of a custom tool, and `arguments` is its raw input.
    """

    name: str
    arguments: str
    id: str | None = None
    custom: bool = False


Item: TypeAlias = Reasoning | Text | Call


@dataclass(frozen=True, slots=True)
class IncompleteCall:
    """A call that was started and never completed; left out of the turn."""

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """The assembled turn: runs of one kind merged, incomplete calls apart."""

    items: tuple[Item, ...] = ()
    incomplete_calls: tuple[IncompleteCall, ...] = ()

    @property
    def content(self) -> str | None:
        """All visible text in order, or None when there is none."""
        return "".join(i.text for i in self.items if isinstance(i, Text)) or None

    @property
    def reasoning(self) -> str | None:
        """All reasoning in order, or None when there is none."""
        return "".join(i.text for i in self.items if isinstance(i, Reasoning)) or None

    @property
    def calls(self) -> tuple[Call, ...]:
        """The complete calls in the order the model wrote them."""
        return tuple(i for i in self.items if isinstance(i, Call))


@dataclass(slots=True)
class _OpenCall:
    name: str
    id: str | None
    custom: bool = False
    parts: list[str] = field(default_factory=list[str])
    complete: bool = False


def assemble(events: Iterable[Event]) -> Turn:
    """The turn that `events` amount to. O(total text).

    Incomplete calls are left out first, then neighbours of one kind merge, so that text on both
    sides of a dropped call is one run.
    """
    slots: list[str | _OpenCall] = []
    kinds: list[str] = []
    open_calls: dict[int, _OpenCall] = {}
    for event in events:
        match event:
            case ReasoningDelta(text):
                slots.append(text)
                kinds.append("reasoning")
            case TextDelta(text):
                slots.append(text)
                kinds.append("text")
            case CallStart(index, name, wire_id, custom):
                open_calls[index] = call = _OpenCall(name, wire_id, custom)
                slots.append(call)
                kinds.append("call")
            case ArgumentsDelta(index, text):
                open_calls[index].parts.append(text)
            case CallEnd(index, complete):
                open_calls[index].complete = complete
            case _:
                assert_never(event)
    return _merge(kinds, slots)


def _merge(kinds: Sequence[str], slots: Sequence[str | _OpenCall]) -> Turn:
    items: list[Item] = []
    incomplete: list[IncompleteCall] = []
    run: list[str] = []
    run_kind = ""

    def flush() -> None:
        text = "".join(run)
        if text:
            items.append(Reasoning(text) if run_kind == "reasoning" else Text(text))
        run.clear()

    for kind, slot in zip(kinds, slots, strict=True):
        if isinstance(slot, str):
            if kind != run_kind:
                flush()
                run_kind = kind
            run.append(slot)
        elif slot.complete:
            flush()
            items.append(Call(slot.name, "".join(slot.parts), slot.id, slot.custom))
        else:
            incomplete.append(IncompleteCall(slot.name, "".join(slot.parts), slot.id))
    flush()
    return Turn(tuple(items), tuple(incomplete))
