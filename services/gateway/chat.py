"""`POST /v1/chat/completions`: one request from its first byte to its last.

The body goes to a preprocessor unread; the answer comes back as numbered deltas. No status leaves
before the first of them or a failure, so that what can fail early is a status and not an event.
Whatever ends a request before its last delta cancels it at the postprocessor.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, Literal

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from services.gateway import enforcement, ids
from services.gateway.answer import Head, Outcome, Stage
from services.gateway.chunks import KEEP_ALIVE, ChunkWriter
from services.gateway.completion import Fold
from services.gateway.exchange import Exchange
from services.gateway.failures import failure, failure_of
from services.gateway.gateway import Gateway
from services.gateway.hand_over import hand_over
from services.gateway.objects import to_json
from services.gateway.streams import Stream
from toolrail.errors import CallerError, ToolrailError
from toolrail.messages import Accepted, EventDelta, Failed, FailureCode, Prepare, Reply

_LAST_WRITE_S: Final = 2.0
"""How long past its deadline a request may take to be told so."""


async def chat_completions(gateway: Gateway, exchange: Exchange) -> Outcome:
    """Answer a chat completion request, streamed or not."""
    check_json(exchange)
    with gateway.admission.slot():
        return await _Chat(gateway, exchange).run()


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


class _Chat:
    """One request while it is answered."""

    def __init__(self, gateway: Gateway, exchange: Exchange) -> None:
        self._gateway = gateway
        self._settings = gateway.settings
        self._exchange = exchange
        self._outcome = Outcome(ids.completion_id(exchange.request_id))
        self._stage: Stage = "hand_over"
        self._received = 0.0
        self._deadline = 0.0

    async def run(self) -> Outcome:
        """Answer it; when this returns, nothing of it is left here."""
        exchange, streams = self._exchange, self._gateway.streams
        async with anyio.create_task_group() as tasks:
            stream = streams.open(exchange.request_id, on_overflow=tasks.cancel_scope.cancel)
            try:
                await self._answer(stream, tasks)
            finally:
                self._outcome.left = self._left(stream, tasks.cancel_scope)
                streams.close(stream, self._outcome.left or "failed")
                tasks.cancel_scope.cancel()
        if exchange.client_left:
            return self._outcome
        if not exchange.status:  # more came at once than the buffer holds, before the first write
            await self._refuse(self._failure("internal", "the answer came too fast to be sent"))
        elif not exchange.complete:
            await exchange.abort()
        return self._outcome

    def _left(self, stream: Stream, scope: anyio.CancelScope) -> Stage | Literal["", "slow"]:
        """What the client left, if it is the client that ended this."""
        if self._exchange.client_left:
            return self._stage
        unread = stream.overflowed or scope.cancel_called  # the latter: its deadline
        return "slow" if unread and not self._exchange.complete else ""

    async def _answer(self, stream: Stream, tasks: TaskGroup) -> None:
        reply = await self._hand_over(stream, tasks)
        await anyio.lowlevel.checkpoint_if_cancelled()
        if isinstance(reply, Failed):
            await self._refuse(reply)
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
        first_s = self._settings.first_event_timeout_s
        deltas = await self._take(stream, reply, anyio.current_time() + first_s)
        failed = self._failure_in(deltas)
        if failed is not None:
            await self._refuse(failed)
            return
        self._outcome.first_event_s = anyio.current_time() - self._received
        head = Head(self._outcome.response_id, int(time.time()), reply.model)
        if reply.stream:
            await self._send_events(stream, reply, head, deltas)
        else:
            await self._send_object(stream, reply, head, deltas)

    async def _hand_over(self, stream: Stream, tasks: TaskGroup) -> Reply:
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
        reply: Reply = self._failure("cancelled", "the client left")
        try:
            if exchange.client_left:
                tasks.cancel_scope.cancel()
                return reply
            self._start_clock(tasks.cancel_scope)
            tasks.start_soon(self._watch_client, stream, tasks.cancel_scope)
            # Shielded: when the client leaves meanwhile, the answer still has to be heard, since
            # it tells whom to cancel. Bounded by the timeout of the hand-over.
            with anyio.CancelScope(shield=True):
                reply = await hand_over(
                    self._gateway.bus,
                    self._gateway.directory,
                    self._prepare(body),
                    timeout_s=self._settings.hand_over_timeout_s,
                )
        finally:
            bodies.give_back(len(body))
        if isinstance(reply, Accepted) and reply.control_subject:
            stream.control_subjects.add(reply.control_subject)
        return reply

    def _prepare(self, body: bytes) -> Prepare:
        now_ms = int(time.time() * 1000)
        return Prepare(
            request_id=self._exchange.request_id,
            deadline_ms=now_ms + int(self._settings.request_timeout_s * 1000),
            body=body,
            reply_subject=self._gateway.streams.reply_subject,
            received_ms=now_ms,
        )

    def _start_clock(self, scope: anyio.CancelScope) -> None:
        self._received = anyio.current_time()
        self._deadline = self._received + self._settings.request_timeout_s
        scope.deadline = self._deadline + _LAST_WRITE_S

    async def _watch_client(self, stream: Stream, scope: anyio.CancelScope) -> None:
        await self._exchange.left()
        if self._exchange.client_left:
            stream.abandon()
            scope.cancel()

    async def _send_events(
        self, stream: Stream, accepted: Accepted, head: Head, deltas: list[EventDelta]
    ) -> None:
        """Stream them as they come: one write for all that came since the last one."""
        writer = ChunkWriter(
            head,
            include_usage=accepted.include_usage,
            reasoning_field=self._settings.reasoning_field,
            new_call_id=ids.new_call_id,
        )
        between_chunks = self._gateway.meters.between_chunks.labels(accepted.model)
        self._outcome.tally = writer.tally
        self._stage = "stream"
        await self._exchange.start_events()
        written, chunk_written = anyio.current_time(), None
        while not writer.done:
            data = writer.write(deltas) if deltas else KEEP_ALIVE
            if data:
                await self._exchange.write(data, last=writer.done)
                written = anyio.current_time()
                if deltas:
                    if chunk_written is not None:
                        between_chunks.observe(written - chunk_written)
                    chunk_written = written
            if not writer.done:
                until = written + self._settings.sse_keep_alive_s
                deltas = await self._take(stream, accepted, until)
        self._outcome.failed = writer.failed

    async def _send_object(
        self, stream: Stream, accepted: Accepted, head: Head, deltas: list[EventDelta]
    ) -> None:
        """Gather all of them and answer once."""
        fold = Fold(
            head,
            num_choices=accepted.num_choices,
            reasoning_field=self._settings.reasoning_field,
            new_call_id=ids.new_call_id,
        )
        self._outcome.tally = fold.tally
        fold.feed(deltas)
        while fold.tally.usage is None:
            deltas = await self._take(stream, accepted, self._deadline)
            failed = self._failure_in(deltas)
            if failed is not None:
                await self._refuse(failed)
                return
            fold.feed(deltas)
        await self._exchange.send(200, to_json(fold.completion()))

    async def _take(self, stream: Stream, accepted: Accepted, until: float) -> list[EventDelta]:
        """What came; nothing if nothing came by `until`; a failure when the deadline came first."""
        deltas = await stream.take(min(until, self._deadline))
        if not deltas:
            if anyio.current_time() >= self._deadline:
                stream.fail(self._failure("deadline", "the answer took too long"))
                return await stream.take(until)
        elif deltas[-1].usage is not None and stream.choices_ended < accepted.num_choices:
            deltas[-1] = EventDelta(
                stream.request_id,
                deltas[-1].seq,
                deltas[-1].choice,
                failed=self._failure("internal", "the answer ended too early"),
            )
        return deltas

    def _failure_in(self, deltas: Sequence[EventDelta]) -> Failed | None:
        """The failure that makes these the end of it, before anything was sent."""
        if not deltas:
            return self._failure("deadline", "the answer did not begin in time")
        return next((delta.failed for delta in deltas if delta.failed is not None), None)

    def _failure(self, code: FailureCode, message: str) -> Failed:
        return failure(code, message, request_id=self._exchange.request_id)

    async def _refuse(self, failed: Failed) -> None:
        self._outcome.failed = failed
        await self._exchange.send_error(failed)
