"""Documents on JetStream: a stream with one message a key, read directly from any server.

A document that fits a message is one. A longer one is cut: its parts go first, under a name of
their own, then the message of the key says where they are. So a reader sees the old document or
the new one whole; parts whose key went elsewhere age out, as everything here does.

A key may begin with a group, `group.key`: what a group has is bounded, see `nats_groups`.
"""

from __future__ import annotations

import asyncio
import math
import re
import secrets
from contextlib import suppress
from typing import Final, cast

from nats.js import api
from nats.js.errors import NotFoundError

from toolrail.bus import setup, subjects
from toolrail.bus.connection import API_TIMEOUT_S, FOREIGN, Connection, translated
from toolrail.bus.nats_groups import Groups
from toolrail.bus.nats_state import StreamState, state_of

_KEY: Final = re.compile(r"(?:[A-Za-z0-9_-]{1,64}\.)?[A-Za-z0-9_-]{1,128}\Z")
_TTL: Final = "Nats-TTL"
_PARTS: Final = "Toolrail-Parts"
_PART_BYTES: Final = 512 << 10
_PARTS_AT_ONCE: Final = 8


class NatsDocuments:
    """One connection's door to the documents."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._groups = Groups(connection)

    async def put(self, key: str, value: bytes, *, ttl_s: float) -> None:
        """Store or replace the document; it goes by itself after `ttl_s`."""
        subject = _subject(key)
        headers = {_TTL: f"{max(1, math.ceil(ttl_s))}s"}
        try:
            if len(value) <= _PART_BYTES:
                await self._publish(subject, value, headers)
                return
            place = secrets.token_hex(8)
            starts = range(0, len(value), _PART_BYTES)
            for number, at in enumerate(starts):
                part = value[at : at + _PART_BYTES]
                await self._publish(f"{subject}.{place}.{number}", part, headers)
            await self._publish(subject, b"", {**headers, _PARTS: f"{place} {len(starts)}"})
        except FOREIGN as error:
            raise translated(error, "documents") from error
        finally:
            group, dot, _ = key.partition(".")
            if dot:
                self._groups.put(group, len(value))

    async def get(self, key: str) -> bytes:
        """The document. Raises KeyError when there is none."""
        subject = _subject(key)
        try:
            async with asyncio.timeout(API_TIMEOUT_S):
                head = await self._last(subject)
                if head is None:
                    raise KeyError(key)
                headers = cast("dict[str, str]", head.headers or {})  # pyright: ignore[reportUnknownMemberType] (left open)
                place = headers.get(_PARTS)
                if place is None:
                    return head.data or b""
                return await self._joined(key, subject, place)
        except FOREIGN as error:
            raise translated(error, "documents") from error

    async def delete(self, key: str) -> None:
        """Remove the document if it is there."""
        subject = _subject(key)
        jetstream = self._connection.jetstream
        try:
            for gone in (subject, f"{subject}.>"):
                with suppress(NotFoundError):
                    await jetstream.purge_stream(subjects.DOCUMENTS_STREAM, subject=gone)
        except FOREIGN as error:
            raise translated(error, "documents") from error

    async def state(self, *, timeout_s: float) -> StreamState | None:
        """Where they are kept, as it is; None: nowhere. Raises FaultError."""
        return await state_of(self._connection, subjects.DOCUMENTS_STREAM, timeout_s=timeout_s)

    async def _publish(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        await setup.publish(
            self._connection, subject, payload, headers=headers, timeout_s=API_TIMEOUT_S
        )

    async def _joined(self, key: str, subject: str, place: str) -> bytes:
        name, _, count = place.partition(" ")
        turns = asyncio.Semaphore(_PARTS_AT_ONCE)

        async def part(number: int) -> bytes:
            async with turns:
                found = await self._last(f"{subject}.{name}.{number}")
            if found is None:  # the oldest go first where the stream is full
                raise KeyError(key)
            return found.data or b""

        return b"".join(await asyncio.gather(*map(part, range(int(count)))))

    async def _last(self, subject: str) -> api.RawStreamMsg | None:
        """The last message of a subject. That there is none only the leader may say."""
        for direct in (True, False):
            with suppress(NotFoundError):
                return await self._connection.jetstream.get_last_msg(
                    subjects.DOCUMENTS_STREAM, subject, direct=direct
                )
        return None


def _subject(key: str) -> str:
    if not _KEY.match(key):
        raise ValueError(f"not a key of a document: {key[:40]!r}")
    return f"{subjects.DOCUMENTS}.{key}"
