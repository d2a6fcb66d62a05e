"""Which peers are dead, noticed sooner than their registrations expire.

A bus knows at once when nobody listens on a subject any more, and every service listens on its own
`ping` subject while it lives. Nobody there for a while is death (a moment of it may be a peer that
connects anew); a peer that is there and slow is not. A process that hangs, or is cut off together
with its connection, is found by its registration instead, see `directory`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import Final

import anyio
from prometheus_client import CollectorRegistry, generate_latest

from toolrail.bus import subjects
from toolrail.bus.port import Bus, RequestHandler
from toolrail.directory import Directory
from toolrail.errors import FaultError, NoRespondersError
from toolrail.telemetry import Telemetry

_AT_ONCE: Final = 64
_AGAIN_S: Final = 0.05

UNTRACED: Final = {"traceparent": f"00-{'0' * 31}1-{'0' * 15}1-00"}
"""A trace that is not recorded: a span for each question would drown the others."""


class Liveness:
    """Asks the peers in which this process has an interest, and nobody else.

    Attributes:
        dead: those that are gone now.
        alive: those that answered last time, whatever became of their registrations.
    """

    def __init__(
        self,
        bus: Bus,
        peers: Callable[[], Collection[str]],
        *,
        probe_s: float,
        gone_s: float,
    ) -> None:
        """`peers` names the instances to ask; `probe_s` and `gone_s` are the settings."""
        self.dead: frozenset[str] = frozenset()
        self.alive: frozenset[str] = frozenset()
        self._bus = bus
        self._peers = peers
        self._probe_s = probe_s
        self._gone_s = gone_s
        self._gone_since: dict[str, float] = {}
        self._limit = anyio.CapacityLimiter(_AT_ONCE)

    async def watch(self, on_dead: Callable[[frozenset[str]], None]) -> None:
        """Ask again and again; call `on_dead` with all that are, while there are any. Never ends.

        The same peer is told of until it is none of `peers` any more.
        """
        while True:
            await self.probe()
            if self.dead:
                on_dead(self.dead)
            await anyio.sleep(self._probe_s)

    async def probe(self) -> None:
        """Ask all of them once, at the same time; takes about `probe_s` at most."""
        peers = set(self._peers())
        answered: set[str] = set()
        self._gone_since = {p: since for p, since in self._gone_since.items() if p in peers}
        with Telemetry().attached(UNTRACED):
            async with anyio.create_task_group() as tasks:
                for peer in peers:
                    tasks.start_soon(self._ask, peer, answered)
        self.alive = frozenset(answered)
        now = anyio.current_time()
        self.dead = frozenset(
            peer for peer, since in self._gone_since.items() if now - since >= self._gone_s
        )

    def gone_since(self, peer: str) -> float | None:
        """Since when nobody is there under this name, on the loop's clock; None: somebody is."""
        return self._gone_since.get(peer)

    async def _ask(self, peer: str, answered: set[str]) -> None:
        async with self._limit:
            try:
                await self._bus.request(subjects.ping(peer), b"", timeout_s=self._probe_s)
            except NoRespondersError:
                self._gone_since.setdefault(peer, anyio.current_time())
            except FaultError:
                # There and slow, or it is we who are cut off: no news.
                self._gone_since.pop(peer, None)
            else:
                answered.add(peer)
                self._gone_since.pop(peer, None)


class Asking:
    """Questions to whatever instance of a service takes them, cut short when it may have died.

    Which one took a question is not known: all that were asked before some instance died are cut
    short, so they must be such that they can be asked again. So are all when our own connection to
    the bus was lost and is back.
    """

    def __init__(
        self, bus: Bus, directory: Directory, service: str, *, probe_s: float, gone_s: float
    ) -> None:
        self._bus = bus
        self._probe_s = probe_s
        self._gone_s = gone_s
        self._directory = directory
        self._service = service
        self._asked: dict[anyio.CancelScope, float] = {}
        self._liveness = Liveness(bus, self._peers, probe_s=probe_s, gone_s=gone_s)

    @contextmanager
    def question(self) -> Generator[anyio.CancelScope]:
        """A question, for the block; see `scope.cancelled_caught` after it."""
        with anyio.CancelScope() as scope:
            self._asked[scope] = anyio.current_time()
            try:
                yield scope
            finally:
                del self._asked[scope]

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """The answer of whoever takes the question. Raises FaultError, as the bus does.

        Nobody there for a moment may be the only one that connects anew: while one is registered
        it is asked again, for as long as it takes to be counted as dead.
        """
        until = anyio.current_time() + min(timeout_s, self._gone_s)
        while True:
            try:
                return await self._bus.request(subject, payload, timeout_s=timeout_s)
            except NoRespondersError:
                known = self._directory.instances(self._service)
                if not known or anyio.current_time() >= until:
                    raise
            await anyio.sleep(_AGAIN_S)

    async def watch(self) -> None:
        """Look after the questions. Never ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._liveness.watch, self._died)
            tasks.start_soon(self._watch_connection)

    async def _watch_connection(self) -> None:
        """What was asked over a connection that was lost may not have been heard."""
        reconnects = self._bus.stats().reconnects
        while True:
            await anyio.sleep(self._probe_s)
            if (now := self._bus.stats().reconnects) != reconnects:
                reconnects = now
                for scope in list(self._asked):
                    scope.cancel()

    def _peers(self) -> list[str]:
        if not self._asked:
            return []
        return [known.instance for known in self._directory.instances(self._service)]

    def _died(self, dead: frozenset[str]) -> None:
        times = (self._liveness.gone_since(peer) for peer in dead)
        last_s = max((since_s for since_s in times if since_s is not None), default=0.0)
        for scope, asked_s in list(self._asked.items()):
            if asked_s <= last_s:
                scope.cancel()


METRICS: Final = b"metrics"
"""The ping that is answered with the process's metrics, as Prometheus text."""


def answerer(registry: CollectorRegistry) -> RequestHandler:
    """What answers pings: with nothing, or with the metrics in `registry`."""

    async def answer(payload: bytes) -> bytes:
        return generate_latest(registry) if payload == METRICS else b""

    return answer
