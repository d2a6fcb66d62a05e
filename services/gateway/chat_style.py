"""What a deployment may word in one way or another in chat completions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.gateway import ids
from services.gateway.dispatch import NO_DISPATCH, Dispatch
from services.gateway.objects import FinishReason


@dataclass(frozen=True, slots=True)
class ChatStyle:
    """How one chat completion is worded.

    Attributes:
        reasoning_field: where reasoning goes: `reasoning_content` or `reasoning`.
        reason_of_calls: the finish reason of a choice that ended with calls.
        dispatch: what is also told when it is whole.
    """

    reasoning_field: str = "reasoning_content"
    reason_of_calls: FinishReason = "tool_calls"
    dispatch: Dispatch = NO_DISPATCH
    new_call_id: Callable[[], str] = ids.new_call_id
