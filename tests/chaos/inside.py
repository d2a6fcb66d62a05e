"""What the processes of a stack hold, asked over the bus; and that none of it stays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import nats
import nats.errors
from nats.aio.client import Client
from prometheus_client.parser import text_string_to_metric_families

from tests.stack import Stack
from toolrail.bus import subjects
from toolrail.bus.nats import NatsBus
from toolrail.service.liveness import METRICS
from toolrail.settings import CommonSettings

OBSERVER: Final = "observer"
"""The name of our own connections."""

SETTLE_S: Final = 120.0
"""Registrations of the dead expire, restarted services come up; on a busy machine."""

HELD: Final = {
    "gateway": "toolrail_http_requests_in_flight",
    "postprocessor": "toolrail_postprocessor_open_streams",
    "worker": "toolrail_worker_running",
}


class Inside:
    """A connection of a test's own to the server of a stack."""

    def __init__(
        self, stack: Stack, client: Client, registered: Collection[str], *, may_keep: bool
    ) -> None:
        """`registered`: keys of the instances that are, kept up to date. `may_keep`: workers may
        keep what they have sent, since what tells them not to can be lost."""
        self._stack = stack
        self._may_keep = may_keep
        self._client = client
        self._registered = registered

    async def count(self, instance: str, series: str) -> float:
        """A series of one process, all labels together."""
        answer = await self._client.request(subjects.ping(instance), METRICS, timeout=10)
        return sum(
            sample.value
            for family in text_string_to_metric_families(answer.data.decode())
            for sample in family.samples
            if sample.name == series
        )

    async def total(self, service: str, series: str) -> float:
        """The same, of all processes of a service."""
        return sum([await self.count(one, series) for one in self.instances(service)])

    def instances(self, service: str) -> list[str]:
        """Those that the supervisor keeps running."""
        return [
            process["instance"]
            for process in self._stack.status["processes"]
            if process["service"] == service
        ]

    async def settled(self) -> None:
        """Wait until nothing is held any more, and nobody is known who is not there."""
        left: Any = None
        with anyio.move_on_after(SETTLE_S) as patience:
            while True:
                left = await self._left()
                if not left:
                    return
                await anyio.sleep(0.25)
        assert not patience.cancelled_caught, f"left behind: {left}\n{self._stack.tail()}"

    async def _left(self) -> dict[str, Any]:
        """What there is that should not be."""
        left: dict[str, Any] = {}
        try:
            for service, series in HELD.items():
                if held := await self.total(service, series):
                    left[series] = held
            if not self._may_keep and (
                kept := await self.total("worker", "toolrail_worker_kept_runs")
            ):
                left["kept runs"] = kept
            if queued := await self._queued():
                left["jobs"] = queued
            if strangers := self._strangers():
                left["registrations"] = strangers
        except nats.errors.Error as error:
            left["not up again"] = repr(error)
        return left

    async def _queued(self) -> int:
        info = await self._client.jetstream().stream_info(subjects.WORK_STREAM)
        return info.state.messages

    def _strangers(self) -> set[str]:
        """Registered instances that do not run, or the other way round."""
        known = {key.partition(".")[2] for key in self._registered}
        running = {one for service in (*HELD, "preprocessor") for one in self.instances(service)}
        return known ^ running


@asynccontextmanager
async def inside(stack: Stack, url: str = "", *, may_keep: bool = False) -> AsyncIterator[Inside]:
    """`url` where the stack is not to be seen by its own way to the server."""
    url = url or stack.status["nats_url"]
    registered: set[str] = set()

    def change(key: str, value: bytes | None) -> None:
        (registered.discard if value is None else registered.add)(key)

    bus = await NatsBus.connect(CommonSettings(nats_url=url, instance=OBSERVER))
    client = await nats.connect(url, name=OBSERVER)
    try:
        # Not the keys of nats-py: each look at them leaves a reader behind, for five minutes.
        await bus.instances.watch(change)
        yield Inside(stack, client, registered, may_keep=may_keep)
    finally:
        await client.close()
        await bus.close()
