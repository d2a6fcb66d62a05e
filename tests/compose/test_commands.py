"""Our services as the compose file starts them, as processes: same commands, same environment.

Only what a container would give them is replaced: the addresses of other containers, and ports.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.processes import free_port
from tests.compose.files import OURS, stack
from tests.compose.processes import nats, process
from tests.e2e.tools import SCHEMAS, ask, tool

START_S = 600.0
"""A real engine, on a busy machine."""
POLL_S = 0.2

pytestmark = pytest.mark.engine


def answered(base_url: str, log: Path) -> dict[str, Any]:
    call = ask(tools=[tool("point", SCHEMAS["nested_object"])], tool_choice="required")
    deadline = time.monotonic() + START_S
    with httpx.Client(base_url=base_url, timeout=300) as client:
        while True:
            try:
                if client.get("/health").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-4000:]
            time.sleep(POLL_S)
        response = client.post("/v1/chat/completions", json=call | {"max_tokens": 200})
    assert response.status_code == 200, response.text
    return response.json()


def test_the_stack_of_the_file_answers(tmp_path: Path) -> None:
    services = stack()["services"]
    gateway_port = free_port()
    with ExitStack() as running:
        url = running.enter_context(nats(tmp_path / "nats"))
        started: dict[str, tuple[subprocess.Popen[bytes], int]] = {}
        for service in OURS:
            described = services[service]
            assert described["command"][0] == "python"
            metrics_port = free_port()
            environment = described["environment"] | {
                "TOOLRAIL_NATS_URL": url,
                "TOOLRAIL_OTLP_ENDPOINT": "",
                "TOOLRAIL_METRICS_PORT": str(metrics_port),
                "TOOLRAIL_METRICS_HOST": "127.0.0.1",
            }
            if service == "gateway":
                environment |= {"TOOLRAIL_HOST": "127.0.0.1", "TOOLRAIL_PORT": str(gateway_port)}
            log = tmp_path / f"{service}.log"
            one = process(described["command"][1:], environment, log)
            started[service] = (running.enter_context(one), metrics_port)
        answer = answered(f"http://127.0.0.1:{gateway_port}", tmp_path / "worker.log")
        (choice,) = answer["choices"]
        assert choice["finish_reason"] in ("tool_calls", "length")
        for service, (one, metrics_port) in started.items():
            assert one.poll() is None, f"{service} ended"
            text = httpx.get(f"http://127.0.0.1:{metrics_port}/metrics", timeout=30).text
            assert "toolrail_bus_messages_total" in text
    assert {service: one.returncode for service, (one, _) in started.items()} == dict.fromkeys(
        OURS, 0
    )
