"""Messages that do not stream: EventDeltas of a request, folded into one object.

The fold is `events.assemble`, whose items are the blocks, in the order in which the model wrote
them. Text and thinking that is nothing but white space is left out: this API has no such blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from msgspec import Raw

from services.gateway.answer import Head, Tally, finish_reason
from services.gateway.messages.objects import (
    EMPTY_INPUT,
    Block,
    Message,
    Signature,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    new_call_id,
    stop_of,
    usage,
)
from services.gateway.objects import to_json
from toolrail.events import (
    Call,
    Event,
    Item,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    assemble,
)
from toolrail.messages import ChoiceEnd, EventDelta


class MessageFold:
    """Gathers the deltas of a message until the last one."""

    def __init__(self, head: Head) -> None:
        self.tally = Tally()
        self._head = head
        self._events: list[Event] = []
        self._end: ChoiceEnd | None = None

    def feed(self, deltas: Sequence[EventDelta]) -> None:
        """Take more deltas. O(events in them)."""
        for delta in deltas:
            # A piece of nothing must not part what stands on its two sides, as it does not in a
            # stream.
            self._events.extend(event for event in delta.events if not _is_nothing(event))
            self._end = delta.end or self._end
            self.tally.usage = delta.usage or self.tally.usage

    def body(self) -> bytes:
        """The whole message as JSON; call once, after the delta that carried the usage."""
        assert self._end is not None
        assert self.tally.usage is not None
        turn = assemble(self._events)
        self.tally.complete_calls = len(turn.calls)
        self.tally.incomplete_calls = len(turn.incomplete_calls)
        self.tally.finish_reasons.append(finish_reason(self._end, len(turn.calls)))
        reason, sequence = stop_of(self._end, len(turn.calls))
        return to_json(
            Message(
                id=self._head.id,
                model=self._head.model,
                content=tuple(_block(item) for item in turn.items if _shown(item)),
                stop_reason=reason,
                stop_sequence=sequence,
                usage=usage(self.tally.usage),
            )
        )


def _is_nothing(event: Event) -> bool:
    return isinstance(event, TextDelta | ReasoningDelta) and not event.text


def _shown(item: Item) -> bool:
    return isinstance(item, Call) or not item.text.isspace()


def _block(item: Item) -> Block:
    match item:
        case Text(text):
            return TextBlock(text)
        case Reasoning(text):
            signature = Signature()
            signature.add(text)
            return ThinkingBlock(text, signature.text())
        case Call(name, arguments):
            given = Raw(arguments.encode()) if arguments.strip() else EMPTY_INPUT
            return ToolUseBlock(new_call_id(), name, given)
        case _:
            assert_never(item)
