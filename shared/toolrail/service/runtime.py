"""What a running service holds, and its registration."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup
from prometheus_client import CollectorRegistry

from toolrail import messages
from toolrail.bus import subjects
from toolrail.bus.port import Bus
from toolrail.directory import Directory
from toolrail.errors import FaultError
from toolrail.service import liveness, metrics
from toolrail.settings import CommonSettings
from toolrail.telemetry import Telemetry

S = TypeVar("S", bound=CommonSettings)

log: Final = logging.getLogger("toolrail.service")

_CLOSE_TIMEOUT_S: Final = 5.0
_PINGS: Final = 256
_STARTED_MS: Final = int(time.time() * 1000)


@dataclass(slots=True, kw_only=True)
class Runtime(Generic[S]):
    """What a running service has.

    Attributes:
        service: name of the service.
        instance: name of this process on the bus.
        settings: the service's settings.
        bus: the connection.
        directory: who else is there; already started.
        telemetry: spans.
        metrics: registry of this process's metrics.
        stopping: set when the service must take nothing new and finish.
    """

    service: str
    instance: str
    settings: S
    bus: Bus
    directory: Directory
    telemetry: Telemetry
    metrics: CollectorRegistry
    stopping: anyio.Event
    tasks: TaskGroup
    _announced: anyio.CancelScope | None = None
    _card: messages.ModelCard | None = None

    async def announce(self, *, card: messages.ModelCard | None = None) -> None:
        """Register as ready, with a model `card` if one is served, and renew until stop.

        Once `stopping` is set the instance shows as draining and the card is withdrawn; the
        instance goes when the service ends.
        """
        await self.withdraw()
        self._card = card
        await self._renew()
        self._announced = anyio.CancelScope()
        self.tasks.start_soon(self._keep_renewing, self._announced)

    @property
    def ready(self) -> bool:
        """Whether this process is registered and takes work."""
        return self._announced is not None and not self.stopping.is_set()

    async def withdraw(self) -> None:
        """Be registered no longer; `announce` may follow. Does nothing when not announced."""
        if self._announced is None:
            return
        self._announced.cancel()
        self._announced = None
        try:
            await self._withdraw_card()
            await self.bus.instances.delete(f"{self.service}.{self.instance}")
        except FaultError as error:
            log.warning("registration left to expire", extra={"reason": error.code})

    async def _keep_renewing(self, scope: anyio.CancelScope) -> None:
        with scope:
            while True:
                with anyio.move_on_after(self.settings.heartbeat_s):
                    if self.stopping.is_set():
                        await anyio.sleep_forever()
                    await self.stopping.wait()
                try:
                    await self._renew()
                except FaultError as error:  # the next heartbeat tries again
                    log.warning("heartbeat failed", extra={"reason": error.code})

    async def _renew(self) -> None:
        draining = self.stopping.is_set()
        present = messages.Instance(
            service=self.service,
            instance=self.instance,
            pid=os.getpid(),
            draining=draining,
            started_ms=_STARTED_MS,
        )
        if draining:
            await self._withdraw_card()
        elif self._card is not None:
            await self.bus.models.put(self._card_key(self._card), messages.encode(self._card))
        await self.bus.instances.put(f"{self.service}.{self.instance}", messages.encode(present))

    async def _withdraw_card(self) -> None:
        if (card := self._card) is not None:
            self._card = None
            await self.bus.models.delete(self._card_key(card))

    def _card_key(self, card: messages.ModelCard) -> str:
        return f"{subjects.model_token(card.name)}.{self.instance}"


@asynccontextmanager
async def serving(
    service: str,
    settings: S,
    bus: Bus,
    *,
    telemetry: Telemetry | None = None,
    stopping: anyio.Event | None = None,
) -> AsyncGenerator[Runtime[S]]:
    """A runtime over `bus`; registration, watching and tasks end with the block, the bus stays."""
    telemetry = telemetry or Telemetry()
    registry = CollectorRegistry()
    metrics.register(registry, bus.stats, lambda: telemetry.dropped_spans)
    directory = Directory(bus)
    await directory.start()
    async with anyio.create_task_group() as tasks:
        runtime = Runtime(
            service=service,
            instance=settings.instance or f"{service}-{secrets.token_hex(4)}",
            settings=settings,
            bus=bus,
            directory=directory,
            telemetry=telemetry,
            metrics=registry,
            stopping=stopping or anyio.Event(),
            tasks=tasks,
        )
        ping = subjects.ping(runtime.instance)
        pinged = await bus.serve(ping, ping, liveness.answerer(registry), max_in_flight=_PINGS)
        try:
            yield runtime
        finally:
            with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                await pinged.stop()
                await runtime.withdraw()
                await directory.stop()
            tasks.cancel_scope.cancel()
