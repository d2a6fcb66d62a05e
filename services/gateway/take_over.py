"""Streams whose owner died, ends, or lost a part of them, handed to another postprocessor.

The new owner has the workers send everything again; what was heard before is left out by
`streams`. One that is there is found at once; where there is none, until it is started again.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from services.gateway import tracing
from services.gateway.failures import failure
from services.gateway.metrics import Meters
from services.gateway.stream import Stream
from services.gateway.streams import Streams
from toolrail.bus import subjects
from toolrail.bus.port import Bus
from toolrail.errors import DeadlineError, DecodeError, FaultError
from toolrail.messages import (
    OWNER_STOPPING,
    TERM_STEP,
    Failed,
    Reply,
    decode_reply,
    decode_stream,
    encode,
)
from toolrail.settings import GatewaySettings
from toolrail.telemetry import attached

log: Final = logging.getLogger(__name__)

_PAUSE_S: Final = 0.1
_ANSWER_S: Final = 5.0
"""How long one postprocessor may take to answer before another is asked."""
_AT_ONCE: Final = 64


class TakeOver:
    """Hands streams on. `serve` must run for that."""

    def __init__(
        self, bus: Bus, streams: Streams, settings: GatewaySettings, meters: Meters
    ) -> None:
        self._bus = bus
        self._streams = streams
        self._settings = settings
        self._meters = meters
        self._at_once = anyio.CapacityLimiter(_AT_ONCE)
        self._tasks: TaskGroup | None = None
        self._under_way: dict[str, anyio.CancelScope] = {}

    async def serve(self) -> None:
        """Take over what `begin` is given. Runs until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            await anyio.sleep_forever()

    def begin(self, stream: Stream, failed: Failed) -> None:
        """Hand `stream` on; it fails with `failed` where that cannot be. For callbacks, too.

        One that nobody reads any more is handed on as well, since only its owner can end its runs.
        """
        if stream.over and not stream.closed:
            return
        if not stream.answered:
            stream.lost = failed  # until it is known to whom, and how, it was handed over
            return
        if failed.error_code == OWNER_STOPPING:  # a word between services
            failed = msgspec.structs.replace(failed, error_code=None)
        if (
            stream.handed is None
            or self._tasks is None
            or stream.term >= self._settings.max_take_overs * TERM_STEP
        ):
            stream.fail(failed)
            return
        if (under_way := self._under_way.pop(stream.request_id, None)) is not None:
            under_way.cancel()  # whom it found is lost already
        former = stream.owner
        stream.next_term()
        scope = self._under_way[stream.request_id] = anyio.CancelScope()
        self._tasks.start_soon(self._run, scope, stream, former, failed)

    async def _run(
        self, scope: anyio.CancelScope, stream: Stream, former: str, failed: Failed
    ) -> None:
        facts = {"request_id": stream.request_id, "term": stream.term}
        log.info("a stream lost its owner, looking for another", extra=facts)
        with scope:
            async with self._at_once:
                reply = await self._new_owner(stream, failed)
            self._settle(stream, former, reply)
        if self._under_way.get(stream.request_id) is scope:
            del self._under_way[stream.request_id]

    def _settle(self, stream: Stream, former: str, reply: Reply) -> None:
        if isinstance(reply, Failed):
            self._meters.take_overs.labels("failed").inc()
            tracing.taken_over(stream.span, former, "", stream.term)
            stream.fail(reply)
            return
        self._meters.take_overs.labels("done").inc()
        tracing.taken_over(stream.span, former, reply.instance, stream.term)
        stream.taken_by(reply.instance)
        if stream.closed:
            self._streams.cancel(stream, reply.instance, "nobody reads it")
            return
        if former and former != reply.instance:
            # In case it lives after all; the workers do not listen to it any more.
            self._streams.cancel(stream, former, "taken over")

    async def _new_owner(self, stream: Stream, failed: Failed) -> Reply:
        """Who took it, or why nobody did in time."""
        reply: Reply = failed
        with anyio.move_on_after(self._settings.take_over_timeout_s):
            while True:
                answer = await self._ask(stream)
                if answer is not None and not (isinstance(answer, Failed) and answer.retryable):
                    return answer
                reply = answer or reply
                await anyio.sleep(_PAUSE_S)
        return reply

    async def _ask(self, stream: Stream) -> Reply | None:
        """The answer of one postprocessor; None where there was none."""
        assert stream.handed is not None
        try:
            handed = msgspec.structs.replace(
                decode_stream(stream.handed), term=stream.term, started=stream.started()
            )
            with attached(stream.trace_headers):
                answer = await self._bus.request(
                    subjects.STREAM,
                    encode(handed),
                    timeout_s=min(self._settings.hand_over_timeout_s, _ANSWER_S),
                )
            return decode_reply(answer)
        except DecodeError:
            about = {"request_id": stream.request_id}
            log.exception("a stream could not be handed on", extra=about)
            return failure("internal", "internal error", request_id=stream.request_id)
        except DeadlineError:
            # Whoever was asked may have taken it without being heard: the next one must outrank it.
            stream.next_term()
            return None
        except FaultError:
            return None
