"""Documents: of any size, kept for a time of their own, the oldest given up where room is short."""

from __future__ import annotations

import secrets

import anyio
import pytest

from tests.bus.conftest import Connect, Limits
from toolrail.bus.port import Bus

pytestmark = pytest.mark.anyio

LONG_S = 600.0
DEADLINE_S = 60.0


async def absent(bus: Bus, key: str) -> bool:
    try:
        await bus.documents.get(key)
    except KeyError:
        return True
    return False


async def test_what_one_connection_puts_another_gets(connect: Connect) -> None:
    writer, reader = await connect(), await connect()
    assert await absent(reader, "a")
    await writer.documents.put("a", b"1", ttl_s=LONG_S)
    assert await reader.documents.get("a") == b"1"
    await writer.documents.put("a", b"2", ttl_s=LONG_S)
    assert await reader.documents.get("a") == b"2"
    await reader.documents.delete("a")
    await reader.documents.delete("a")
    assert await absent(writer, "a")


async def test_a_document_of_many_messages_is_replaced_whole(connect: Connect) -> None:
    bus = await connect()
    first, second = secrets.token_bytes(1_300_000), secrets.token_bytes(1_100_000)
    await bus.documents.put("a", first, ttl_s=LONG_S)
    assert await bus.documents.get("a") == first
    await bus.documents.put("a", second, ttl_s=LONG_S)
    assert await bus.documents.get("a") == second
    await bus.documents.put("a", b"", ttl_s=LONG_S)
    assert await bus.documents.get("a") == b""
    await bus.documents.put("b", first, ttl_s=LONG_S)
    await bus.documents.delete("b")
    assert await absent(bus, "b")


async def test_each_has_its_own_time(connect: Connect) -> None:
    bus = await connect()
    await bus.documents.put("short", b"1", ttl_s=0.05)
    await bus.documents.put("long", b"2", ttl_s=LONG_S)
    with anyio.fail_after(DEADLINE_S):
        while not await absent(bus, "short"):  # noqa: ASYNC110 (nobody is told of it)
            await anyio.sleep(0.05)
    assert await bus.documents.get("long") == b"2"


@pytest.mark.parametrize("limits", [Limits(max_document_bytes=1 << 20)])
async def test_the_oldest_go_when_there_is_no_room(connect: Connect) -> None:
    bus = await connect()
    for number in range(5):
        await bus.documents.put(f"k{number}", bytes(300_000), ttl_s=LONG_S)
    assert await absent(bus, "k0")
    assert await bus.documents.get("k4") == bytes(300_000)
    big = await connect()
    await big.documents.put("cut", secrets.token_bytes(900_000), ttl_s=LONG_S)
    await big.documents.put("last", bytes(300_000), ttl_s=LONG_S)
    assert await absent(big, "cut")
