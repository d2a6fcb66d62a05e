"""Chat completions that do not stream: EventDeltas of a request, folded into one object.

The fold is `events.assemble`, per choice, and nothing else: what a stream said and what this says
cannot differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from services.gateway.answer import Head, Tally, finish_reason
from services.gateway.chat_style import ChatStyle
from services.gateway.objects import (
    ChatCompletion,
    Choice,
    Custom,
    CustomToolCall,
    Function,
    Message,
    ToolCall,
    logprobs,
    to_json,
    usage,
)
from toolrail.events import Call, Event, Turn, assemble
from toolrail.messages import ChoiceEnd, EventDelta, VisibleLogprob


@dataclass(slots=True)
class _Choice:
    events: list[Event] = field(default_factory=list[Event])
    logprobs: list[VisibleLogprob] | None = None
    end: ChoiceEnd | None = None


class Fold:
    """Gathers the deltas of a request until the last one. Deltas that failed never come here."""

    def __init__(self, head: Head, style: ChatStyle, *, num_choices: int) -> None:
        self._head = head
        self._choices = [_Choice() for _ in range(num_choices)]
        self._style = style
        self.tally = Tally()

    def feed(self, deltas: Sequence[EventDelta]) -> None:
        """Take more deltas. O(events in them)."""
        for delta in deltas:
            choice = self._choices[delta.choice]
            choice.events.extend(delta.events)
            if delta.logprobs is not None:
                choice.logprobs = choice.logprobs or []
                choice.logprobs.extend(delta.logprobs)
            choice.end = delta.end or choice.end
            self.tally.usage = delta.usage or self.tally.usage

    def body(self) -> bytes:
        """The whole object as JSON; call once, after the delta that carried the usage."""
        return to_json(self.completion())

    def completion(self) -> ChatCompletion:
        """The whole object; call once."""
        assert self.tally.usage is not None
        return ChatCompletion(
            id=self._head.id,
            created=self._head.created,
            model=self._head.model,
            choices=tuple(self._choice(i, choice) for i, choice in enumerate(self._choices)),
            usage=usage(self.tally.usage),
        )

    def _choice(self, index: int, choice: _Choice) -> Choice:
        assert choice.end is not None
        turn = assemble(choice.events)
        reason = finish_reason(choice.end, len(turn.calls), self._style.reason_of_calls)
        self.tally.finish_reasons.append(reason)
        self.tally.complete_calls += len(turn.calls)
        self.tally.incomplete_calls += len(turn.incomplete_calls)
        return Choice(
            index=index,
            message=self._message(turn),
            logprobs=None if choice.logprobs is None else logprobs(choice.logprobs),
            finish_reason=reason,
        )

    def _message(self, turn: Turn) -> Message:
        content = turn.content
        if content is None and not turn.items and not turn.incomplete_calls:
            content = ""  # an empty answer is a string, as clients expect of one without calls
        message = Message(content=content)
        if turn.reasoning is not None:
            message = msgspec.structs.replace(
                message, **{self._style.reasoning_field: turn.reasoning}
            )
        if turn.calls:
            calls = tuple(map(self._call, turn.calls))
            message = msgspec.structs.replace(message, tool_calls=calls)
        return message

    def _call(self, call: Call) -> ToolCall | CustomToolCall:
        if call.custom:
            return CustomToolCall(self._style.new_call_id(), Custom(call.name, call.arguments))
        return ToolCall(self._style.new_call_id(), Function(call.name, call.arguments))
