"""The shell: bus messages to the core and back, one timer, a drain.

Handlers run inline, in order, without a task per message. This is also the boundary where a bug of
the core becomes a log record.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Final

import anyio

from services.postprocessor.absences import Absences
from services.postprocessor.admission import Admission
from services.postprocessor.batch import Batch, Happening
from services.postprocessor.checking import Verdict
from services.postprocessor.clock import Clock
from services.postprocessor.intake import Intake
from services.postprocessor.jobs import Jobs
from services.postprocessor.later import Later
from services.postprocessor.metrics import LineCollector, PostprocessorMetrics
from services.postprocessor.neighbours import Neighbours
from services.postprocessor.room import WaitingRoom
from services.postprocessor.stream import Outcome, RequestStream, Timeouts
from services.postprocessor.streams import Streams
from services.postprocessor.watching import Watching
from toolrail.bus import subjects
from toolrail.bus.port import Subscription
from toolrail.errors import DecodeError, FaultError
from toolrail.messages import (
    SCHEMA_VERSION,
    Done,
    EventDelta,
    EventFrame,
    Positions,
    Resend,
    decode_owner_order,
    decode_rooms,
    decode_token_frame,
    encode,
)
from toolrail.service import Runtime
from toolrail.service.liveness import Liveness
from toolrail.settings import PostprocessorSettings

log: Final = logging.getLogger(__name__)

_TICK_S: Final = 0.5
_WANTS_AT_ONCE: Final = 1000
_KEPT_S: Final = 20.0
_KEPT_RESENDS: Final = 5
"""Questions that a gateway has time for, after a stream's end, before the workers forget it; and no
less than it takes to notice that a connection is silent (two pings), and then to ask."""

_FLUSH_S: Final = 1.0
"""Of the drain, what is left for telling the gateways of streams that did not end in time."""


class Postprocessor:
    """Owns the streams that are handed to it, from hand-over to last word."""

    def __init__(self, runtime: Runtime[PostprocessorSettings], clock: Clock | None = None) -> None:
        self._runtime = runtime
        self._bus = runtime.bus
        self._instance = runtime.instance
        self._clock = clock or Clock()
        settings = runtime.settings
        self._streams = Streams(
            Timeouts(
                settings.idle_timeout_s,
                settings.job_max_age_s + settings.idle_timeout_s,
                settings.resend_s,
                settings.ack_wait_s,
                settings.max_resends,
                max(_KEPT_S, _KEPT_RESENDS * settings.resend_s),
            )
        )
        self._metrics = PostprocessorMetrics(runtime.metrics)
        runtime.metrics.register(
            LineCollector(self._metrics, lambda: self._streams.lines(self._clock.seconds()))
        )
        self._watching = Watching(self._metrics, runtime.telemetry)
        self._jobs = Jobs(runtime, self._streams, self._watching, self._clock, self._send)
        self._neighbours = Neighbours(runtime.bus, runtime.directory, runtime.instance)
        self._room = WaitingRoom(
            lambda model: sum(card.slots for card in runtime.directory.workers(model)),
            self._neighbours.out,
            ahead_per_slot=settings.ahead_per_slot if settings.queue_order == "fair" else None,
        )
        admission = Admission(runtime, self._streams, self._room, self._neighbours, self._jobs)
        self._intake = Intake(runtime, self._streams, self._watching, admission, self._clock)
        self._workers = Liveness(
            runtime.bus,
            lambda: self._streams.silent_workers(self._clock.seconds(), settings.probe_s),
            probe_s=settings.probe_s,
            gone_s=settings.gone_s,
        )
        self._gateways = Liveness(
            runtime.bus,
            lambda: {subjects.gateway_of(reader) for reader in self._streams.readers()},
            probe_s=settings.probe_s,
            gone_s=settings.gone_s,
        )
        self._unserved: dict[str, float] = {}
        self._warmed: set[str] = set()
        self._absent_workers = Absences()
        self._absent_gateways = Absences()
        self._idle = anyio.Event()
        self._later = Later(
            self._judged,
            max_waiting=settings.max_argument_checks,
            timeout_s=settings.argument_check_timeout_s,
        )
        self._subscriptions: list[Subscription] = []
        self._served: Subscription | None = None

    def __len__(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    async def start(self) -> None:
        """Listen for frames and orders, then take hand-overs."""
        tokens, control = subjects.tokens(self._instance), subjects.control(self._instance)
        self._subscriptions = [
            await self._bus.subscribe(tokens, self._on_frame),
            await self._bus.subscribe(control, self._on_control),
            await self._bus.subscribe(subjects.ROOMS, self._on_rooms),
        ]
        self._served = await self._bus.serve(
            subjects.STREAM,
            subjects.POSTPROCESSORS,
            self._intake.take,
            max_in_flight=self._runtime.settings.max_streams,
        )

    async def queue(self) -> None:
        """Move runs to other workers, and tidy the queue up, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._jobs.look_after)
            await self._jobs.serve()

    async def tell_neighbours(self) -> None:
        """Tell the other postprocessors what waits here and what is out, until cancelled."""
        await self._neighbours.tell(self._room)

    async def watch_workers(self) -> None:
        """Move the runs whose worker the bus does not know any more, until cancelled."""
        await self._workers.watch(self._lost)

    def _lost(self, dead: Collection[str]) -> None:
        silence_s = self._runtime.settings.probe_s
        self._send(self._streams.lose(dead, silence_s, self._clock.seconds()))

    async def watch_gateways(self) -> None:
        """End the streams whose gateway the bus does not know any more, until cancelled."""
        await self._gateways.watch(self._orphan)

    def _orphan(self, dead: Collection[str]) -> None:
        readers = {subjects.events(gateway) for gateway in dead}
        self._send(self._streams.orphan(readers, self._clock.seconds()))

    async def watch(self) -> None:
        """See to what has timed out or lost its peer, until cancelled."""
        while True:
            await anyio.sleep(_TICK_S)
            self.tick()

    async def check(self) -> None:
        """Make the checks that take long, until cancelled."""
        await self._later.serve()

    async def keep_warm(self) -> None:
        """Load the tokenizers of new models before their first request, until cancelled."""
        while True:
            await self.warm()
            await anyio.sleep(_TICK_S)

    async def warm(self) -> None:
        """Load the tokenizers of all announced models, once each: it takes up to seconds."""
        for card in self._runtime.directory.cards():
            if card.tokenizer in self._warmed:
                continue
            self._warmed.add(card.tokenizer)
            try:
                with anyio.fail_after(self._runtime.settings.hand_over_timeout_s):
                    await self._runtime.directory.tokenizer(card)
            except (KeyError, ValueError, TimeoutError, FaultError) as error:
                # The first request for this model will try again, and say so.
                log.warning("no tokenizer", extra={"model": card.name}, exc_info=error)

    def tick(self) -> None:
        """Look once at every stream's clock and at the peers that are there."""
        now_s = self._clock.seconds()
        self._send(self._streams.expire(now_s, self._clock.unix_ms()))
        settings = self._runtime.settings
        workers = self._absent(self._absent_workers, "worker", settings.heartbeat_s, now_s)
        workers -= self._workers.alive
        if workers:
            self._send(self._streams.lose(workers, settings.heartbeat_s, now_s))
        self._starve(now_s)
        self._neighbours.look()
        gateways = self._absent(
            self._absent_gateways, "gateway", settings.registration_ttl_s, now_s
        )
        gateways -= self._gateways.alive
        if gateways:
            self._orphan(gateways)
        self._room.check()
        self._let_in()

    def _starve(self, now_s: float) -> None:
        """Fail what has waited for long for a worker of a model that nobody serves."""
        wait_s = self._runtime.settings.worker_wait_s
        self._unserved = {
            model: self._unserved.get(model, now_s)
            for model in self._streams.waiting_models()
            if self._runtime.directory.card(model) is None
        }
        models = {model for model, since_s in self._unserved.items() if now_s - since_s >= wait_s}
        if models:
            self._send(self._streams.starve(models, wait_s, now_s))

    def _absent(self, absences: Absences, service: str, seconds: float, now_s: float) -> set[str]:
        """Instances of `service` that have been gone for `seconds`.

        A while, because a registration may lapse, with the bus, while its process lives. Who
        answers all the same is not among the dead, see `Liveness.alive`.
        """
        present = {known.instance for known in self._runtime.directory.instances(service)}
        absences.update(present, now_s)
        return absences.longer_than(seconds, now_s)

    async def drain(self) -> None:
        """Take nothing new, let streams end; those that do not in time go to other owners."""
        settings = self._runtime.settings
        with anyio.move_on_after(max(0.0, settings.drain_s - _FLUSH_S)):
            if self._served is not None:
                await self._served.stop(drain_s=settings.hand_over_timeout_s)
            if self._neighbours.ready():
                self._send(self._streams.pass_on(self._clock.seconds()))
            while len(self._streams):
                self._idle = anyio.Event()
                await self._idle.wait()
        self._send(self._streams.abandon(self._clock.seconds()))
        for subscription in self._subscriptions:
            await subscription.stop()

    def _on_frame(self, payload: bytes) -> None:
        try:
            frame = decode_token_frame(payload)
        except DecodeError as error:
            self._undecodable("frame", error)
            return
        self._metrics.frames_in.inc()
        self._metrics.tokens.inc(sum(len(delta.token_ids) for delta in frame.deltas))
        self._send(self._streams.on_frame(frame, self._clock.seconds()))

    def _on_control(self, payload: bytes) -> None:
        try:
            order = decode_owner_order(payload)
        except DecodeError as error:
            self._undecodable("order", error)
            return
        if isinstance(order, Positions):
            self._send(self._streams.on_positions(order))
        else:
            self._send(self._streams.on_cancel(order, self._clock.seconds()))

    def _on_rooms(self, payload: bytes) -> None:
        try:
            self._neighbours.hear(decode_rooms(payload), self._room)
        except DecodeError as error:
            self._undecodable("report", error)
            return
        self._let_in()

    def _let_in(self) -> None:
        """Queue the jobs that need not wait any more."""
        for ticket in self._room.ready(self._clock.seconds()):
            self._jobs.move(ticket.job)

    def _undecodable(self, what: str, error: DecodeError) -> None:
        self._metrics.bad_messages.inc()
        log.error("undecodable %s", what, exc_info=error)

    def _send(self, batch: Batch) -> None:
        """Publish a batch: one frame for each destination, then the cancels; then count."""
        for destination, deltas in batch.events.items():
            self._publish(destination, deltas)
        # Before the next attempts of moved runs are queued: who hears of one has heard of this.
        for model, cancel in batch.cancels:
            self._bus.publish_soon(subjects.cancel(model), encode(cancel))
        # After the events: who hears that a stream is done has heard its end.
        self._to_workers(batch)
        self._watching.observe(batch)
        for stream in batch.released:
            self._watching.release(stream.request_id)
            self._room.settle(stream)
        self._jobs.withdraw(batch.receipts)
        for happening in batch.happenings:
            self._follow_up(happening)
        self._let_in()
        if not len(self._streams):
            self._idle.set()

    def _follow_up(self, happening: Happening) -> None:
        outcome, stream = happening.outcome, happening.stream
        if happening.bug is not None:
            facts = {"request_id": stream.request_id}
            log.error("a stream failed by a bug", exc_info=happening.bug, extra=facts)
        if outcome.turn or stream.over:
            self._room.settle(stream)
        if (moved := outcome.migration) is not None and moved.worker:
            self._jobs.move(moved.job)
        elif moved is not None:  # nobody had begun it: it has no right to go before what waits
            self._room.enter(stream, [moved.job])
        if outcome.checks:
            self._later.put(stream, outcome)
        if stream.over and stream.dead is not None:
            self._jobs.bury(stream)

    def _to_workers(self, batch: Batch) -> None:
        here = subjects.tokens(self._instance)
        for (model, worker), wants in batch.wants.items():
            cards = self._runtime.directory.workers(model)
            workers = [worker] if worker else [card.worker for card in cards]
            for start in range(0, len(wants), _WANTS_AT_ONCE):
                some = tuple(wants[start : start + _WANTS_AT_ONCE])
                order = encode(Resend(reply_subject=here, wants=some))
                for one in workers:
                    self._bus.publish_soon(subjects.control(one), order)
            self._metrics.wants.inc(len(wants))
        for worker, request_ids in batch.done.items():
            done = encode(Done(reply_subject=here, request_ids=tuple(request_ids)))
            self._bus.publish_soon(subjects.control(worker), done)

    def _judged(self, stream: RequestStream, outcome: Outcome, verdicts: Sequence[Verdict]) -> None:
        if stream.fails:
            now_s = self._clock.seconds()
            self._send(self._streams.on_verdicts(stream, outcome.choice, verdicts, now_s))
        else:
            self._watching.judged(stream.request_id, verdicts)

    def _publish(self, destination: str, deltas: Sequence[EventDelta]) -> None:
        payload = encode(EventFrame(SCHEMA_VERSION, self._instance, tuple(deltas)))
        if len(payload) > self._bus.max_payload_bytes and len(deltas) > 1:
            # Many streams with large deltas in one step; halves keep the order of each.
            middle = len(deltas) // 2
            self._publish(destination, deltas[:middle])
            self._publish(destination, deltas[middle:])
            return
        self._bus.publish_soon(destination, payload)
        self._metrics.frames_out.inc()
