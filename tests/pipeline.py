"""The whole pipeline in this process: all four services on a `MemoryBus`, with a scripted engine.

The services' own `main` functions run, in a thread with a loop of its own, so that tests use
ordinary blocking clients over real HTTP on a free port.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
import httpx
from anyio.from_thread import start_blocking_portal
from prometheus_client import CollectorRegistry

from tests.published_answers import check_answer
from toolrail.bus.memory import MemoryBroker
from toolrail.directory import Directory
from toolrail.flags import load
from toolrail.service import serving
from toolrail.settings import (
    CommonSettings,
    GatewaySettings,
    PostprocessorSettings,
    PreprocessorSettings,
    WorkerSettings,
)

START_S: Final = 30.0

SERVICES: Final[dict[str, type[CommonSettings]]] = {
    "worker": WorkerSettings,
    "postprocessor": PostprocessorSettings,
    "preprocessor": PreprocessorSettings,
    "gateway": GatewaySettings,
}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A running pipeline.

    Attributes:
        metrics: what each service counts, by its name.
    """

    base_url: str
    metrics: Mapping[str, CollectorRegistry]

    def count(self, service: str, series: str) -> float:
        """A series of `service`, all labels together."""
        return sum(
            sample.value
            for metric in self.metrics[service].collect()
            for sample in metric.samples
            if sample.name == series
        )

    def client(self, **more: Any) -> httpx.Client:
        """A client that fails where an answer is not as published."""
        hooks = {"response": [check_answer]}
        return httpx.Client(base_url=self.base_url, timeout=60, event_hooks=hooks, **more)


@contextmanager
def running(*worker_flags: str, gateway: Sequence[str] = ()) -> Iterator[Pipeline]:
    """The pipeline, serving inside the block; `worker_flags` beside the scripted engine's.

    `gateway`: flags of the gateway.
    """
    flags = ("--engine", "scripted", *worker_flags)
    with (
        start_blocking_portal("asyncio", {"use_uvloop": True}) as portal,
        portal.wrap_async_context_manager(serve(*flags, gateway=gateway)) as pipeline,
    ):
        yield pipeline


@asynccontextmanager
async def serve(*worker_flags: str, gateway: Sequence[str] = ()) -> AsyncGenerator[Pipeline]:
    """The same for a test that has a loop already."""
    listener = socket.create_server(("127.0.0.1", 0))
    base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    flags = {
        "worker": worker_flags,
        "gateway": ("--listen-fd", str(listener.detach()), *gateway),
    }
    broker = MemoryBroker()
    stopping = anyio.Event()
    async with AsyncExitStack() as stack:
        runtimes = {}
        for service, settings_type in SERVICES.items():
            settings = load(settings_type, ["--drain-s", "5", *flags.get(service, ())], {})
            bus = broker.connect()
            stack.push_async_callback(bus.close)
            runtimes[service] = await stack.enter_async_context(
                serving(service, settings, bus, stopping=stopping)
            )
        mains = await stack.enter_async_context(anyio.create_task_group())
        for service, runtime in runtimes.items():
            mains.start_soon(importlib.import_module(f"services.{service}.main").main, runtime)
        with anyio.fail_after(START_S):
            await _until_servable(runtimes["gateway"].directory)
        yield Pipeline(base_url, {name: each.metrics for name, each in runtimes.items()})
        stopping.set()


async def _until_servable(directory: Directory) -> None:
    while not any(directory.servable(card.name) for card in directory.cards()):  # noqa: ASYNC110
        await anyio.sleep(0.01)  # the directory tells nobody of its changes
