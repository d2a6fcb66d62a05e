"""Answers that a lost connection may have taken with it are said again."""

from __future__ import annotations

from typing import Any, cast

import pytest
from nats.aio.client import Client

from toolrail.bus.connection import Connection
from toolrail.settings import CommonSettings
from toolrail.telemetry import Telemetry

pytestmark = pytest.mark.anyio


class Wire:
    """The part of nats-py's client that sends."""

    pending_data_size = 0
    is_connected = True

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []

    async def publish(self, subject: str, payload: bytes, **more: Any) -> None:
        assert not any(more.values())
        self.sent.append((subject, payload))


async def test_what_was_answered_just_before_is_answered_again() -> None:
    wire = Wire()
    connection = Connection(cast("Client", wire), CommonSettings(), Telemetry())
    await connection.answer("inbox.1", b"yes")
    await connection.send("post.a", b"a frame, of which its reader knows if it is lost")
    await connection.answer("inbox.2", b"x" * 1_000_000)  # too large to be kept
    del wire.sent[:]
    await connection.reconnected()
    assert wire.sent == [("inbox.1", b"yes")]


async def test_users_who_may_not_say_it_again_do_not_try() -> None:
    wire = Wire()
    settings = CommonSettings(nats_inbox_prefix="_INBOX_worker")
    connection = Connection(cast("Client", wire), settings, Telemetry())
    await connection.answer("inbox.1", b"yes")
    await connection.reconnected()
    assert wire.sent == [("inbox.1", b"yes")]


async def test_answers_are_kept_in_bounds() -> None:
    wire = Wire()
    connection = Connection(cast("Client", wire), CommonSettings(), Telemetry())
    for number in range(1000):
        await connection.answer(f"inbox.{number}", b"yes")
    del wire.sent[:]
    await connection.reconnected()
    assert [subject for subject, _ in wire.sent] == [f"inbox.{n}" for n in range(744, 1000)]
