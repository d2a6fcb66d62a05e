"""`truncation: "auto"`: which messages of a conversation that does not fit may be left out.

The oldest go first. Instructions at the beginning stay, and so does the last turn; results go with
the calls they answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from toolrail.messages import ModelCard
from toolrail.openai.chat import ChatRequest
from toolrail.openai.conversation import Instruction, ToolResult

_ROOM_SHARE: Final = 8
"""An eighth of the context is left for the answer where the request names no length."""


def shortened_requests(request: ChatRequest) -> list[ChatRequest]:
    """The request with ever fewer messages: ever more of the oldest left out. O(messages)."""
    messages = request.messages
    start = next(
        (at for at, each in enumerate(messages) if not isinstance(each, Instruction)), len(messages)
    )
    cuts = [
        at for at in range(start + 1, len(messages)) if not isinstance(messages[at], ToolResult)
    ]
    return [replace(request, messages=(*messages[:start], *messages[at:])) for at in cuts]


def room_for_answer(request: ChatRequest, card: ModelCard) -> int:
    """Tokens that a shortened prompt leaves free: what is asked for, within half the context."""
    asked = request.wishes.max_tokens or card.context_length // _ROOM_SHARE
    return max(1, min(asked, card.context_length // 2))
