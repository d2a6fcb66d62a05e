"""Streamed responses: EventDeltas of a request, as the bytes of server-sent events.

    event: response.output_text.delta
    data: {"type":"response.output_text.delta","item_id":"msg_1o0000","output_index":0,
    "content_index":0,"delta":"Hi","logprobs":[],"sequence_number":4}

Events are joined from constant pieces, as chunks are: this is the gateway's hot path. Source of
the shapes: OpenAI OpenAPI document 2.3.0, `ResponseStreamEvent`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from services.gateway.answer import Head
from services.gateway.dispatch import NO_DISPATCH, REASONING, TOOL_CALL, Dispatch
from services.gateway.objects import TokenLogprob, to_json
from services.gateway.responses.body import Asked
from services.gateway.responses.building import ResponseBuilding
from services.gateway.responses.items import Kind, OutputItem
from services.gateway.sse import KEEP_ALIVE, json_string, one_line
from toolrail.messages import EventDelta, Failed

_GROWTH: Final[Mapping[Kind, bytes]] = {
    "reasoning": b"response.reasoning_text",
    "message": b"response.output_text",
    "function_call": b"response.function_call_arguments",
    "custom_tool_call": b"response.custom_tool_call_input",
}
"""What the events of an item's text are called, without `.delta` and `.done`."""


class _Alternative(msgspec.Struct, frozen=True):
    token: str
    logprob: float


class _Logprob(msgspec.Struct, frozen=True):
    """A token's logprob as events tell it: without bytes, which the item has."""

    token: str
    logprob: float
    top_logprobs: tuple[_Alternative, ...]


class ResponseWriter:
    """Writes the events of one response. `done` is True after the last one."""

    def __init__(self, head: Head, asked: Asked, dispatch: Dispatch = NO_DISPATCH) -> None:
        self.failed: Failed | None = None
        self.done = False
        self._building = ResponseBuilding(head, asked, self)
        self.tally = self._building.tally
        self._dispatch = dispatch
        self._parts: list[bytes] = []
        self._number = 0

    @property
    def response(self) -> bytes:
        """The final object; empty before there is one."""
        return self._building.response

    def keep_alive(self) -> bytes:
        """A comment."""
        return KEEP_ALIVE

    def write(self, deltas: Sequence[EventDelta]) -> bytes:
        """All events of `deltas`, joined into one body write. O(text in them)."""
        self._begin()
        for delta in deltas:
            if delta.failed is not None:
                self._fail(delta.failed)
                break
            self._building.take(delta)
            if delta.usage is not None:
                self._lifecycle(self._building.finish(delta.usage), self.response)
                self.done = True
                break
        return self._taken()

    def error(self, failed: Failed) -> bytes:
        """`response.failed`, with what there is of the output."""
        self._begin()
        self._fail(failed)
        return self._taken()

    def opened(self, item: OutputItem) -> None:
        """`output_item.added`, and the content part of an item that has one."""
        self._event(
            b"response.output_item.added",
            b'"output_index":%d,"item":%b' % (item.index, item.json()),
        )
        if item.kind in ("reasoning", "message"):
            self._event(b"response.content_part.added", item.place + b',"part":' + item.part())

    def grew(self, item: OutputItem, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        """A delta."""
        members = item.place + b',"delta":' + json_string(text)
        if item.kind == "message":
            members += b',"logprobs":' + _logprobs(logprobs)
        self._event(_GROWTH[item.kind] + b".delta", members)

    def closed(self, item: OutputItem) -> None:
        """What says that an item is whole, and `output_item.done`.

        A call that is not whole has no `done` of its arguments: whoever dispatches on it must not.
        """
        match item.kind:
            case "reasoning" | "message":
                members = item.place + b',"text":' + json_string(item.text)
                if item.kind == "message":
                    members += b',"logprobs":' + _logprobs(item.logprobs)
                self._event(_GROWTH[item.kind] + b".done", members)
                self._event(b"response.content_part.done", item.place + b',"part":' + item.part())
            case "function_call" if item.status == "completed":
                members = item.place + b',"name":%b,"arguments":%b' % (
                    item.name,
                    json_string(item.text),
                )
                self._event(b"response.function_call_arguments.done", members)
            case "custom_tool_call":
                members = item.place + b',"input":' + json_string(item.text)
                self._event(b"response.custom_tool_call_input.done", members)
            case _:
                pass
        self._whole(b"response.output_item.done", item)
        if item.status == "completed":
            if item.kind == "reasoning" and self._dispatch.reasoning:
                self._whole(REASONING, item)
            elif item.kind in ("function_call", "custom_tool_call") and self._dispatch.tool_calls:
                self._whole(TOOL_CALL, item)

    def _whole(self, kind: bytes, item: OutputItem) -> None:
        self._event(kind, b'"output_index":%d,"item":%b' % (item.index, item.json()))

    def _begin(self) -> None:
        if not self._number:
            self._lifecycle("created", self._building.begun)
            self._lifecycle("in_progress", self._building.begun)

    def _fail(self, failed: Failed) -> None:
        # No events close what is open: nobody may take for whole what was cut off.
        self._building.fail(failed)
        self._lifecycle("failed", self.response)
        self.failed = failed
        self.done = True

    def _lifecycle(self, status: str, response: bytes) -> None:
        self._event(b"response." + status.encode(), b'"response":' + one_line(response))

    def _event(self, kind: bytes, members: bytes) -> None:
        self._parts.append(
            b'event: %b\ndata: {"type":"%b",%b,"sequence_number":%d}\n\n'
            % (kind, kind, members, self._number)
        )
        self._number += 1

    def _taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _logprobs(entries: Sequence[TokenLogprob]) -> bytes:
    if not entries:
        return b"[]"
    told = [
        _Logprob(
            entry.token,
            entry.logprob,
            tuple(_Alternative(top.token, top.logprob) for top in entry.top_logprobs),
        )
        for entry in entries
    ]
    return one_line(to_json(told))
