"""Buckets and blobs of the in-memory bus."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from toolrail.bus.port import ChangeHandler, Subscription


@dataclass(slots=True, eq=False)
class _Watch:
    """One watcher's queue of changes, emptied in order by the event loop."""

    handler: ChangeHandler
    pending: deque[tuple[str, bytes | None]] = field(
        default_factory=deque[tuple[str, "bytes | None"]]
    )

    def offer(self, key: str, value: bytes | None) -> None:
        """Tell the handler in the next turn of the loop."""
        if not self.pending:
            asyncio.get_running_loop().call_soon(self.empty)
        self.pending.append((key, value))

    def empty(self) -> None:
        """Tell the handler what is pending."""
        while self.pending:
            self.handler(*self.pending.popleft())


class Bucket:
    """Values whose keys expire unless renewed, and who watches them."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._values: dict[str, bytes] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._watches: list[_Watch] = []

    def put(self, key: str, value: bytes) -> None:
        """Set or renew `key`."""
        self._stop_clock(key)
        self._values[key] = value
        loop = asyncio.get_running_loop()
        self._timers[key] = loop.call_later(self._ttl_s, self.delete, key)
        self._tell(key, value)

    def delete(self, key: str) -> None:
        """Remove `key`."""
        self._stop_clock(key)
        if self._values.pop(key, None) is not None:
            self._tell(key, None)

    def watch(self, handler: ChangeHandler) -> Callable[[], None]:
        """Tell `handler` what is there, then every change until the returned function is called."""
        for key, value in list(self._values.items()):
            handler(key, value)
        watch = _Watch(handler)
        self._watches.append(watch)

        def stop() -> None:
            watch.pending.clear()
            if watch in self._watches:
                self._watches.remove(watch)

        return stop

    def _stop_clock(self, key: str) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    def _tell(self, key: str, value: bytes | None) -> None:
        for watch in self._watches:
            watch.offer(key, value)


class MemoryKeyValue:
    """One connection's view of a bucket."""

    def __init__(
        self, bucket: Bucket, check: Callable[[int], None], on_close: list[Callable[[], None]]
    ) -> None:
        self._bucket = bucket
        self._check = check
        self._on_close = on_close

    async def put(self, key: str, value: bytes) -> None:
        """Set or renew `key`."""
        self._check(len(value))
        self._bucket.put(key, value)

    async def delete(self, key: str) -> None:
        """Remove `key`."""
        self._check(0)
        self._bucket.delete(key)

    async def watch(self, handler: ChangeHandler) -> Subscription:
        """Tell `handler` all present keys before this returns, then every change."""
        self._check(0)
        stop = self._bucket.watch(handler)
        self._on_close.append(stop)
        return _Watching(stop)


class _Watching:
    """A `Subscription`."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    async def stop(self, *, drain_s: float = 0.0) -> None:
        """Tell the handler nothing more."""
        del drain_s
        self._stop()


class MemoryObjectStore:
    """One connection's view of the blobs."""

    def __init__(self, blobs: dict[str, bytes], check: Callable[[int], None]) -> None:
        self._blobs = blobs
        self._check = check

    async def put(self, name: str, data: bytes, *, ttl_s: float | None = None) -> None:
        """Store `data`; storing the same name again is a no-op."""
        self._check(0)
        if name not in self._blobs:
            self._blobs[name] = data
            if ttl_s is not None:
                asyncio.get_running_loop().call_later(ttl_s, self._blobs.pop, name, None)

    async def get(self, name: str) -> bytes:
        """The blob. Raises KeyError when there is none."""
        self._check(0)
        return self._blobs[name]

    async def delete(self, name: str) -> None:
        """Remove it if it is there."""
        self._check(0)
        self._blobs.pop(name, None)
