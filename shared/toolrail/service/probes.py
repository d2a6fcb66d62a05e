"""What an orchestrator asks a process, beside its metrics: is it alive, may it be relied on?

`/live` and `/ready` are answered by the thread that serves the metrics, so that a loop that hangs
is told of rather than waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication

import anyio

_TICK_S: Final = 0.5


class Probes:
    """The answers of one process.

    Args:
        ready: whether the process is registered and takes work; asked from another thread.
        stuck_s: silence of the event loop after which the process counts as dead.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        ready: Callable[[], bool],
        stuck_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ready = ready
        self._stuck_s = stuck_s
        self._clock = clock
        self._ticked = clock()

    async def tick(self) -> None:
        """Show that the event loop runs. Runs until cancelled."""
        while True:
            self._ticked = self._clock()
            await anyio.sleep(_TICK_S)

    def live(self) -> bool:
        """Whether the event loop has run lately."""
        return self._clock() - self._ticked < self._stuck_s

    def ready(self) -> bool:
        """Whether it has, and the process is registered and not stopping."""
        return self.live() and self._ready()

    def around(self, others: WSGIApplication) -> WSGIApplication:
        """An application that answers the probes, and leaves every other path to `others`."""
        paths = {"/live": self.live, "/ready": self.ready}

        def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
            probe = paths.get(environ["PATH_INFO"])
            if probe is None:
                return others(environ, start_response)
            holds = probe()
            start_response(
                "200 OK" if holds else "503 Service Unavailable",
                [("Content-Type", "text/plain"), ("Cache-Control", "no-store")],
            )
            return [b"yes\n" if holds else b"no\n"]

        return answer
