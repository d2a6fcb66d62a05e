"""The pipeline on one in-memory bus with several instances of a service, each of which may die.

The services' own `main` functions run; whoever is killed is cut off from the bus at once and
without a word, as a process that is killed is.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.lowlevel
import httpx
from anyio.abc import TaskGroup

from tests.pipeline import SERVICES
from toolrail.bus.memory import MemoryBroker
from toolrail.flags import load
from toolrail.service import Runtime, serving
from toolrail.settings import CommonSettings
from toolrail.telemetry import Telemetry

FAST: Final = ("--probe-s", "0.02", "--gone-s", "0.05", "--resend-s", "0.1")
START_S: Final = 240.0


@dataclass
class Node:
    """One instance."""

    service: str
    runtime: Runtime[CommonSettings]
    kill: Callable[[], None]
    ended: anyio.Event

    def count(self, series: str) -> float:
        """A series of its metrics, all labels together."""
        return sum(
            sample.value
            for metric in self.runtime.metrics.collect()
            for sample in metric.samples
            if sample.name == series
        )

    def stop(self) -> None:
        """What SIGTERM does."""
        self.runtime.stopping.set()


@dataclass
class Cluster:
    """What runs, and what was started."""

    tasks: TaskGroup
    broker: MemoryBroker
    base_url: str = ""
    telemetry: Callable[[str], Telemetry | None] = lambda _: None
    listener: socket.socket | None = None
    nodes: list[Node] = field(default_factory=list[Node])

    async def start(self, service: str, *flags: str) -> Node:
        """One more instance, serving."""
        names = {"instance": f"{service}-{len(self.nodes)}"}
        words = [*self._own(service), *flags, "--instance", names["instance"]]
        settings = load(SERVICES[service], words, {})
        return await self.tasks.start(self._run, service, settings)

    def _own(self, service: str) -> Sequence[str]:
        probing = FAST if service in ("gateway", "postprocessor") else FAST[:4]
        if service != "gateway":
            return probing
        assert self.listener is not None
        patience = ("--take-over-timeout-s", "240")  # a replacement may be slow to start
        return (*probing, *patience, "--listen-fd", str(self.listener.dup().detach()))

    async def _run(
        self,
        service: str,
        settings: CommonSettings,
        *,
        task_status: anyio.abc.TaskStatus[Node],
    ) -> None:
        telemetry = self.telemetry(service)
        bus = self.broker.connect(telemetry)
        main = importlib.import_module(f"services.{service}.main").main
        ended = anyio.Event()
        with anyio.CancelScope() as scope:
            async with serving(service, settings, bus, telemetry=telemetry) as runtime:

                def kill() -> None:
                    self.tasks.start_soon(bus.close)
                    scope.cancel()

                node = Node(service, runtime, kill, ended)
                self.nodes.append(node)
                task_status.started(node)
                await main(runtime)
        await bus.close()
        ended.set()

    def of(self, service: str) -> list[Node]:
        """Those of a service that run."""
        return [n for n in self.nodes if n.service == service and not n.ended.is_set()]

    async def owner(self) -> Node:
        """The postprocessor that has an open stream, once there is one."""
        found: list[Node] = []

        def owns() -> bool:
            found[:] = [
                node
                for node in self.of("postprocessor")
                if node.count("toolrail_postprocessor_open_streams")
            ]
            return bool(found)

        await until(owns)
        return found[0]

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.base_url, timeout=240, trust_env=False)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(START_S):
        while not condition():  # noqa: ASYNC110 (nobody tells)
            await anyio.sleep(0.005)


@asynccontextmanager
async def cluster(
    *worker_flags: str,
    postprocessors: int = 2,
    preprocessors: int = 1,
    telemetry: Callable[[str], Telemetry | None] = lambda _: None,
) -> AsyncGenerator[Cluster]:
    """A cluster that serves; all of it is gone after the block.

    `telemetry`: that of an instance of a service.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    async with anyio.create_task_group() as tasks:
        made = Cluster(tasks, MemoryBroker(), listener=listener, telemetry=telemetry)
        made.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        await made.start("worker", "--engine", "scripted", *worker_flags)
        for _ in range(postprocessors):
            await made.start("postprocessor", "--drain-s", "1.0")
        for _ in range(preprocessors):
            await made.start("preprocessor")
        gateway = await made.start("gateway", "--drain-s", "1.0")
        directory = gateway.runtime.directory
        await until(lambda: len(directory.instances("postprocessor")) == postprocessors)
        await until(lambda: any(directory.servable(card.name) for card in directory.cards()))
        yield made
        for node in made.nodes:
            node.stop()
        for node in made.nodes:
            await node.ended.wait()
        listener.close()
