"""Which APIs a row's request may come from, and what reads each: the server's own functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from toolrail.anthropic.request import check_messages
from toolrail.openai.chat import ChatRequest, check_chat
from toolrail.openai.responses import check_responses

Api: TypeAlias = Literal["chat", "responses", "messages"]

READ: Final[Mapping[Api, Callable[[bytes], ChatRequest]]] = {
    "chat": check_chat,
    "responses": check_responses,
    "messages": check_messages,
}
"""What a Responses request refers to is not looked up: nothing is stored where the commands run."""
