from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from toolrail.bus.memory import MemoryBroker
from toolrail.bus.port import Bus
from toolrail.telemetry import Telemetry


class Connect(Protocol):
    async def __call__(self, telemetry: Telemetry | None = None) -> Bus: ...


@dataclass
class Limits:
    """Bounds of the bus of a test; parametrise the fixture `limits` to change them.

    Times are those of a real server, whose clocks tick in seconds; in memory they pass faster.
    """

    registration_ttl_s: float = 30.0
    ack_wait_s: float = 30.0
    max_queue_jobs: int = 1000
    max_queue_bytes: int = 1 << 26


@dataclass
class MemoryServer:
    limits: Limits
    buses: list[Bus] = field(default_factory=list[Bus])

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(
            registration_ttl_s=self.limits.registration_ttl_s / 10,
            ack_wait_s=self.limits.ack_wait_s / 10,
            max_queue_jobs=self.limits.max_queue_jobs,
            max_queue_bytes=self.limits.max_queue_bytes,
        )

    async def connect(self, telemetry: Telemetry | None = None) -> Bus:
        self.buses.append(self.broker.connect(telemetry))
        return self.buses[-1]


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture(params=["memory"])
async def connect(request: pytest.FixtureRequest, limits: Limits) -> AsyncIterator[Connect]:
    """Opens connections to one fresh bus: in memory, and (mark `nats`) on a real server."""
    server = MemoryServer(limits)
    yield server.connect
    for bus in server.buses:
        await bus.close()
