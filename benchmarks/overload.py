"""What ten times too many clients do to the streams that were accepted.

Real processes, a real NATS server, the scripted engine at 20 ms a step with 16 slots, and a work
queue for twice as many. First as many clients as there are slots, then ten times as many, each of
which comes again when it was refused, after the time it was told. Printed: time between tokens of
accepted streams in both, and their ratio; what was refused, and that nothing accepted was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import uvloop

from benchmarks.load import request_for
from benchmarks.pipeline import STEP_MS, TEXT
from benchmarks.processes import ROOT
from benchmarks.variants import frames

SLOTS: Final = 16
TIMES: Final = 10
SECONDS: Final = 20.0
MAX_TOKENS: Final = 64
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3})")
_RETRY: Final = re.compile(rb"retry-after: (\d+)", re.IGNORECASE)
_CHUNKED_END: Final = b"0\r\n\r\n"
_GRACE_S: Final = 60.0


class Client(asyncio.Protocol):
    """One connection: request after request, each to its end, whatever that is."""

    def __init__(self, request: bytes) -> None:
        self.gaps_s: list[float] = []
        self.first_byte_s: list[float] = []
        self.whole = self.refused = self.broken = self.tokens = 0
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[float] | None = None
        self._data = b""
        self._sent = self._last = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to write."""
        self._transport = transport  # type: ignore[assignment]

    async def run(self) -> float:
        """One request; how long to wait before the next."""
        assert self._transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._data, self._last = b"", 0.0
        self._sent = time.perf_counter()
        self._transport.write(self._request)
        return await self._done

    def data_received(self, data: bytes) -> None:
        """Note when bytes came, and what ended the answer."""
        now = time.perf_counter()
        self._data += data
        status = _STATUS.match(self._data)
        if status is None or self._done is None or self._done.done():
            return
        if status[1] != b"200":
            self._refusal(int(status[1]))
            return
        if self._last:
            self.gaps_s.append(now - self._last)
        else:
            self.first_byte_s.append(now - self._sent)
        self._last = now
        if data.endswith(_CHUNKED_END):
            whole = b"data: [DONE]" in self._data and b'"error"' not in self._data
            self.whole += whole
            self.broken += not whole
            self._done.set_result(0.0)

    def _refusal(self, status: int) -> None:
        head, _, body = self._data.partition(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if self._done is None or size is None or len(body) < int(size[1]):
            return
        again = _RETRY.search(head)
        polite = status in (429, 503) and again is not None
        self.refused += polite
        self.broken += not polite
        self._done.set_result(float(again[1]) if again is not None else 1.0)

    def connection_lost(self, exc: Exception | None) -> None:
        """An answer that was cut."""
        if self._done is not None and not self._done.done():
            self.broken += 1
            self._done.set_exception(exc or ConnectionError("cut"))


async def load(url: str, clients: int, seconds: float) -> dict[str, Any]:
    """What `clients` saw in `seconds`; streams that run then are read to their end."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    request = await request_for(host, port, MAX_TOKENS)
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    opened: list[Client] = []

    async def user(position: int) -> None:
        await asyncio.sleep(position / clients)
        _, client = await loop.create_connection(lambda: Client(request), host, port)
        opened.append(client)
        while loop.time() < until:
            wait_s = await client.run()
            if wait_s:
                await asyncio.sleep(min(wait_s, max(0.0, until - loop.time())))

    await asyncio.wait_for(asyncio.gather(*map(user, range(clients))), seconds + _GRACE_S)
    gaps = sorted(gap for client in opened for gap in client.gaps_s) or [0.0]
    first = sorted(wait for client in opened for wait in client.first_byte_s) or [0.0]
    return {
        "whole": sum(client.whole for client in opened),
        "refused": sum(client.refused for client in opened),
        "broken": sum(client.broken for client in opened),
        "gap_p50_ms": 1e3 * gaps[len(gaps) // 2],
        "gap_p99_ms": 1e3 * gaps[int(0.99 * len(gaps))],
        "first_p50_ms": 1e3 * first[len(first) // 2],
    }


def measured(url: str, clients: int, seconds: float) -> dict[str, Any]:
    """The same, by a process of its own."""
    flags = [url, "--clients", str(clients), "--seconds", str(seconds)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.overload", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=seconds + 2 * _GRACE_S,
        check=True,
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", help="load this instead, as one of the two clients")
    parser.add_argument("--clients", type=int, default=SLOTS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--json", type=Path, help="keep the numbers in this file")
    a = parser.parse_args()
    if a.url:
        print(json.dumps(uvloop.run(load(a.url, a.clients, a.seconds))))
        return
    with tempfile.TemporaryDirectory(prefix="toolrail-bench-") as folder:
        script = Path(folder) / "script.jsonl"
        script.write_text(json.dumps({"match": "", "text": TEXT}) + "\n", encoding="utf-8")
        # Bounds of the queue are every service's, so that none undoes what another set up.
        bounds = ["--max-queue-jobs", str(2 * SLOTS)]
        with frames(STEP_MS, str(script), SLOTS, bounds) as running:
            measured(running.base_url, SLOTS, 2.0)  # warm-up
            rows = {
                f"{times}x": measured(running.base_url, times * SLOTS, a.seconds)
                for times in (1, TIMES)
            }
    if a.json:
        a.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    names = list(next(iter(rows.values())))
    print(f"{'clients':10}" + "".join(f"{name:>14}" for name in names))
    for load_name, row in rows.items():
        print(f"{load_name:10}" + "".join(f"{row[name]:>14.1f}" for name in names))
    usual, over = rows["1x"], rows[f"{TIMES}x"]
    ratios = {name: over[name] / usual[name] for name in ("gap_p50_ms", "gap_p99_ms")}
    print("time between tokens, overloaded against not: " + json.dumps(ratios))


if __name__ == "__main__":
    main()
