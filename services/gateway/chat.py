"""`POST /v1/chat/completions`: the shapes of Chat Completions as a surface."""

from __future__ import annotations

from services.gateway import ids
from services.gateway.answer import Head, Outcome
from services.gateway.answering import answer
from services.gateway.chunks import ChunkWriter
from services.gateway.completion import Fold
from services.gateway.exchange import Exchange
from services.gateway.gateway import Gateway
from services.gateway.surface import EventWriter, ObjectFold
from toolrail.messages import Accepted, Api
from toolrail.settings import GatewaySettings


async def chat_completions(gateway: Gateway, exchange: Exchange) -> Outcome:
    """Answer a chat completion request, streamed or not."""
    return await answer(gateway, exchange, ChatSurface(gateway.settings))


class ChatSurface:
    """Chat Completions."""

    api: Api = "chat"

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings

    def response_id(self, request_id: str) -> str:
        """The `id` of a chat completion."""
        return ids.completion_id(request_id)

    def writer(self, accepted: Accepted, head: Head) -> ChunkWriter:
        """Chunks."""
        return ChunkWriter(
            head,
            include_usage=accepted.include_usage,
            reasoning_field=self._settings.reasoning_field,
            new_call_id=ids.new_call_id,
        )

    def fold(self, accepted: Accepted, head: Head) -> Fold:
        """One `chat.completion`."""
        return Fold(
            head,
            num_choices=accepted.num_choices,
            reasoning_field=self._settings.reasoning_field,
            new_call_id=ids.new_call_id,
        )

    async def settle(self, accepted: Accepted, answer: EventWriter | ObjectFold) -> None:
        """Nothing is kept."""
