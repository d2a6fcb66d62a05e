"""`POST /v1/responses`: the shapes of Responses as a surface."""

from __future__ import annotations

from services.gateway import ids
from services.gateway.answer import Head, Outcome
from services.gateway.answering import answer
from services.gateway.dispatch import HEADER, NO_DISPATCH, Dispatch
from services.gateway.exchange import Exchange
from services.gateway.gateway import Gateway
from services.gateway.responses.body import Asked, Echo
from services.gateway.responses.building import ResponseFold
from services.gateway.responses.writer import ResponseWriter
from services.gateway.surface import EventWriter, ObjectFold
from toolrail.messages import Accepted, Api
from toolrail.openai.responses.ids import response_id


async def create_response(gateway: Gateway, exchange: Exchange) -> Outcome:
    """Answer a request for a response, streamed or not."""
    dispatch = Dispatch.wanted(gateway.settings, exchange.header(HEADER))
    return await answer(gateway, exchange, ResponsesSurface(dispatch))


class ResponsesSurface:
    """Responses."""

    api: Api = "responses"

    def __init__(self, dispatch: Dispatch = NO_DISPATCH) -> None:
        self._dispatch = dispatch

    def response_id(self, request_id: str) -> str:
        """The `id` of a response."""
        return response_id(request_id)

    def writer(self, accepted: Accepted, head: Head) -> ResponseWriter:
        """Server-sent events."""
        return ResponseWriter(head, _asked(accepted), self._dispatch)

    def fold(self, accepted: Accepted, head: Head) -> ResponseFold:
        """One `response`."""
        return ResponseFold(head, _asked(accepted))

    async def settle(self, accepted: Accepted, answer: EventWriter | ObjectFold) -> None:
        """Nothing is kept yet."""


def _asked(accepted: Accepted) -> Asked:
    return Asked(accepted.request_id, Echo(accepted.echo), ids.new_call_id, accepted.namespaces)
