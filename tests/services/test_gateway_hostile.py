"""Clients that mean harm, or are broken: each is bounded, and nobody else notices."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import anyio
import pytest
from anyio.abc import SocketStream

from services.gateway import server
from tests.services.gateway_double import text
from tests.services.test_gateway_server import (
    POST,
    REQUEST,
    SETTINGS,
    Running,
    answer_of,
    everything,
    running,
    until,
)

pytestmark = pytest.mark.anyio

LIVE = b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n"


@asynccontextmanager
async def harmless(r: Running) -> AsyncIterator[None]:
    """Another client is served before and after the block."""
    async with await r.connect() as other:
        await other.send(LIVE)
        await until(other, b'"live"}')
        yield
        await other.send(LIVE)
        await until(other, b'"live"}')


async def trickle(stream: SocketStream, data: bytes) -> None:
    """One byte at a time, until the other side has had enough."""
    try:
        for byte in data:
            await stream.send(bytes([byte]))
            await anyio.sleep(0.005)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass


async def test_a_hundred_thousand_headers_are_refused_long_before_they_are_read() -> None:
    async with running() as r, harmless(r), await r.connect() as stream:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood, stream, POST + b"a: b\r\n" * 100_000)
            status, _, body = answer_of(await everything(stream))
            tasks.cancel_scope.cancel()
        assert (status, b"request_head_too_large" in body) == (431, True)
        assert r.peers.prepared == []


async def flood(stream: SocketStream, data: bytes) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await stream.send(data)


async def test_a_head_that_comes_byte_by_byte_has_no_more_time_than_another() -> None:
    settings = replace(SETTINGS, header_timeout_s=0.3)
    async with running(settings) as r, harmless(r), await r.connect() as stream:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trickle, stream, POST + b"x: " + b"y" * 1_000_000)
            status, _, _ = answer_of(await everything(stream))
            tasks.cancel_scope.cancel()
        assert status == 408


async def test_a_body_that_comes_byte_by_byte_has_no_more_time_than_another() -> None:
    settings = replace(SETTINGS, body_timeout_s=0.3)
    async with running(settings) as r, harmless(r), await r.connect() as stream:
        await stream.send(POST + b"content-length: 1000000\r\n\r\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trickle, stream, b"1" * 1_000_000)
            data = await until(stream, b"request_timeout")
            tasks.cancel_scope.cancel()
        assert answer_of(data)[0] == 408
        assert r.peers.prepared == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, gzip"])
async def test_a_compressed_body_is_refused_unread(encoding: str) -> None:
    async with running() as r, await r.connect() as stream:
        head = f"content-encoding: {encoding}\r\ncontent-length: 1000000\r\n\r\n"
        await stream.send(POST + head.encode())
        assert answer_of(await until(stream, b"unsupported_content_encoding"))[0] == 415
        assert r.peers.prepared == []


async def test_pipelined_requests_are_answered_in_order_and_read_one_at_a_time() -> None:
    async with running() as r, harmless(r), await r.connect() as stream:
        await stream.send(REQUEST + LIVE * 200)
        rid = await r.peers.request()
        assert len(r.peers.prepared) == 1
        await r.peers.finish(rid, *text("first"))
        data = await until(stream, b"[DONE]")
        assert b'"live"' not in data
        while data.count(b'"live"}') < 200:
            data += await stream.receive()


async def test_pipelined_generations_wait_for_the_one_that_is_read() -> None:
    async with running() as r, harmless(r), await r.connect() as stream:
        await stream.send(REQUEST * 50)
        rid = await r.peers.request()
        await r.peers.say(rid, *text("a"))
        await until(stream, b'"a"')
        assert len(r.peers.prepared) == 1
        await stream.aclose()
        assert (await r.peers.cancelled()).request_id == rid


async def test_a_chunked_body_of_tiny_chunks_is_bounded_like_another() -> None:
    settings = replace(SETTINGS, max_body_bytes=100)
    async with running(settings) as r, harmless(r), await r.connect() as stream:
        await stream.send(POST + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 200)
        assert answer_of(await until(stream, b"request_too_large"))[0] == 413


class Accepted(asyncio.Transport):
    """A transport over a socket, for its options."""

    def __init__(self, accepted: socket.socket) -> None:
        super().__init__({"socket": accepted})


def test_the_kernel_gives_up_clients_that_vanish() -> None:
    with socket.create_server(("127.0.0.1", 0)) as accepted:
        server.notice_absence(Accepted(accepted), 8.0)
        options = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
        found = [accepted.getsockopt(socket.IPPROTO_TCP, option) for option in options]
        assert found == [8000, 2, 2]
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
