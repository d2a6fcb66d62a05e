"""Numbers that every service has: its process, its event loop's lag, its bus, its lost spans.

Prometheus text, over a registry of the process's own (never the global one).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final

import anyio
import anyio.to_thread
import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from toolrail.bus import subjects
from toolrail.bus.port import Bus, BusStats
from toolrail.errors import ConfigError, FaultError
from toolrail.service.liveness import UNTRACED
from toolrail.service.probes import Probes
from toolrail.telemetry import Telemetry

_LAG_INTERVAL_S: Final = 0.5
_LAGS_KEPT: Final = 30
"""Scrapes are up to a quarter of a minute apart; a stall between two of them is to be seen."""

ROUND_TRIP_INTERVAL_S: Final = 2.0
_ROUND_TRIP_TIMEOUT_S: Final = 5.0


class ProcessCollector(Collector):
    """What is read when scraped, so that counting costs nothing: the bus, tracing, the version."""

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
        yield GaugeMetricFamily(
            "toolrail_bus_unsent", "Messages of this process that wait to leave.", now.unsent
        )
        build = GaugeMetricFamily(
            "toolrail_build_info", "1, with the version that runs.", labels=["version"]
        )
        build.add_metric([version("toolrail")], 1)
        yield build
        yield CounterMetricFamily(
            "toolrail_trace_spans_dropped",
            "Spans lost: full queue, receiver away.",
            self._dropped_spans(),
        )


def register(
    registry: CollectorRegistry, bus: Callable[[], BusStats], dropped_spans: Callable[[], int]
) -> None:
    """Put into `registry` what every process has; CPU, memory, descriptors and start among it."""
    registry.register(ProcessCollector(bus, dropped_spans))
    prometheus_client.ProcessCollector(registry=registry)


async def measure_lag(registry: CollectorRegistry) -> None:
    """Keep gauges of the event loop: how late it runs what is due, its tasks. Never ends."""
    gauge = Gauge(
        "toolrail_event_loop_lag_seconds",
        "How late the event loop was with what was due: the worst of the last 15 s.",
        registry=registry,
    )
    lags: deque[float] = deque(maxlen=_LAGS_KEPT)
    loop = asyncio.get_running_loop()
    tasks = Gauge("toolrail_event_loop_tasks", "Tasks that have not ended.", registry=registry)
    tasks.set_function(lambda: len(asyncio.all_tasks(loop)))  # counted when scraped only
    while True:
        due = loop.time() + _LAG_INTERVAL_S
        await anyio.sleep(_LAG_INTERVAL_S)
        lags.append(max(0.0, loop.time() - due))
        gauge.set(max(lags))


async def measure_bus(registry: CollectorRegistry, bus: Bus, instance: str) -> None:
    """Keep a gauge of a message's way to the server and back here. Runs until cancelled.

    The question goes to this process's own `ping`, so that what delays frames delays it as well.
    """
    gauge = Gauge(
        "toolrail_bus_round_trip_seconds",
        "A message's way from this process to the bus and back, lately; 5 when it did not.",
        registry=registry,
    )
    failed = Counter(
        "toolrail_bus_round_trips_failed",
        "Messages of this process to itself that did not come back in 5 s.",
        registry=registry,
    )
    while True:
        begun = anyio.current_time()
        try:
            with Telemetry().attached(UNTRACED):
                await bus.request(subjects.ping(instance), b"", timeout_s=_ROUND_TRIP_TIMEOUT_S)
        except FaultError:  # at once when the connection is gone: that is not a short way
            failed.inc()
            gauge.set(_ROUND_TRIP_TIMEOUT_S)
        else:
            gauge.set(anyio.current_time() - begun)
        await anyio.sleep(ROUND_TRIP_INTERVAL_S)


@asynccontextmanager
async def exposed(
    registry: CollectorRegistry, host: str, port: int, probes: Probes
) -> AsyncGenerator[None]:
    """Serve the registry over HTTP from a thread of its own, during the block. Port 0: not at all.

    The same address answers `probes`.

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
    application = server.get_app()
    assert application is not None
    server.set_app(probes.around(application))
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(server.shutdown)
        server.server_close()
        thread.join()
