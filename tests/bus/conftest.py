from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from toolrail.bus.embedded import EmbeddedNats
from toolrail.bus.memory import MemoryBroker
from toolrail.bus.nats import NatsBus
from toolrail.bus.port import Bus
from toolrail.settings import CommonSettings
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
    max_document_bytes: int = 1 << 26


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
            max_document_bytes=self.limits.max_document_bytes,
        )

    async def connect(self, telemetry: Telemetry | None = None) -> Bus:
        self.buses.append(self.broker.connect(telemetry))
        return self.buses[-1]


@dataclass
class RealServer:
    limits: Limits
    server: EmbeddedNats = field(default_factory=EmbeddedNats)
    buses: list[Bus] = field(default_factory=list[Bus])

    async def connect(self, telemetry: Telemetry | None = None) -> Bus:
        settings = CommonSettings(
            nats_url=self.server.url,
            registration_ttl_s=self.limits.registration_ttl_s,
            ack_wait_s=self.limits.ack_wait_s,
            max_queue_jobs=self.limits.max_queue_jobs,
            max_queue_bytes=self.limits.max_queue_bytes,
            max_document_bytes=self.limits.max_document_bytes,
            connect_timeout_s=10,
        )
        self.buses.append(await NatsBus.connect(settings, telemetry=telemetry))
        return self.buses[-1]


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.nats)])
async def connect(request: pytest.FixtureRequest, limits: Limits) -> AsyncIterator[Connect]:
    """Opens connections to one fresh bus: in memory, and (mark `nats`) on a real server."""
    made = MemoryServer(limits) if request.param == "memory" else RealServer(limits)
    if isinstance(made, RealServer):
        await made.server.start()
    try:
        yield made.connect
    finally:
        for bus in made.buses:
            await bus.close()
        if isinstance(made, RealServer):
            made.server.remove()
