"""Numbers that every service has: its event loop's lag, its bus, its lost spans.

Prometheus text, over a registry of the process's own (never the global one).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.to_thread
from prometheus_client import CollectorRegistry, Gauge, start_http_server
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from toolrail.bus.port import BusStats
from toolrail.errors import ConfigError

_LAG_INTERVAL_S: Final = 0.5


class ProcessCollector(Collector):
    """Counters of the bus and of tracing, read when scraped, so that counting costs nothing."""

    def __init__(self, bus: Callable[[], BusStats], dropped_spans: Callable[[], int]) -> None:
        self._bus = bus
        self._dropped_spans = dropped_spans

    def collect(self) -> Iterable[Metric]:
        """The counters now."""
        now = self._bus()
        messages = CounterMetricFamily(
            "toolrail_bus_messages", "Messages of this process.", labels=["direction"]
        )
        messages.add_metric(["out"], now.messages_out)
        messages.add_metric(["in"], now.messages_in)
        yield messages
        payload = CounterMetricFamily(
            "toolrail_bus_payload_bytes", "Payload bytes of this process.", labels=["direction"]
        )
        payload.add_metric(["out"], now.bytes_out)
        payload.add_metric(["in"], now.bytes_in)
        yield payload
        yield CounterMetricFamily(
            "toolrail_bus_reconnects", "Connections to the bus made anew.", now.reconnects
        )
        yield CounterMetricFamily(
            "toolrail_bus_dropped", "Messages lost here: full queue, slow handler.", now.dropped
        )
        yield CounterMetricFamily(
            "toolrail_trace_spans_dropped",
            "Spans lost: full queue, receiver away.",
            self._dropped_spans(),
        )


async def measure_lag(registry: CollectorRegistry) -> None:
    """Keep a gauge of how late the event loop runs what is due. Runs until cancelled."""
    gauge = Gauge(
        "toolrail_event_loop_lag_seconds",
        "How late the event loop was with what was due, lately.",
        registry=registry,
    )
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _LAG_INTERVAL_S
        await anyio.sleep(_LAG_INTERVAL_S)
        gauge.set(max(0.0, loop.time() - due))


@asynccontextmanager
async def exposed(registry: CollectorRegistry, host: str, port: int) -> AsyncGenerator[None]:
    """Serve the registry over HTTP from a thread of its own, during the block. Port 0: not at all.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    if not port:
        yield
        return
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ConfigError("metrics_port", f"cannot listen on {host}:{port}: {error}") from error
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.shutdown)
        server.server_close()
        thread.join()
