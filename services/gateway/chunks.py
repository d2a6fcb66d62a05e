"""Streamed chat completions: EventDeltas of a request, as the bytes of server-sent events.

Chunks are joined from constant pieces and strings escaped once, not built as objects: this is the
gateway's hot path. The first delta of a choice is its role; a call's first delta has its id, type
and whole name and empty arguments, later ones only arguments; the finish chunk's delta is empty; a
failure is an error event, never a finish reason.

    data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":
    [{"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null}]}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, assert_never

from services.gateway.answer import Head, Tally, finish_reason
from services.gateway.chat_style import ChatStyle
from services.gateway.dispatch import ChoiceDispatch
from services.gateway.failures import error_event
from services.gateway.objects import logprobs, to_json, usage
from services.gateway.sse import DONE, KEEP_ALIVE, json_string, one_line
from toolrail.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    TextDelta,
)
from toolrail.messages import ChoiceEnd, EventDelta, Failed, Usage, VisibleLogprob

_ROLE: Final = b'{"role":"assistant","content":null}'
_ROLE_OF_TEXT: Final = b'{"role":"assistant","content":""}'
_UNFINISHED: Final = b',"finish_reason":null}]'

_FUNCTION_START: Final = (
    b'{"tool_calls":[{"index":%d,"id":"%b","type":"function",'
    b'"function":{"name":%b,"arguments":""}}]}'
)
_FUNCTION_DELTA: Final = b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}'
# The published stream has no custom calls: the product specification's extension, in its shape.
_CUSTOM_START: Final = (
    b'{"tool_calls":[{"index":%d,"id":"%b","type":"custom","custom":{"name":%b,"input":""}}]}'
)
_CUSTOM_DELTA: Final = b'{"tool_calls":[{"index":%d,"custom":{"input":%b}}]}'


class _Choice:
    """What is known of one choice while it streams."""

    __slots__ = ("complete_calls", "customs", "dispatch", "head", "held_logprobs", "started")

    def __init__(self, head: bytes, dispatch: ChoiceDispatch | None) -> None:
        self.head = head
        self.dispatch = dispatch
        self.started = False
        self.complete_calls = 0
        self.customs: set[int] = set()
        self.held_logprobs: list[VisibleLogprob] = []


class ChunkWriter:
    """Writes one request's chunks. `done` is True after the last one, or after an error."""

    def __init__(self, head: Head, style: ChatStyle, *, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._style = style
        self._open_reasoning = b"{" + json_string(style.reasoning_field) + b":"
        self._open = b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,' % (
            json_string(head.id),
            head.created,
            json_string(head.model),
        )
        self._close = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._choices: list[_Choice] = []
        self.tally = Tally()
        self.failed: Failed | None = None
        self.done = False

    def keep_alive(self) -> bytes:
        """A comment."""
        return KEEP_ALIVE

    def error(self, failed: Failed) -> bytes:
        """The error as the last event."""
        return error_event(failed)

    def write(self, deltas: Sequence[EventDelta]) -> bytes:
        """All chunks of `deltas`, joined into one body write. O(text in them)."""
        parts: list[bytes] = []
        for delta in deltas:
            if delta.failed is not None:
                parts.append(error_event(delta.failed))
                self.failed = delta.failed
                self.done = True
                break
            self._write_delta(delta, parts)
            if delta.usage is not None:
                self._write_usage(delta.usage, parts)
                self.done = True
                break
        return b"".join(parts)

    def _write_delta(self, delta: EventDelta, parts: list[bytes]) -> None:
        while len(self._choices) <= delta.choice:
            head = self._open + b'"choices":[{"index":%d,"delta":' % len(self._choices)
            dispatch = self._style.dispatch
            watch = ChoiceDispatch(dispatch, len(self._choices)) if dispatch else None
            self._choices.append(_Choice(head, watch))
        choice = self._choices[delta.choice]
        if delta.logprobs is not None:
            # They leave with the next chunk of their choice: the text of these tokens may still be
            # held back by the parser, and a token's logprob must be said once.
            choice.held_logprobs.extend(delta.logprobs)
        for event in delta.events:
            call_id = self._style.new_call_id() if isinstance(event, CallStart) else ""
            if choice.dispatch is not None:
                self._write_due(choice.dispatch.take(event, call_id), parts)
            body = self._delta_body(choice, event, call_id)
            if body is None:
                continue
            if not choice.started:
                self._start(choice, event, parts)
            parts += (choice.head, body, self._logprobs(choice), _UNFINISHED, self._close)
        if delta.end is not None:
            self._write_end(choice, delta.end, parts)

    def _write_due(self, due: Iterable[tuple[bytes, bytes]], parts: list[bytes]) -> None:
        """Events of early dispatch."""
        for name, members in due:
            parts += (b"event: ", name, b"\n", self._open, b'"choices":[],', members, self._close)

    def _delta_body(self, choice: _Choice, event: Event, call_id: str) -> bytes | None:
        """The `delta` object an event amounts to, or None when a client need not see it."""
        match event:
            case TextDelta(text):
                return b'{"content":%b}' % json_string(text) if text else None
            case ArgumentsDelta(index, text):
                piece = _CUSTOM_DELTA if index in choice.customs else _FUNCTION_DELTA
                return piece % (index, json_string(text)) if text else None
            case ReasoningDelta(text):
                return self._open_reasoning + json_string(text) + b"}" if text else None
            case CallStart(index, name, custom=custom):
                if custom:
                    choice.customs.add(index)
                piece = _CUSTOM_START if custom else _FUNCTION_START
                return piece % (index, call_id.encode(), json_string(name))
            case CallEnd(_, complete):
                choice.complete_calls += complete
                self.tally.complete_calls += complete
                self.tally.incomplete_calls += not complete
                return None
            case _:
                assert_never(event)

    def _start(self, choice: _Choice, first: Event | None, parts: list[bytes]) -> None:
        """The role deltas of a choice and of those before it that have none yet.

        In order of index: openai-python's stream helper takes the first choice that comes for
        choice 0. The content is null where that of the whole message may turn out to be null.
        """
        for known in self._choices:
            if known is choice:
                break
            if not known.started:
                self._write_role(known, _ROLE_OF_TEXT, parts)
        plain = first is None or isinstance(first, TextDelta)
        self._write_role(choice, _ROLE_OF_TEXT if plain else _ROLE, parts)

    def _write_role(self, choice: _Choice, role: bytes, parts: list[bytes]) -> None:
        choice.started = True
        parts += (choice.head, role, b',"logprobs":null', _UNFINISHED, self._close)

    def _write_end(self, choice: _Choice, end: ChoiceEnd, parts: list[bytes]) -> None:
        if not choice.started:
            self._start(choice, None, parts)
        if choice.dispatch is not None and end.finish == "stop":
            self._write_due(choice.dispatch.reasoned(), parts)
        reason = finish_reason(end, choice.complete_calls, self._style.reason_of_calls)
        self.tally.finish_reasons.append(reason)
        parts += (choice.head, b"{}", self._logprobs(choice))
        parts += (b',"finish_reason":"%b"}]' % reason.encode(), self._close)

    def _write_usage(self, counts: Usage, parts: list[bytes]) -> None:
        self.tally.usage = counts
        if self._include_usage:
            parts += (self._open, b'"choices":[],"usage":', to_json(usage(counts)), b"}\n\n")
        parts.append(DONE)

    def _logprobs(self, choice: _Choice) -> bytes:
        if not choice.held_logprobs:
            return b',"logprobs":null'
        data = to_json(logprobs(choice.held_logprobs))
        choice.held_logprobs.clear()
        return b',"logprobs":' + one_line(data)
