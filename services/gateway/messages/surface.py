"""`POST /v1/messages`: the shapes of the Messages API as a surface."""

from __future__ import annotations

from services.gateway.answer import Head, Outcome
from services.gateway.answering import answer
from services.gateway.exchange import Exchange
from services.gateway.gateway import Gateway
from services.gateway.messages.folding import MessageFold
from services.gateway.messages.objects import message_id
from services.gateway.messages.writer import MessageWriter
from services.gateway.surface import EventWriter, ObjectFold
from toolrail.messages import Accepted, Api


async def create_message(gateway: Gateway, exchange: Exchange) -> Outcome:
    """Answer a request for a message, streamed or not."""
    return await answer(gateway, exchange, MessagesSurface())


class MessagesSurface:
    """Messages."""

    api: Api = "messages"

    def response_id(self, request_id: str) -> str:
        """The `id` of a message."""
        return message_id(request_id)

    def writer(self, accepted: Accepted, head: Head) -> MessageWriter:
        """Server-sent events."""
        return MessageWriter(head, prompt_tokens=accepted.prompt_tokens)

    def fold(self, accepted: Accepted, head: Head) -> MessageFold:
        """One `message`."""
        return MessageFold(head)

    async def settle(self, accepted: Accepted, answer: EventWriter | ObjectFold) -> None:
        """Nothing is kept."""
