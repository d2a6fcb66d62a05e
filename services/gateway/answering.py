"""One HTTP request that generates, from its first byte to its last, for every API alike.

The body goes to a preprocessor unread; the answer comes back as numbered deltas, which the API's
surface puts into its shapes. No status leaves before the first of them or a failure, so that what
can fail early is a status and not an event. Whatever ends a request before its last delta cancels
it at the postprocessor.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from services.gateway import enforcement
from services.gateway.answer import Head, Outcome, Stage
from services.gateway.exchange import Exchange
from services.gateway.failures import failure, failure_of
from services.gateway.gateway import Gateway
from services.gateway.generation import Generation
from services.gateway.surface import Surface
from toolrail.errors import CallerError, ToolrailError
from toolrail.messages import Accepted, EventDelta, Failed, Reply

Elsewhere: TypeAlias = Callable[[], Awaitable[Failed | None]]
"""Answers a request that is generated somewhere else, or says why it cannot be."""

_LAST_WRITE_S: Final = 2.0
"""How long past its deadline a request may take to be told so."""


class BodyHooks:
    """What an API does with a body while it is there. These do nothing."""

    async def aside(self, body: bytes) -> Elsewhere | None:
        """Take the request over, before it is handed on; None: it goes the usual way."""
        del body
        return None

    async def taken(self, accepted: Accepted, body: bytes) -> Accepted:
        """The request was accepted; returns what is to be known of it from now on."""
        del body
        return accepted


_NO_HOOKS: Final = BodyHooks()


async def answer(
    gateway: Gateway, exchange: Exchange, surface: Surface, hooks: BodyHooks = _NO_HOOKS
) -> Outcome:
    """Answer a request of the surface's API, streamed or not."""
    check_json(exchange)
    with gateway.admission.slot():
        return await _Answering(gateway, exchange, surface, hooks).run()


def check_json(exchange: Exchange) -> None:
    """Refuse a body that says it is not JSON; one that says nothing is taken for JSON.

    A browser sends `text/plain` and forms to other origins without asking, so these must not pass.
    """
    given = (exchange.header(b"content-type") or "").split(";")[0].strip().lower()
    if given and given not in ("application/json", "text/json") and not given.endswith("+json"):
        text = f"Content-Type {given[:80]!r} is not supported, send application/json"
        raise CallerError(text, code="unsupported_media_type", status=415)
    encoding = (exchange.header(b"content-encoding") or "identity").strip().lower()
    if encoding != "identity":
        text = f"Content-Encoding {encoding[:80]!r} is not supported, send the body as it is"
        raise CallerError(text, code="unsupported_content_encoding", status=415)


class _Answering:
    """One request while it is answered."""

    def __init__(
        self, gateway: Gateway, exchange: Exchange, surface: Surface, hooks: BodyHooks
    ) -> None:
        self._hooks = hooks
        self._gateway = gateway
        self._settings = gateway.settings
        self._exchange = exchange
        self._surface = surface
        self._outcome = Outcome(surface.response_id(exchange.request_id))
        self._stage: Stage = "hand_over"

    async def run(self) -> Outcome:
        """Answer it; when this returns, nothing of it is left here."""
        exchange = self._exchange
        async with anyio.create_task_group() as tasks:
            generation = Generation(
                self._gateway,
                exchange.request_id,
                on_overflow=tasks.cancel_scope.cancel,
                audit=exchange.audit,
            )
            try:
                await self._answer(generation, tasks)
            finally:
                self._outcome.tokens = self._tokens(generation)
                self._outcome.left = self._left(generation, tasks.cancel_scope)
                generation.close(self._outcome.left or "failed")
                tasks.cancel_scope.cancel()
        if exchange.client_left:
            return self._outcome
        if not exchange.status:  # more came at once than the buffer holds, before the first write
            await self._refuse(failure("internal", "the answer came too fast to be sent"))
        elif not exchange.complete:
            await exchange.abort()
        return self._outcome

    def _left(
        self, generation: Generation, scope: anyio.CancelScope
    ) -> Stage | Literal["", "slow"]:
        """What the client left, if it is the client that ended this."""
        if self._exchange.client_left:
            return self._stage
        unread = generation.overflowed or scope.cancel_called  # the latter: its deadline
        return "slow" if unread and not self._exchange.complete else ""

    def _tokens(self, generation: Generation) -> int:
        """What it used, or what is known of that."""
        usage = self._outcome.tally.usage
        return usage.prompt_tokens + usage.completion_tokens if usage else generation.tokens

    async def _answer(self, generation: Generation, tasks: TaskGroup) -> None:
        reply = await self._hand_over(generation, tasks)
        await anyio.lowlevel.checkpoint_if_cancelled()
        if isinstance(reply, Failed):
            await self._refuse(reply)
            return
        if not isinstance(reply, Accepted):
            failed = await reply()
            if failed is not None:
                await self._refuse(failed)
            return
        if reply.enforcement and enforcement.wanted(
            self._exchange.header(enforcement.HEADER.encode())
        ):
            self._exchange.add_header(
                enforcement.HEADER, enforcement.header_value(reply.enforcement)
            )
        self._stage = "wait"
        self._outcome.model = reply.model
        self._outcome.stream = reply.stream
        deltas = await generation.first(stream=reply.stream)
        if isinstance(deltas, Failed):
            await self._refuse(deltas)
            return
        self._outcome.first_event_s = anyio.current_time() - generation.received
        head = Head(self._outcome.response_id, int(time.time()), reply.model)
        if reply.stream:
            await self._send_events(generation, reply, head, deltas)
        else:
            await self._send_object(generation, reply, head, deltas)

    async def _hand_over(self, generation: Generation, tasks: TaskGroup) -> Reply | Elsewhere:
        """Read the body and hand it over. Its bytes live no longer than this call."""
        exchange, bodies = self._exchange, self._gateway.bodies
        try:
            body = await exchange.body(
                max_bytes=self._settings.max_body_bytes,
                timeout_s=self._settings.body_timeout_s,
                budget=bodies,
            )
        except ToolrailError as error:
            return failure_of(error, request_id=exchange.request_id)
        try:
            if exchange.client_left:
                tasks.cancel_scope.cancel()
                return generation.failure("cancelled", "the client left")
            generation.start_clock()
            tasks.cancel_scope.deadline = generation.deadline + _LAST_WRITE_S
            tasks.start_soon(self._watch_client, generation, tasks.cancel_scope)
            if not self._gateway.auditor.take_body(exchange, body, self._surface.api):
                text = "the request has no room among those whose audit records are held"
                return generation.failure("overloaded", text)
            elsewhere = await self._hooks.aside(body)
            if elsewhere is not None:
                return elsewhere
            key = exchange.key
            models = None if key is None else key.models
            reply = await generation.hand_over(
                body,
                self._surface.api,
                models=models,
                owner=exchange.owner,
                weight=exchange.weight,
            )
            if isinstance(reply, Accepted):
                reply = await self._hooks.taken(reply, body)
            return reply
        finally:
            bodies.give_back(len(body))

    async def _watch_client(self, generation: Generation, scope: anyio.CancelScope) -> None:
        await self._exchange.left()
        if self._exchange.client_left:
            generation.abandon()
            scope.cancel()

    async def _send_events(
        self, generation: Generation, accepted: Accepted, head: Head, deltas: list[EventDelta]
    ) -> None:
        """Stream them as they come: one write for all that came since the last one."""
        writer = self._surface.writer(accepted, head)
        between_chunks = self._gateway.meters.between_chunks.labels(accepted.model)
        self._outcome.tally = writer.tally
        self._stage = "stream"
        await self._exchange.start_events(writer.error)
        written, chunk_written = anyio.current_time(), None
        while not writer.done:
            data = writer.write(deltas) if deltas else writer.keep_alive()
            if writer.done and writer.failed is None:
                data = _changed(data, await self._surface.settle(accepted, writer))
            if data:
                await self._exchange.write(data, last=writer.done)
                written = anyio.current_time()
                if deltas:
                    if chunk_written is not None:
                        between_chunks.observe(written - chunk_written)
                    chunk_written = written
            if not writer.done:
                deltas = await generation.take(written + self._settings.sse_keep_alive_s)
        self._outcome.failed = writer.failed

    async def _send_object(
        self, generation: Generation, accepted: Accepted, head: Head, deltas: list[EventDelta]
    ) -> None:
        """Gather all of them and answer once."""
        fold = self._surface.fold(accepted, head)
        self._outcome.tally = fold.tally
        fold.feed(deltas)
        while fold.tally.usage is None:
            more = await generation.rest()
            if isinstance(more, Failed):
                await self._refuse(more)
                return
            fold.feed(more)
        body = fold.body()
        body = _changed(body, await self._surface.settle(accepted, fold))
        await self._exchange.send(200, body)

    async def _refuse(self, failed: Failed) -> None:
        self._outcome.failed = failed
        await self._exchange.send_error(failed)


def _changed(data: bytes, change: tuple[bytes, bytes] | None) -> bytes:
    return data if change is None else data.replace(*change)
