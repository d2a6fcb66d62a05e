"""What keys use at the other gateways, so that their limits hold for all gateways together.

While keys with limits are in use, each gateway says every `limits_exchange_s` what they used since
it last said so, and what of theirs runs now; the others charge it to their own budgets. So every
budget knows of all that is used, half a second later: what can be let in beyond a limit is what the
other gateways let in within that time, and it goes into debt, which has to be earned back. Where
nobody is heard (one gateway, or a bus that is away) each counts for itself, and nobody is refused
for that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import anyio

from services.gateway.keys import Keyring
from services.gateway.limits import Limits
from toolrail.bus import subjects
from toolrail.bus.port import Bus
from toolrail.directory import Directory
from toolrail.errors import DecodeError
from toolrail.messages import SCHEMA_VERSION, KeyUses, decode_key_uses, encode

log: Final = logging.getLogger(__name__)

_FRESH: Final = 4
"""What runs at a gateway is believed for so many times as long as it takes to say it again."""


class Sharing:
    """One gateway's word to the others, and theirs. `serve` must run for that."""

    def __init__(
        self, bus: Bus, directory: Directory, instance: str, limits: Limits, keyring: Keyring
    ) -> None:
        self._bus = bus
        self._directory = directory
        self._instance = instance
        self._limits = limits
        self._keyring = keyring
        self._running: dict[str, tuple[float, Mapping[str, int]]] = {}
        self._said = False

    async def serve(self, every_s: float) -> None:
        """Tell and listen until cancelled; not at all where `every_s` is 0 or no keys are used."""
        if not every_s or not self._keyring.in_use:
            return
        await self._bus.subscribe(subjects.KEY_USES, self._hear)
        while True:
            await anyio.sleep(every_s)
            self.tell()
            self._forget(anyio.current_time() - _FRESH * every_s)

    def tell(self) -> None:
        """Say what was used since the last time, if there is anybody to hear it."""
        uses = tuple(self._limits.news())
        alone = len(self._directory.instances("gateway")) < 2
        if (uses or self._said) and not alone:
            report = KeyUses(SCHEMA_VERSION, self._instance, uses)
            self._bus.publish_soon(subjects.KEY_USES, encode(report))
            self._said = bool(uses)

    def _hear(self, payload: bytes) -> None:
        try:
            report = decode_key_uses(payload)
        except DecodeError as error:
            log.error("undecodable report", extra={"reason": str(error)})
            return
        if report.gateway == self._instance:
            return
        running = {use.key: use.running for use in report.uses if use.running > 0}
        self._running[report.gateway] = (anyio.current_time(), running)
        for use in report.uses:
            if (record := self._keyring.record(use.key)) is not None:
                self._limits.used_elsewhere(record, use)
        self._count()

    def _forget(self, before: float) -> None:
        """Who has been silent for long has nothing running, or is gone."""
        kept = {name: one for name, one in self._running.items() if one[0] >= before}
        if len(kept) < len(self._running):
            self._running = kept
            self._count()

    def _count(self) -> None:
        total: dict[str, int] = {}
        for _, running in self._running.values():
            for key, number in running.items():
                total[key] = total.get(key, 0) + number
        self._limits.running_elsewhere = total
