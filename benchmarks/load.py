"""Streams chat completions and prints what came, as one JSON line. A process of its own.

Written on bare protocols: it shares the machine with what it measures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from typing import Final
from urllib.parse import urlsplit

import uvloop

_USAGE: Final = re.compile(rb'"completion_tokens":\s*(\d+)')
_END: Final = b"0\r\n\r\n"
_TAIL_BYTES: Final = 8192


class Stream(asyncio.Protocol):
    """One connection that runs one request after another."""

    def __init__(self, request: bytes) -> None:
        self.first_byte_s: list[float] = []
        self.gaps_s: list[float] = []
        self.tokens = 0
        self.chunks = 0
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[None] | None = None
        self._sent = 0.0
        self._last = 0.0
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to write."""
        self._transport = transport  # type: ignore[assignment]

    async def run(self) -> None:
        """One request, to the end of its stream."""
        assert self._transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._tail = b""
        self._last = 0.0
        self._sent = time.perf_counter()
        self._transport.write(self._request)
        await self._done

    def data_received(self, data: bytes) -> None:
        """Note when bytes came, and whether they end the stream."""
        now = time.perf_counter()
        if self._last:
            self.gaps_s.append(now - self._last)
        else:
            self.first_byte_s.append(now - self._sent)
        self._last = now
        self.chunks += data.count(b"data: ")
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
        if data.endswith(_END) and self._done is not None and not self._done.done():
            found = _USAGE.search(self._tail)
            if found is None or b"[DONE]" not in self._tail:
                self._done.set_exception(RuntimeError(f"not a whole stream: {self._tail!r}"))
                return
            self.tokens += int(found.group(1))
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that runs."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionError("cut"))


async def measure(
    url: str, streams: int, requests: int, max_tokens: int, ramp_s: float
) -> dict[str, float]:
    """What `streams` connections saw that made `requests` requests each, begun over `ramp_s`."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    request = await request_for(host, port, max_tokens)
    loop = asyncio.get_running_loop()
    opened: list[Stream] = []
    for _ in range(streams):
        _, stream = await loop.create_connection(lambda: Stream(request), host, port)
        opened.append(stream)

    async def user(position: int, stream: Stream) -> None:
        await asyncio.sleep(ramp_s * position / streams)
        for _ in range(requests):
            await stream.run()

    started = time.perf_counter()
    await asyncio.gather(*(user(position, stream) for position, stream in enumerate(opened)))
    wall_s = time.perf_counter() - started
    first = sorted(s for stream in opened for s in stream.first_byte_s)
    gaps = sorted(s for stream in opened for s in stream.gaps_s) or [0.0]
    return {
        "wall_s": wall_s,
        "requests": streams * requests,
        "tokens": sum(stream.tokens for stream in opened),
        "chunks": sum(stream.chunks for stream in opened),
        "ttft_p50_ms": 1e3 * first[len(first) // 2],
        "ttft_p99_ms": 1e3 * first[int(0.99 * len(first))],
        "gap_p99_ms": 1e3 * gaps[int(0.99 * len(gaps))],
    }


async def request_for(host: str, port: int, max_tokens: int) -> bytes:
    """A whole HTTP request for the first model that is served."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    models = json.loads(answer[answer.index(b"{") : answer.rindex(b"}") + 1])
    body = {
        "model": models["data"][0]["id"],
        "messages": [{"role": "user", "content": "Tell me about rails."}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": max_tokens,
    }
    text = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    for name in ("streams", "requests", "max-tokens"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--ramp-s", type=float, default=0.0)
    a = parser.parse_args()
    print(json.dumps(uvloop.run(measure(a.url, a.streams, a.requests, a.max_tokens, a.ramp_s))))
