"""Ways to wait: for what a handler collects, and for what nobody announces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class Received(Generic[T]):
    """Pass `add` as a handler, then `await wait(n)`."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self._more = anyio.Event()

    def add(self, item: T) -> None:
        self.items.append(item)
        self._more.set()

    async def wait(self, count: int, timeout_s: float = 10.0) -> list[T]:
        """All items, once there are at least `count`."""
        with anyio.fail_after(timeout_s):
            while len(self.items) < count:
                self._more = anyio.Event()
                await self._more.wait()
        return self.items


async def until(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    """Wait for what happens outside this process and tells nobody."""
    with anyio.fail_after(timeout_s):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.01)
