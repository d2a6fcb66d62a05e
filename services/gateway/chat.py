"""`POST /v1/chat/completions`: the shapes of Chat Completions as a surface."""

from __future__ import annotations

from services.gateway import ids
from services.gateway.answer import Head, Outcome
from services.gateway.answering import answer
from services.gateway.chat_style import ChatStyle
from services.gateway.chunks import ChunkWriter
from services.gateway.completion import Fold
from services.gateway.dispatch import HEADER, Dispatch
from services.gateway.exchange import Exchange
from services.gateway.gateway import Gateway
from services.gateway.surface import EventWriter, ObjectFold
from toolrail.messages import Accepted, Api
from toolrail.settings import GatewaySettings


async def chat_completions(gateway: Gateway, exchange: Exchange) -> Outcome:
    """Answer a chat completion request, streamed or not."""
    dispatch = Dispatch.wanted(gateway.settings, exchange.header(HEADER))
    return await answer(gateway, exchange, ChatSurface(gateway.settings, dispatch))


class ChatSurface:
    """Chat Completions."""

    api: Api = "chat"

    def __init__(self, settings: GatewaySettings, dispatch: Dispatch) -> None:
        self._settings = settings
        self._dispatch = dispatch

    def response_id(self, request_id: str) -> str:
        """The `id` of a chat completion."""
        return ids.completion_id(request_id)

    def writer(self, accepted: Accepted, head: Head) -> ChunkWriter:
        """Chunks."""
        return ChunkWriter(head, self._style(accepted), include_usage=accepted.include_usage)

    def fold(self, accepted: Accepted, head: Head) -> Fold:
        """One `chat.completion`."""
        return Fold(head, self._style(accepted), num_choices=accepted.num_choices)

    def _style(self, accepted: Accepted) -> ChatStyle:
        named = accepted.forced_call == "named"
        return ChatStyle(
            reasoning_field=self._settings.reasoning_field,
            reason_of_calls=self._settings.named_choice_finish_reason if named else "tool_calls",
            dispatch=self._dispatch,
        )

    async def settle(self, accepted: Accepted, answer: EventWriter | ObjectFold) -> None:
        """Nothing is kept."""
