"""One request at the other services, from its hand-over to its last delta.

It knows neither HTTP nor the shapes of an API. Whoever opens one closes it, and closing cancels at
the postprocessor whatever has not ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import anyio
from opentelemetry import trace

from services.gateway import tracing
from services.gateway.audit.entry import Entry
from services.gateway.failures import failure
from services.gateway.gateway import Gateway
from services.gateway.hand_over import HandOver
from toolrail.messages import (
    TERM_STEP,
    Accepted,
    Api,
    EventDelta,
    Failed,
    FailureCode,
    Prepare,
    Reply,
)
from toolrail.telemetry import event, semconv


class Generation:
    """A request while it is generated.

    Attributes:
        request_id: its id on the bus.
        received: when its clock started, on the loop's clock.
        deadline: when it must have ended, on the loop's clock.
        tokens: of its prompt, and one for each delta that came: what it has cost until its usage
            is known.
    """

    def __init__(
        self,
        gateway: Gateway,
        request_id: str,
        *,
        on_overflow: Callable[[], None],
        timeout_s: float | None = None,
        audit: Entry | None = None,
    ) -> None:
        """A stream for it; `timeout_s` where it may take another time than requests usually may."""
        self.request_id = request_id
        self.received = 0.0
        self.deadline = 0.0
        self.tokens = 0
        self._gateway = gateway
        self._settings = gateway.settings
        self._timeout_s = gateway.settings.request_timeout_s if timeout_s is None else timeout_s
        self._stream = gateway.streams.open(request_id, on_overflow=on_overflow)
        self._num_choices = 1
        self._audit = audit

    @property
    def overflowed(self) -> bool:
        """Whether more came than its reader took."""
        return self._stream.overflowed

    def start_clock(self) -> None:
        """The body is complete: the request's deadline runs from now."""
        self.received = anyio.current_time()
        self.deadline = self.received + self._timeout_s

    async def hand_over(
        self,
        body: bytes,
        api: Api,
        *,
        models: tuple[str, ...] | None = None,
        owner: str = "",
        weight: int = 1,
    ) -> Reply:
        """Have it prepared and started; takes at most the timeout of a hand-over.

        `models`: the patterns of those that its caller may ask for; None: all. `owner`: whose
        stored responses it may refer to, and who waits for a worker, with that `weight`.

        Not to be cancelled: the answer tells whom to cancel, also when nobody waits any more.
        """
        now_ms = int(time.time() * 1000)
        prepare = Prepare(
            request_id=self.request_id,
            deadline_ms=now_ms + int(self._timeout_s * 1000),
            api=api,
            body=body,
            reply_subject=self._gateway.streams.reply_subject,
            received_ms=now_ms,
            models=models,
            owner=owner,
            weight=weight,
        )
        reply: Reply = self.failure("cancelled", "the client left")
        # Shielded for the reason above. Bounded by the timeout.
        with anyio.CancelScope(shield=True):
            hand_over = HandOver(
                self._gateway.bus,
                self._gateway.directory,
                self._gateway.peers,
                self._settings.hand_over_timeout_s,
                self._stream.next_term,
            )
            reply = await hand_over(prepare)
        if isinstance(reply, Accepted):
            if self._audit is not None:
                self._audit.enforcement = reply.enforcement
            self._num_choices = reply.num_choices
            self.tokens = reply.prompt_tokens
            if reply.control_subject:
                self._stream.control_subjects.add(reply.control_subject)
            trace_headers = self._gateway.telemetry.headers()
            self._stream.span = trace.get_current_span()
            tracing.handed_over(reply.instance, reply.prompt_tokens)
            self._stream.accepted(reply.instance, reply.handed, trace_headers)
        return reply

    async def first(self, *, stream: bool) -> list[EventDelta] | Failed:
        """The first deltas, or the failure that came before any output.

        Where both came together, a `stream` begins with the output and ends with the failure,
        as it would have, had they come one after the other.
        """
        until = anyio.current_time() + self._settings.first_event_timeout_s
        deltas = await self.take(until)
        if not deltas:
            return self.failure("deadline", "the answer did not begin in time")
        event(semconv.FIRST_EVENT_EVENT)
        if stream and any(delta.events for delta in deltas):
            return deltas
        return failure_in(deltas) or deltas

    async def rest(self) -> list[EventDelta] | Failed:
        """More deltas, or the failure that came instead; waits until the deadline."""
        deltas = await self.take(self.deadline)
        return failure_in(deltas) or deltas

    async def take(self, until: float) -> list[EventDelta]:
        """What came; nothing if nothing came by `until`; a failure when the deadline came first."""
        stream = self._stream
        deltas = await stream.take(min(until, self.deadline))
        self.tokens += len(deltas)
        if not deltas:
            if anyio.current_time() >= self.deadline:
                stream.fail(self.failure("deadline", "the answer took too long"))
                return await stream.take(until)
        elif deltas[-1].usage is not None and stream.choices_ended < self._num_choices:
            deltas[-1] = EventDelta(
                self.request_id,
                deltas[-1].seq,
                deltas[-1].choice,
                failed=self.failure("internal", "the answer ended too early"),
            )
        if self._audit is not None and self._audit.transcript is not None:
            self._audit.transcript.feed(deltas)
        return deltas

    def abandon(self) -> None:
        """Nobody reads on: what still comes is dropped."""
        self._stream.abandon()

    def close(self, reason: str) -> None:
        """Forget it; if it has not ended, cancel it."""
        if self._audit is not None:
            self._audit.hand_overs = self._stream.term // TERM_STEP
        self._gateway.streams.close(self._stream, reason)

    def failure(self, code: FailureCode, message: str) -> Failed:
        """A failure of this request that was found here."""
        return failure(code, message, request_id=self.request_id)


def failure_in(deltas: Sequence[EventDelta]) -> Failed | None:
    """The failure among `deltas`, if there is one."""
    return next((delta.failed for delta in deltas if delta.failed is not None), None)
