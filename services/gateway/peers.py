"""Which of the peers that this process waits for are dead: what they owe will never come."""

from __future__ import annotations

from collections.abc import Callable, Collection

import anyio

from toolrail.bus.port import Bus
from toolrail.directory import Directory
from toolrail.service.liveness import Asking, Liveness
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

    Attributes:
        preprocessors: for questions to them.
    """

    def __init__(
        self,
        bus: Bus,
        directory: Directory,
        settings: GatewaySettings,
        owners: Callable[[], Collection[str]],
    ) -> None:
        self._directory = directory
        self._heartbeat_s = settings.heartbeat_s
        self._owners = owners
        self._missing = DeadPeers(settings.registration_ttl_s)
        probe_s, gone_s = settings.probe_s, settings.gone_s
        self._liveness = Liveness(bus, owners, probe_s=probe_s, gone_s=gone_s)
        self.preprocessors = Asking(bus, directory, "preprocessor", probe_s=probe_s, gone_s=gone_s)

    async def watch(self, on_dead: Callable[[Collection[str]], None]) -> None:
        """Tell `on_dead` of postprocessors that died, while streams are theirs. Never ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_registrations, on_dead)
            tasks.start_soon(self.preprocessors.watch)
            await self._liveness.watch(on_dead)

    async def _watch_registrations(self, on_dead: Callable[[Collection[str]], None]) -> None:
        while True:
            await anyio.sleep(self._heartbeat_s)
            live = {known.instance for known in self._directory.instances("postprocessor")}
            dead = self._missing.update(self._owners(), live, anyio.current_time())
            on_dead(dead - self._liveness.alive)  # a registration may lapse while its process lives
