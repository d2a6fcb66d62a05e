"""Documents of the in-memory bus."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable


class Shelf:
    """Documents by key, bounded: the oldest go when it is full."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: OrderedDict[str, tuple[bytes, asyncio.TimerHandle]] = OrderedDict()
        self._size = 0

    def put(self, key: str, value: bytes, ttl_s: float) -> None:
        """Store or replace."""
        self.delete(key)
        timer = asyncio.get_running_loop().call_later(ttl_s, self.delete, key)
        self._values[key] = value, timer
        self._size += len(value)
        while self._size > self._max_bytes:
            self.delete(next(iter(self._values)))

    def get(self, key: str) -> bytes:
        """The document. Raises KeyError when there is none."""
        return self._values[key][0]

    def delete(self, key: str) -> None:
        """Remove it if it is there."""
        value, timer = self._values.pop(key, (b"", None))
        self._size -= len(value)
        if timer is not None:
            timer.cancel()


class MemoryDocuments:
    """One connection's view of the shelf."""

    def __init__(self, shelf: Shelf, check: Callable[[int], None]) -> None:
        self._shelf = shelf
        self._check = check

    async def put(self, key: str, value: bytes, *, ttl_s: float) -> None:
        """Store or replace the document; it goes by itself after `ttl_s`."""
        self._check(0)
        self._shelf.put(key, value, ttl_s)

    async def get(self, key: str) -> bytes:
        """The document. Raises KeyError when there is none."""
        self._check(0)
        return self._shelf.get(key)

    async def delete(self, key: str) -> None:
        """Remove the document if it is there."""
        self._check(0)
        self._shelf.delete(key)
