"""Buckets and blobs on JetStream, in the layouts that NATS's own tools read."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import math
import secrets
from contextlib import suppress
from typing import Any, Final, cast

from nats.aio.msg import Msg
from nats.js import api
from nats.js.errors import NotFoundError

from toolrail.bus import setup, subjects
from toolrail.bus.connection import API_TIMEOUT_S, FOREIGN, Connection, log, translated
from toolrail.bus.port import ChangeHandler, Subscription
from toolrail.bus.replay import HEARTBEAT_S, Replay
from toolrail.errors import FaultError

_OPERATION: Final = "KV-Operation"
_MARKER: Final = "Nats-Marker-Reason"
_TTL: Final = "Nats-TTL"
_KEEP_WATCH_S: Final = 60.0
_KEEP_READER_S: Final = 5.0
_RETRY_S: Final = 0.25
_CHUNK_BYTES: Final = 128 << 10
_READ_TIMEOUT_S: Final = 30.0


class NatsKeyValue:
    """One connection's door to a bucket."""

    def __init__(self, connection: Connection, bucket: str, ttl_s: float) -> None:
        self._connection = connection
        self._bucket = bucket
        self._ttl_s = ttl_s

    async def put(self, key: str, value: bytes) -> None:
        """Set or renew `key`."""
        await self._publish(key, value, {})

    async def delete(self, key: str) -> None:
        """Remove `key`; watchers see None."""
        await self._publish(key, b"", {_OPERATION: "DEL"})

    async def watch(self, handler: ChangeHandler) -> Subscription:
        """Tell `handler` all present keys before this returns, then every change."""
        watch = _Watch(self._connection, self._bucket, self._ttl_s, handler)
        try:
            async with asyncio.timeout(API_TIMEOUT_S):
                await watch.open()
        except FOREIGN as error:
            raise translated(error, f"bucket {self._bucket}") from error
        return watch

    async def _publish(self, key: str, value: bytes, headers: dict[str, str]) -> None:
        subject = f"{setup.KV_PREFIX}.{self._bucket}.{key}"
        try:
            await setup.publish(
                self._connection, subject, value, headers=headers, timeout_s=API_TIMEOUT_S
            )
        except FOREIGN as error:
            raise translated(error, f"bucket {self._bucket}") from error


class _Watch:
    """Follows a bucket; a `Subscription`.

    After a reconnect it reads the bucket anew. What expired while the server was away had no chance
    to be renewed, so for one more lifetime an expiry is told only if no renewal comes.
    """

    def __init__(
        self, connection: Connection, bucket: str, ttl_s: float, handler: ChangeHandler
    ) -> None:
        self._connection = connection
        self._bucket = bucket
        self._ttl_s = ttl_s
        self._handler = handler
        self._prefix = f"{setup.KV_PREFIX}.{bucket}."
        self._known: set[str] = set()
        self._present: set[str] = set()
        self._grace: dict[str, asyncio.TimerHandle] = {}
        self._grace_until = 0.0
        self._replay: Replay | None = None
        self._wake = asyncio.Event()
        self._stale = False
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Read what is there, and follow it until `stop`."""
        await self._read()
        self._connection.on_reconnect.append(self._mark_stale)
        self._keeper = self._connection.tasks.start(self._keep())

    async def stop(self, *, drain_s: float = 0.0) -> None:
        """Tell the handler nothing more."""
        del drain_s
        if self._keeper is None:
            return
        self._keeper.cancel()
        self._keeper = None
        self._connection.on_reconnect.remove(self._mark_stale)
        for timer in self._grace.values():
            timer.cancel()
        if self._replay is not None:
            await self._replay.close()

    def _mark_stale(self) -> None:
        self._stale = True
        self._wake.set()

    async def _keep(self) -> None:
        while True:
            self._wake.clear()
            if self._stale:
                try:
                    async with asyncio.timeout(API_TIMEOUT_S):
                        await self._read_again()
                except (*FOREIGN, FaultError) as error:
                    log.warning("bucket away", extra={"reason": type(error).__name__})
                    await asyncio.sleep(_RETRY_S)
                    continue
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._wake.wait()
            except TimeoutError:
                silent = self._replay is None or self._replay.silent_s > 2.5 * HEARTBEAT_S
                self._stale = self._stale or silent

    async def _read_again(self) -> None:
        self._grace_until = asyncio.get_running_loop().time() + self._ttl_s
        if self._replay is not None:
            await self._replay.close()
        self._present.clear()
        await self._read()
        for key in self._known - self._present:
            self._expire(key)

    async def _read(self) -> None:
        self._stale = False
        self._replay = Replay(self._connection, self._changed, self._mark_stale)
        arguments = (f"KV_{self._bucket}", f"{self._prefix}>", api.DeliverPolicy.LAST_PER_SUBJECT)
        try:
            await self._replay.open(*arguments, _KEEP_WATCH_S)
        except NotFoundError:  # the server came back without its state
            await setup.ensure(self._connection)
            await self._replay.open(*arguments, _KEEP_WATCH_S)
        try:
            await self._replay.caught_up()
        except BaseException:
            await self._replay.close()
            raise

    def _changed(self, message: Msg) -> None:
        key = message.subject.removeprefix(self._prefix)
        headers = message.headers or {}
        if _MARKER in headers:
            self._expire(key)
        elif _OPERATION in headers:
            self._tell(key, None)
        else:
            self._present.add(key)
            self._tell(key, message.data)

    def _expire(self, key: str) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._grace_until:
            if key not in self._grace:
                self._grace[key] = loop.call_at(self._grace_until, self._tell, key, None)
        else:
            self._tell(key, None)

    def _tell(self, key: str, value: bytes | None) -> None:
        if (timer := self._grace.pop(key, None)) is not None:
            timer.cancel()
        if value is not None:
            self._known.add(key)
        elif key in self._known:
            self._known.remove(key)
        else:  # the trace of a key that was gone before
            return
        self._handler(key, value)


class NatsObjectStore:
    """One connection's door to the blobs: chunks under a random id, found by a record."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stream = f"OBJ_{subjects.BLOBS_BUCKET}"
        self._prefix = f"{setup.BLOB_PREFIX}.{subjects.BLOBS_BUCKET}"

    async def put(self, name: str, data: bytes, *, ttl_s: float | None = None) -> None:
        """Store `data`; storing the same name again is a no-op."""
        try:
            if await self._record(name) is None:
                await self._store(name, data, ttl_s)
        except FOREIGN as error:
            raise translated(error, f"blob {name}") from error

    async def get(self, name: str) -> bytes:
        """The blob. Raises KeyError when there is none.

        Tried again for a while: a cluster that lost a server reads nothing until it has elected.
        """
        end = asyncio.get_running_loop().time() + _READ_TIMEOUT_S
        while True:
            try:
                return await self._get(name)
            except FOREIGN as error:
                if asyncio.get_running_loop().time() > end or self._connection.client.is_closed:
                    raise translated(error, f"blob {name}") from error
                await asyncio.sleep(_RETRY_S)

    async def _get(self, name: str) -> bytes:
        record = await self._record(name)
        if record is None:
            raise KeyError(name)
        data = await self._read(str(record["nuid"])) if record["size"] else b""
        if _digest(data) != record["digest"]:
            raise FaultError(f"blob {name} is damaged")
        return data

    async def delete(self, name: str) -> None:
        """Remove it if it is there."""
        try:
            if (record := await self._record(name)) is not None:
                jetstream = self._connection.jetstream
                await jetstream.purge_stream(self._stream, subject=self._record_subject(name))
                chunks = f"{self._prefix}.C.{record['nuid']}"
                await jetstream.purge_stream(self._stream, subject=chunks)
        except FOREIGN as error:
            raise translated(error, f"blob {name}") from error

    def _record_subject(self, name: str) -> str:
        return f"{self._prefix}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

    async def _record(self, name: str) -> dict[str, object] | None:
        """What is known of a blob; None: it is not there.

        Any server may say that it is there. That it is not only the leader may say: a copy may not
        have yet what was just put.
        """
        jetstream = self._connection.jetstream
        for direct in (True, False):
            with suppress(NotFoundError):
                found = await jetstream.get_last_msg(
                    self._stream, self._record_subject(name), direct=direct
                )
                record = cast("dict[str, object]", json.loads(found.data or b"{}"))
                return None if record.get("deleted") else record
        return None

    async def _store(self, name: str, data: bytes, ttl_s: float | None) -> None:
        headers = {} if ttl_s is None else {_TTL: f"{max(1, math.ceil(ttl_s))}s"}
        nuid = secrets.token_hex(11)
        starts = range(0, len(data), _CHUNK_BYTES)
        for at in starts:
            await self._publish(f"C.{nuid}", data[at : at + _CHUNK_BYTES], headers)
        record: dict[str, Any] = {
            "name": name,
            "bucket": subjects.BLOBS_BUCKET,
            "nuid": nuid,
            "size": len(data),
            "chunks": len(starts),
            "digest": _digest(data),
            "options": {"max_chunk_size": _CHUNK_BYTES},
        }
        place = self._record_subject(name).removeprefix(f"{self._prefix}.")
        rollup = {api.Header.ROLLUP.value: "sub"}
        await self._publish(place, json.dumps(record).encode(), headers | rollup)

    async def _publish(self, place: str, payload: bytes, headers: dict[str, str]) -> None:
        subject = f"{self._prefix}.{place}"
        await setup.publish(
            self._connection, subject, payload, headers=headers, timeout_s=API_TIMEOUT_S
        )

    async def _read(self, nuid: str) -> bytes:
        chunks: list[bytes] = []
        broken = asyncio.Event()
        replay = Replay(self._connection, lambda m: chunks.append(m.data), broken.set)
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                await replay.open(
                    self._stream, f"{self._prefix}.C.{nuid}", api.DeliverPolicy.ALL, _KEEP_READER_S
                )
                await replay.caught_up()
        finally:
            await replay.close()
        return b"".join(chunks)


def _digest(data: bytes) -> str:
    return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
