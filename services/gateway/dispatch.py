"""Early dispatch: an event for each call and each run of reasoning when it is whole.

A client that runs tools need not gather arguments, nor wait for the end of the stream: the event
has the whole call, and comes only for a call that is complete. An extension of the published
streams, off unless the deployment or the request (`x-toolrail-dispatch: tool_calls, reasoning`)
wants it. The names and members of the events in chat streams are Dynamo's; the rest of a chunk
stands beside them, without choices, so that clients that do not know them find nothing to do.

    event: tool_call_dispatch
    data: {"id":…,"choices":[],"choice_index":0,"tool_call":{"index":0,"id":"call_1",
    "type":"function","function":{"name":"f","arguments":"{}"}}}

Responses say the same in `response.output_item.done`. There the events have the item, after it:

    event: tool_call_dispatch
    data: {"type":"tool_call_dispatch","output_index":0,"item":{…},"sequence_number":9}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from services.gateway.sse import json_string
from toolrail.events import ArgumentsDelta, CallEnd, CallStart, Event, ReasoningDelta
from toolrail.settings import GatewaySettings

HEADER: Final = b"x-toolrail-dispatch"

TOOL_CALL: Final = b"tool_call_dispatch"
REASONING: Final = b"reasoning_dispatch"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What is dispatched early."""

    tool_calls: bool = False
    reasoning: bool = False

    @classmethod
    def wanted(cls, settings: GatewaySettings, header: str | None) -> Dispatch:
        """What the deployment always dispatches, and what a request of this header wants."""
        asked = {word.strip().lower() for word in (header or "").split(",")}
        return cls(
            settings.tool_call_dispatch or "tool_calls" in asked,
            settings.reasoning_dispatch or "reasoning" in asked,
        )

    def __bool__(self) -> bool:
        """Whether anything is."""
        return self.tool_calls or self.reasoning


NO_DISPATCH: Final = Dispatch()


@dataclass(slots=True)
class _OpenCall:
    head: bytes
    parts: list[str] = field(default_factory=list[str])


class ChoiceDispatch:
    """What of one choice of a chat completion is not whole yet. O(text) in all."""

    def __init__(self, dispatch: Dispatch, index: int) -> None:
        self._dispatch = dispatch
        self._index = index
        self._calls: dict[int, _OpenCall] = {}
        self._reasoning: list[str] = []

    def take(self, event: Event, call_id: str = "") -> Iterator[tuple[bytes, bytes]]:
        """Name and members of the events that `event` makes due; they go before its own chunk.

        `call_id`: of the call that it starts.
        """
        if isinstance(event, ReasoningDelta):
            if self._dispatch.reasoning:
                self._reasoning.append(event.text)
            return
        yield from self.reasoned()
        if not self._dispatch.tool_calls:
            return
        match event:
            case CallStart(index, name, custom=custom):
                kind, text = (b"custom", b"input") if custom else (b"function", b"arguments")
                head = b'"tool_call":{"index":%d,"id":"%b","type":"%b","%b":{"name":%b,"%b":'
                told = head % (index, call_id.encode(), kind, kind, json_string(name), text)
                self._calls[index] = _OpenCall(told)
            case ArgumentsDelta(index, text):
                self._calls[index].parts.append(text)
            case CallEnd(index, complete):
                call = self._calls.pop(index)
                if complete:
                    told = json_string("".join(call.parts))
                    yield TOOL_CALL, b'"choice_index":%d,%b%b}}' % (self._index, call.head, told)
            case _:
                pass

    def reasoned(self) -> Iterator[tuple[bytes, bytes]]:
        """The event of the reasoning so far, which is whole; none where there is none."""
        if self._reasoning:
            text = json_string("".join(self._reasoning))
            self._reasoning.clear()
            yield REASONING, b'"index":%d,"reasoning_content":%b' % (self._index, text)
