"""The gateway of a background response is killed: whoever asks next is told that it failed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import anyio
import httpx
import pytest

from tests import stack

pytestmark = [pytest.mark.chaos, pytest.mark.anyio]

LATE_S = 90.0


async def test_a_killed_gateway_s_background_response_has_failed(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    row = {"match": "", "text": "word " * 5000, "chunk_tokens": 1, "delay_ms": 50}
    script.write_text(json.dumps(row) + "\n", encoding="utf-8")
    with stack.running(tmp_path, *stack.scripted("--script", str(script))) as running:
        async with httpx.AsyncClient(base_url=running.base_url, timeout=30) as client:
            body = {"model": "demo", "input": "x", "background": True}
            made = (await client.post("/v1/responses", json=body)).json()
            assert made["status"] == "queued"
            path = f"/v1/responses/{made['id']}"
            with anyio.fail_after(LATE_S):
                while (await client.get(path)).json()["status"] == "queued":  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            (gateway,) = running.pids("gateway")
            os.kill(gateway, signal.SIGKILL)
            with anyio.fail_after(LATE_S):
                # Also queued: what its gateway knew last may not have been kept before it died.
                while (found := await state(client, path)) in ("", "queued", "in_progress"):  # noqa: ASYNC110
                    await anyio.sleep(0.1)
            assert found == "failed"


async def state(client: httpx.AsyncClient, path: str) -> str:
    """The status of the response; empty while no gateway answers."""
    try:
        answer = await client.get(path)
    except httpx.TransportError:
        return ""
    return str(answer.json()["status"]) if answer.status_code == 200 else ""
