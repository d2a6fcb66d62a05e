"""Streamed messages: EventDeltas of a request, as the bytes of server-sent events.

    event: content_block_delta
    data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}

One block is open at a time and their indexes have no gaps. A block of text or thinking begins with
its first character that is not white space, which takes what was held back before it along; a
block of nothing else never begins. Events are joined from constant pieces: this is a hot path.
Source of the shapes: Anthropic's API reference, version 2023-06-01 (anthropic-python 2.14.0).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias, assert_never

from services.gateway.answer import Head, Tally, finish_reason
from services.gateway.messages.errors import error_event
from services.gateway.messages.objects import Message, Signature, Usage, new_call_id, stop_of
from services.gateway.messages.objects import usage as usage_of
from services.gateway.objects import to_json
from services.gateway.sse import json_string, named_event
from toolrail.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    TextDelta,
)
from toolrail.messages import ChoiceEnd, EventDelta, Failed
from toolrail.messages import Usage as UsageCounts

_Kind: TypeAlias = Literal["text", "thinking"]

PING: Final = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOP: Final = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_BLOCK_START: Final = (
    b"event: content_block_start\n"
    b'data: {"type":"content_block_start","index":%d,"content_block":%b}\n\n'
)
_BLOCK_DELTA: Final = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":%b}}\n\n'
)
_BLOCK_STOP: Final = (
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
)
_EMPTY: Final = {
    "text": b'{"type":"text","text":""}',
    "thinking": b'{"type":"thinking","thinking":"","signature":""}',
}
_GROWTH: Final = {"text": (b"text_delta", b"text"), "thinking": (b"thinking_delta", b"thinking")}


class _Block:
    """The block that is written: of one kind of text, or the call of this index."""

    __slots__ = ("call", "held", "kind", "open", "signature")

    def __init__(self, kind: _Kind | None, call: int = -1) -> None:
        self.kind = kind
        self.call = call
        self.open = kind is None
        self.held: list[str] = []
        self.signature = Signature()


class MessageWriter:
    """Writes one message's events. `done` is True after the last one, or after an error."""

    def __init__(
        self, head: Head, *, prompt_tokens: int, new_id: Callable[[], str] = new_call_id
    ) -> None:
        self.tally = Tally()
        self.failed: Failed | None = None
        self.done = False
        self._new_id = new_id
        self._index = 0
        self._block: _Block | None = None
        self._end: ChoiceEnd | None = None
        begun = Message(
            id=head.id,
            model=head.model,
            usage=Usage(input_tokens=prompt_tokens, output_tokens=0),
        )
        data = b'{"type":"message_start","message":' + to_json(begun) + b"}"
        self._parts: list[bytes] = [named_event(b"message_start", data), PING]

    def keep_alive(self) -> bytes:
        """An event that clients of this API skip."""
        return PING

    def error(self, failed: Failed) -> bytes:
        """The error as the last event."""
        return error_event(failed)

    def write(self, deltas: Sequence[EventDelta]) -> bytes:
        """All events of `deltas`, joined into one body write. O(text in them)."""
        for delta in deltas:
            if delta.failed is not None:
                self._parts.append(error_event(delta.failed))
                self.failed = delta.failed
                self.done = True
                break
            for event in delta.events:
                self._take(event)
            self._end = delta.end or self._end
            if delta.usage is not None:
                self._finish(delta.usage)
                break
        data = b"".join(self._parts)
        self._parts.clear()
        return data

    def _take(self, event: Event) -> None:
        match event:
            case TextDelta(text):
                self._say("text", text)
            case ReasoningDelta(text):
                self._say("thinking", text)
            case CallStart(index, name):
                self._close()
                self._block = _Block(None, index)
                self._start(
                    b'{"type":"tool_use","id":"%b","name":%b,"input":{}}'
                    % (self._new_id().encode(), json_string(name))
                )
            case ArgumentsDelta(index, text):
                assert self._block is not None
                assert self._block.call == index  # parsers write one call after the other
                if text:
                    self._grow(b"input_json_delta", b"partial_json", text)
            case CallEnd(_, complete):
                self.tally.complete_calls += complete
                self.tally.incomplete_calls += not complete
                self._close()
            case _:
                assert_never(event)

    def _say(self, kind: _Kind, text: str) -> None:
        if not text:
            return
        block = self._block
        if block is None or block.kind != kind:
            self._close()
            self._block = block = _Block(kind)
        if not block.open:
            block.held.append(text)
            if text.isspace():
                return
            text = "".join(block.held)
            block.open = True
            self._start(_EMPTY[kind])
        if kind == "thinking":
            block.signature.add(text)
        self._grow(*_GROWTH[kind], text)

    def _start(self, content_block: bytes) -> None:
        self._parts.append(_BLOCK_START % (self._index, content_block))

    def _grow(self, kind: bytes, field: bytes, text: str) -> None:
        self._parts.append(_BLOCK_DELTA % (self._index, kind, field, json_string(text)))

    def _close(self) -> None:
        """End the block that is open, if one is."""
        block, self._block = self._block, None
        if block is None or not block.open:
            return
        if block.kind == "thinking":
            self._grow(b"signature_delta", b"signature", block.signature.text())
        self._parts.append(_BLOCK_STOP % self._index)
        self._index += 1

    def _finish(self, counts: UsageCounts) -> None:
        assert self._end is not None
        self._close()
        calls = self.tally.complete_calls
        self.tally.usage = counts
        self.tally.finish_reasons.append(finish_reason(self._end, calls))
        reason, sequence = stop_of(self._end, calls)
        told = b"null" if sequence is None else json_string(sequence)
        self._parts += (
            b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"%b",'
            b'"stop_sequence":%b},"usage":%b}\n\n'
            % (reason.encode(), told, to_json(usage_of(counts))),
            _STOP,
        )
        self.done = True
