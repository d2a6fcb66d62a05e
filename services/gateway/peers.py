"""Which of the peers that this process waits for are dead: what they owe will never come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager

import anyio

from toolrail.bus.port import Bus
from toolrail.directory import Directory
from toolrail.service.liveness import Liveness
from toolrail.settings import GatewaySettings


class DeadPeers:
    """Peers that have been missing from the directory for a while.

    Not the first moment they are missing: after a restart of the bus all registrations are gone
    until the next heartbeat.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._missing_since: dict[str, float] = {}

    def update(self, owed: Collection[str], live: Collection[str], now: float) -> set[str]:
        """Those of `owed` that are dead by now. Call regularly; `now` on any steady clock."""
        missing = set(owed).difference(live)
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        return {name for name, since in self._missing_since.items() if now - since >= self._grace_s}


class Peers:
    """Watches the postprocessors that own streams, and preprocessors while they are asked.

    The bus is asked who is there, which finds a dead process within two seconds; one that hangs is
    found when its registration has expired.
    """

    def __init__(
        self,
        bus: Bus,
        directory: Directory,
        settings: GatewaySettings,
        owners: Callable[[], Collection[str]],
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._owners = owners
        self._asking: set[anyio.CancelScope] = set()
        self._known: frozenset[str] = frozenset()
        self._missing = DeadPeers(settings.registration_ttl_s)
        self._liveness = Liveness(
            bus, self._waited_for, probe_s=settings.probe_s, gone_s=settings.gone_s
        )

    @contextmanager
    def asking(self) -> Generator[anyio.CancelScope]:
        """A question to some preprocessor; cut short when one of them dies meanwhile."""
        with anyio.CancelScope() as scope:
            self._asking.add(scope)
            try:
                yield scope
            finally:
                self._asking.discard(scope)

    async def watch(self, on_dead: Callable[[Collection[str]], None]) -> None:
        """Tell `on_dead` of postprocessors that died, while streams are theirs. Never ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_registrations, on_dead)
            await self._liveness.watch(lambda dead: self._died(dead, on_dead))

    def _waited_for(self) -> set[str]:
        waited_for = set(self._owners())
        if self._asking:
            waited_for.update(self._registered("preprocessor"))
        return waited_for

    def _registered(self, service: str) -> set[str]:
        return {known.instance for known in self._directory.instances(service)}

    def _died(self, dead: frozenset[str], on_dead: Callable[[Collection[str]], None]) -> None:
        on_dead(dead)
        new = dead - self._known
        self._known = dead
        if not new.isdisjoint(self._registered("preprocessor")):
            for scope in list(self._asking):
                scope.cancel()

    async def _watch_registrations(self, on_dead: Callable[[Collection[str]], None]) -> None:
        while True:
            await anyio.sleep(self._settings.heartbeat_s)
            live = self._registered("postprocessor")
            on_dead(self._missing.update(self._owners(), live, anyio.current_time()))
