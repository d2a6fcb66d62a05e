"""`POST /v1/responses`: the shapes of Responses as a surface, and what is kept of a response."""

from __future__ import annotations

from services.gateway.answer import Head, Outcome
from services.gateway.answering import BodyHooks, Elsewhere, answer
from services.gateway.dispatch import HEADER, Dispatch
from services.gateway.exchange import Exchange
from services.gateway.failures import failure_of
from services.gateway.gateway import Gateway
from services.gateway.responses.background import begin, follow
from services.gateway.responses.body import asked
from services.gateway.responses.building import ResponseFold
from services.gateway.responses.keeping import Keeping, said, without_store
from services.gateway.responses.writer import ResponseWriter
from services.gateway.sse import one_line
from services.gateway.surface import EventWriter, ObjectFold
from toolrail.errors import QueueFullError
from toolrail.messages import Accepted, Api, Failed
from toolrail.openai.responses.ids import response_id


async def create_response(gateway: Gateway, exchange: Exchange) -> Outcome:
    """Answer a request for a response: streamed, as one object, or in the background."""
    keeping = Keeping(gateway, response_id(exchange.request_id), exchange.owner)
    dispatch = Dispatch.wanted(gateway.settings, exchange.header(HEADER))
    try:
        return await answer(
            gateway,
            exchange,
            ResponsesSurface(keeping, dispatch),
            _Hooks(gateway, exchange, keeping),
        )
    finally:
        await keeping.close()


class ResponsesSurface:
    """Responses."""

    api: Api = "responses"

    def __init__(self, keeping: Keeping, dispatch: Dispatch) -> None:
        self._keeping = keeping
        self._dispatch = dispatch

    def response_id(self, request_id: str) -> str:
        """The `id` of a response."""
        return response_id(request_id)

    def writer(self, accepted: Accepted, head: Head) -> ResponseWriter:
        """Server-sent events."""
        return ResponseWriter(head, asked(accepted), self._dispatch)

    def fold(self, accepted: Accepted, head: Head) -> ResponseFold:
        """One `response`."""
        return ResponseFold(head, asked(accepted))

    async def settle(
        self, accepted: Accepted, answer: EventWriter | ObjectFold
    ) -> tuple[bytes, bytes] | None:
        """Keep the answer; where that fails, what the client gets says so."""
        assert isinstance(answer, ResponseWriter | ResponseFold)
        response = answer.response
        if not self._keeping.stored or await self._keeping.keep(response):
            return None
        honest = without_store(response)
        if isinstance(answer, ResponseWriter):
            return one_line(response), one_line(honest)
        return response, honest


class _Hooks(BodyHooks):
    """What is done with the body: its items are kept, or the whole of it goes to the background."""

    def __init__(self, gateway: Gateway, exchange: Exchange, keeping: Keeping) -> None:
        self._gateway = gateway
        self._exchange = exchange
        self._keeping = keeping

    async def aside(self, body: bytes) -> Elsewhere | None:
        """Background requests go their own way."""
        request = said(body)
        if not request.background:
            return None
        exchange, settings = self._exchange, self._gateway.settings
        try:
            run = await begin(self._gateway, exchange, body, streamed=request.stream is True)
        except QueueFullError as error:
            full = failure_of(error, request_id=exchange.request_id)

            async def refuse() -> Failed:
                return full

            return refuse

        async def send() -> Failed | None:
            if run.refused is not None:
                return run.refused
            if request.stream:
                await follow(exchange, run, 0, settings.sse_keep_alive_s)
            else:
                await exchange.send(200, run.queued)
            return None

        return send

    async def taken(self, accepted: Accepted, body: bytes) -> Accepted:
        """Keep what it brought."""
        return await self._keeping.taken(accepted, body)
