"""Background responses: taken, generated to the end without a client, and kept in every state.

Bounded in number and time. When its process is stopped, a run is kept as failed; when it dies, who
asks for the response next finds that out (`lookup`).
"""

from __future__ import annotations

import logging
import time
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from services.gateway import tracing
from services.gateway.answer import Head, Outcome
from services.gateway.dispatch import HEADER, Dispatch
from services.gateway.exchange import Exchange
from services.gateway.failures import failure
from services.gateway.gateway import Gateway
from services.gateway.generation import Generation
from services.gateway.responses.body import Echo, ResponseBody, asked
from services.gateway.responses.keeping import Keeping
from services.gateway.responses.runs import Run
from services.gateway.responses.writer import ResponseWriter
from services.gateway.sse import KEEP_ALIVE
from toolrail.errors import ToolrailError
from toolrail.messages import Accepted, Failed
from toolrail.telemetry import semconv

log: Final = logging.getLogger(__name__)


async def begin(gateway: Gateway, exchange: Exchange, body: bytes, *, streamed: bool) -> Run:
    """A run of the request in `body`; it has been accepted and is kept, or `refused` says why not.

    Raises:
        QueueFullError: there are too many.
    """
    limit = gateway.settings.max_stored_response_bytes
    run = Run(streamed=streamed, max_event_bytes=limit)
    work = _Work(gateway, exchange, run, body)
    gateway.runs.start(run, work.run)
    try:
        await work.begun.wait()
    except BaseException:  # the client left before it knew the name
        run.cancelled = True
        run.scope.cancel()
        raise
    return run


async def follow(exchange: Exchange, run: Run, after: int, keep_alive_s: float) -> None:
    """Stream the events of a run from number `after` on, until it is over.

    A client that is so slow that they are gone is cut off: it must not look as if it had them all.
    """
    await exchange.start_events()
    ended = False
    while not ended:
        events = await run.more(after, keep_alive_s)
        if events is None:
            await exchange.abort()
            return
        after += len(events)
        ended = run.over.is_set() and after >= run.told
        await exchange.write(b"".join(events) or (b"" if ended else KEEP_ALIVE), last=ended)


class _Work:
    """What is done for one run.

    Attributes:
        begun: set when the run is kept as queued, or refused.
    """

    def __init__(self, gateway: Gateway, exchange: Exchange, run: Run, body: bytes) -> None:
        self.begun = anyio.Event()
        self._gateway = gateway
        self._key = exchange.key
        self._owner = exchange.owner
        self._weight = exchange.weight
        self._auditor = gateway.auditor
        self._audit = gateway.auditor.open_background(run.request_id, exchange)
        self._run = run
        self._body = body
        self._keeping = Keeping(gateway, run.response_id, exchange.owner)
        self._dispatch = Dispatch.wanted(gateway.settings, exchange.header(HEADER))
        self._writer: ResponseWriter | None = None
        self._objects: ResponseBody | None = None

    async def run(self) -> None:
        """Generate it, and keep what became of it, whatever that is."""
        with self._gateway.telemetry.span("background response") as span:
            span.set_attribute(semconv.REQUEST_ID, self._run.request_id)
            tracing.describe_outcome(span, await self._outcome_of_run())

    async def _outcome_of_run(self) -> Outcome:
        run = self._run
        generation = Generation(
            self._gateway,
            run.request_id,
            on_overflow=run.scope.cancel,
            timeout_s=self._gateway.settings.background_timeout_s,
            audit=self._audit,
        )
        model = ""
        try:
            with self._gateway.door.running(self._key), run.scope:
                accepted = await self._accepted(generation)
                if accepted is not None:
                    model = accepted.model
                    await self._generate(generation, accepted)
        except ToolrailError as error:
            log.warning("a background response failed", extra={"reason": str(error)})
        finally:
            generation.close("failed")
            with anyio.CancelScope(shield=True):
                await self._end()
            self._count(generation, model)
            outcome = self._outcome(generation, model)
            self._auditor.end_background(self._audit, outcome)
            self.begun.set()
        return outcome

    async def _accepted(self, generation: Generation) -> Accepted | None:
        """The Accepted, its input kept; None when it was refused."""
        generation.start_clock()
        reply = await generation.hand_over(
            self._body,
            "responses",
            models=None if self._key is None else self._key.models,
            owner=self._owner,
            weight=self._weight,
        )
        await checkpoint()
        if isinstance(reply, Failed):
            self._run.refused = reply
            return None
        accepted = await self._keeping.taken(reply, self._body)
        self._body = b""
        if not self._keeping.stored:
            self._run.refused = self._keeping.refusal()
            return None
        return accepted

    async def _generate(self, generation: Generation, accepted: Accepted) -> None:
        run = self._run
        head = Head(run.response_id, int(time.time()), accepted.model)
        self._objects = ResponseBody(head, Echo(accepted.echo))
        if not await self._now(self._objects.json("queued")):
            text = "the response could not be stored, and nobody waits for it"
            run.refused = failure("unavailable", text, retryable=True)
            return
        writer = self._writer = ResponseWriter(head, asked(accepted), self._dispatch)
        run.queued = run.response
        self.begun.set()
        deltas = await generation.take(generation.deadline)
        await self._now(self._objects.json("in_progress"))
        while not writer.done:
            run.tell(writer.write(deltas))
            if not writer.done:
                deltas = await generation.take(generation.deadline)

    async def _now(self, response: bytes) -> bool:
        self._run.response = response
        return await self._keeping.keep(response, runner=True)

    async def _end(self) -> None:
        """Keep the last word."""
        run, writer, objects = self._run, self._writer, self._objects
        if writer is None or objects is None:
            run.refused = run.refused or failure("cancelled", "the client left")
            await self._keeping.close()
            return
        if writer.done:
            run.response = writer.response
        elif run.cancelled:
            run.response = objects.json("cancelled")
        else:
            text = "the server stopped before the response was finished"
            run.tell(writer.error(failure("unavailable", text, retryable=True)))
            run.response = writer.response
        streamed = run.streamed and await self._keeping.keep_events(list(run.events))
        if not await self._keeping.keep(run.response, streamed=streamed):
            text = "the response was finished and could not be stored"
            run.response = objects.json("failed", failed=failure("internal", text))
            await self._keeping.keep(run.response)

    def _outcome(self, generation: Generation, model: str) -> Outcome:
        """How it went, for its audit record."""
        outcome = Outcome(self._run.response_id, model=model, stream=self._run.streamed)
        outcome.tokens = generation.tokens
        outcome.failed = self._run.refused
        if self._writer is not None:
            outcome.tally = self._writer.tally
            outcome.failed = self._writer.failed
        return outcome

    def _count(self, generation: Generation, model: str) -> None:
        if self._writer is None:
            return
        tally = self._writer.tally
        if tally.usage is not None:
            self._gateway.meters.count(model, tally)
        usage = tally.usage
        tokens = usage.prompt_tokens + usage.completion_tokens if usage else generation.tokens
        self._gateway.door.charge(self._key, tokens)
