"""What an orchestrator is told: only a loop that runs is alive, only who is registered is ready."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from prometheus_client import CollectorRegistry

from benchmarks.processes import free_port
from toolrail.bus.memory import MemoryBroker
from toolrail.service import metrics
from toolrail.service.probes import Probes
from toolrail.service.runtime import serving
from toolrail.settings import PostprocessorSettings


def others(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [environ["PATH_INFO"].encode()]


def asked(probes: Probes, path: str) -> str:
    said: list[str] = []
    application = probes.around(others)
    assert b"".join(application({"PATH_INFO": path}, lambda status, _: said.append(status)))  # type: ignore[arg-type]
    return said[0][:3]


def test_a_process_is_live_while_its_loop_runs() -> None:
    now = 100.0
    probes = Probes(lambda: True, 30.0, lambda: now)
    assert asked(probes, "/live") == "200"
    now += 31
    assert [asked(probes, path) for path in ("/live", "/ready")] == ["503", "503"]


@pytest.mark.anyio
async def test_the_loop_itself_says_that_it_runs() -> None:
    now = 100.0
    probes = Probes(lambda: True, 30.0, lambda: now)
    now += 31
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probes.tick)
        while not probes.live():
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_process_is_ready_from_its_registration_until_it_stops() -> None:
    bus = MemoryBroker().connect()
    settings = PostprocessorSettings(instance="postprocessor-1")
    async with serving("postprocessor", settings, bus) as runtime:
        probes = Probes(lambda: runtime.ready, 30.0)
        assert (asked(probes, "/live"), asked(probes, "/ready")) == ("200", "503")
        await runtime.announce()
        assert asked(probes, "/ready") == "200"
        await runtime.withdraw()
        assert asked(probes, "/ready") == "503"
        await runtime.announce()
        runtime.stopping.set()
        assert (asked(probes, "/live"), asked(probes, "/ready")) == ("200", "503")


@pytest.mark.anyio
async def test_metrics_and_probes_share_an_address() -> None:
    registry, port = CollectorRegistry(), free_port()
    probes = Probes(lambda: False, 30.0)
    async with (
        metrics.exposed(registry, "127.0.0.1", port, probes),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        answers = {path: (await client.get(path)).status_code for path in ("/live", "/ready")}
        assert answers == {"/live": 200, "/ready": 503}
        assert (await client.get("/metrics")).status_code == 200
