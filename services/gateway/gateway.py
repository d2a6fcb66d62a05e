"""What the handlers of one process share."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from services.gateway.audit.auditor import Auditor
from services.gateway.audit.setup import auditor_of
from services.gateway.door import Door
from services.gateway.exchange import BodyBudget
from services.gateway.metrics import Meters
from services.gateway.peers import Peers
from services.gateway.responses.runs import Runs
from services.gateway.sharing import Sharing
from services.gateway.streams import Streams
from services.gateway.take_over import TakeOver
from toolrail.bus.port import Bus
from toolrail.directory import Directory
from toolrail.errors import QueueFullError
from toolrail.service import Runtime
from toolrail.settings import GatewaySettings
from toolrail.stored import StoredResponses
from toolrail.telemetry import Telemetry


class Admission:
    """A bound on the requests that are answered at once; `taken` says how many there are."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.taken = 0

    @contextmanager
    def slot(self) -> Generator[None]:
        """Hold a slot. Raises QueueFullError when there is none."""
        if self.taken >= self._limit:
            raise QueueFullError("too many requests at once, try again shortly")
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """One process's connections, bounds and meters. `stopping` set: it takes nothing new."""

    settings: GatewaySettings
    instance: str
    pid: int
    bus: Bus
    directory: Directory
    telemetry: Telemetry
    meters: Meters
    streams: Streams
    peers: Peers
    take_over: TakeOver
    admission: Admission
    bodies: BodyBudget
    door: Door
    sharing: Sharing
    stored: StoredResponses
    runs: Runs
    auditor: Auditor
    stopping: anyio.Event

    async def watch(self) -> None:
        """Keep going what runs here without a client, and what lost its owner. Until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.runs.serve)
            tasks.start_soon(self.take_over.serve)
            tasks.start_soon(self.sharing.serve, self.settings.limits_exchange_s)
            tasks.start_soon(self.peers.watch, self.streams.lose)
            tasks.start_soon(self.streams.ask_owners, self.settings.resend_s)

    @classmethod
    def of(cls, runtime: Runtime[GatewaySettings]) -> Gateway:
        """The gateway of a runtime; its streams do not listen yet. Raises ConfigError."""
        settings = runtime.settings
        meters = Meters(runtime.metrics)
        streams = Streams(
            runtime.bus,
            runtime.instance,
            capacity=settings.stream_buffer_events,
            on_bad_frame=meters.bad_frames.inc,
        )
        take_over = TakeOver(runtime.bus, streams, settings, meters)
        streams.on_lost = take_over.begin
        runs = Runs(runtime.bus, runtime.instance, settings.max_background)
        meters.background.set_function(runs.__len__)
        door = Door(settings, meters)
        return cls(
            settings=settings,
            instance=runtime.instance,
            pid=os.getpid(),
            bus=runtime.bus,
            directory=runtime.directory,
            telemetry=runtime.telemetry,
            meters=meters,
            streams=streams,
            peers=Peers(runtime.bus, runtime.directory, settings, streams.owners),
            take_over=take_over,
            admission=Admission(settings.max_streams),
            bodies=BodyBudget(settings.held_body_bytes),
            door=door,
            sharing=Sharing(
                runtime.bus, runtime.directory, runtime.instance, door.limits, door.keyring
            ),
            stored=StoredResponses(runtime.bus.documents),
            runs=runs,
            auditor=auditor_of(settings, runtime.bus, runtime.metrics),
            stopping=runtime.stopping,
        )
