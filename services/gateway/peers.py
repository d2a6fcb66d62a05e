"""Which postprocessors are dead: what they owe will never come."""

from __future__ import annotations

from collections.abc import Collection


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
