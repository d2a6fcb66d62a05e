"""What a heavy user does to a light one, first come first served and in fair order.

Real processes, a real NATS server, the scripted engine at 20 ms a step with 16 slots, two API keys.
The light one has one client, that asks again when it is answered; the heavy one ten times as many
as there are slots, which come again after the time that they are told. Printed for both orders:
the light one's time to first token alone and beside the heavy one, and their ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import uvloop

from benchmarks.overload import SLOTS, TIMES, Client
from benchmarks.pipeline import STEP_MS, TEXT
from benchmarks.processes import free_port, python
from toolrail.api_keys import hash_of, new_key
from toolrail.bus.embedded import EmbeddedNats

SECONDS: Final = 15.0
MAX_TOKENS: Final = 16
ORDERS: Final = ("arrival", "fair")
_START_S: Final = 60.0
_GRACE_S: Final = 60.0


@contextmanager
def serving(folder: Path, order: str, keys: Path) -> Iterator[str]:
    """The product, with this order of the queue: its address."""
    script = folder / "script.jsonl"
    script.write_text(json.dumps({"match": "", "text": TEXT}) + "\n", encoding="utf-8")
    nats = EmbeddedNats()
    anyio.run(nats.start)
    port = free_port()
    common = ["--nats-url", nats.url, "--log-level", "WARNING"]
    engine = ["--engine", "scripted", "--script", str(script), "--slots", str(SLOTS)]
    commands = {
        "gateway": ["services.gateway", *common, "--port", str(port), "--api-keys-file", str(keys)],
        "preprocessor": ["services.preprocessor", *common],
        "postprocessor": ["services.postprocessor", *common, "--queue-order", order],
        "worker": ["services.worker", *common, *engine, "--scripted-step-ms", str(STEP_MS)],
    }
    try:
        with python(commands):
            url = f"http://127.0.0.1:{port}"
            _until_healthy(url)
            yield url
    finally:
        nats.remove()


def _until_healthy(url: str) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
                if json.load(answer).get("models"):
                    return
        except (OSError, ValueError):
            pass
        time.sleep(0.2)
    raise TimeoutError("it does not serve")


def request_of(key: str) -> bytes:
    """A whole HTTP request with that key."""
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": "Tell me about rails."}],
        "stream": True,
        "max_tokens": MAX_TOKENS,
    }
    text = json.dumps(body).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {key}\r\ncontent-length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


async def load(url: str, crowds: dict[str, tuple[str, int]], seconds: float) -> dict[str, Any]:
    """What each crowd (its key, how many) saw."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    seen: dict[str, list[Client]] = {name: [] for name in crowds}

    async def user(name: str, key: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        request = request_of(key)
        _, client = await loop.create_connection(lambda: Client(request), host, port)
        seen[name].append(client)
        while loop.time() < until:
            if wait_s := await client.run():
                await asyncio.sleep(min(wait_s, max(0.0, until - loop.time())))

    users = [
        user(name, key, number / count)
        for name, (key, count) in crowds.items()
        for number in range(count)
    ]
    await asyncio.wait_for(asyncio.gather(*users), seconds + _GRACE_S)
    row: dict[str, Any] = {}
    for name, clients in seen.items():
        waits = sorted(wait for client in clients for wait in client.first_byte_s) or [0.0]
        row |= {
            f"{name}_answers": sum(client.whole for client in clients),
            f"{name}_refused": sum(client.refused for client in clients),
            f"{name}_first_p50_ms": 1e3 * waits[len(waits) // 2],
            f"{name}_first_max_ms": 1e3 * waits[-1],
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--json", type=Path, help="keep the numbers in this file")
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="toolrail-bench-") as folder:
        made = {name: new_key() for name in ("light", "heavy")}
        keys = Path(folder) / "keys.json"
        records = [
            {"id": key_id, "name": name, "hash": hash_of(key)}
            for name, (key, key_id) in made.items()
        ]
        keys.write_text(json.dumps({"keys": records}), encoding="utf-8")
        light, heavy = ((made[name][0]) for name in ("light", "heavy"))
        for order in ORDERS:
            with serving(Path(folder), order, keys) as url:
                uvloop.run(load(url, {"light": (light, 1)}, 2.0))  # warm-up
                alone = uvloop.run(load(url, {"light": (light, 1)}, options.seconds / 3))
                crowds = {"light": (light, 1), "heavy": (heavy, TIMES * SLOTS)}
                beside = uvloop.run(load(url, crowds, options.seconds))
                ratio = beside["light_first_p50_ms"] / alone["light_first_p50_ms"]
                rows[order] = {"alone_p50_ms": alone["light_first_p50_ms"], **beside}
                rows[order]["ratio"] = ratio
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for name in rows[ORDERS[0]]:
        print(f"{name:22}" + "".join(f"{rows[order][name]:>12.1f}" for order in ORDERS))
    print(f"{'':22}" + "".join(f"{order:>12}" for order in ORDERS))


if __name__ == "__main__":
    main()
