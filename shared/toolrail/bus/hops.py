"""What both implementations of the bus share: spans of hops, owned tasks, subject matching."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

from opentelemetry.trace import Span

from toolrail.bus import subjects
from toolrail.bus.port import RequestHandler
from toolrail.telemetry import Telemetry, semconv

log: Final = logging.getLogger("toolrail.bus")


def send_span(
    telemetry: Telemetry, destination: str, size: int, message_id: str = ""
) -> AbstractContextManager[Span]:
    """The sender's span of one hop; its context goes into the message's headers."""
    if not telemetry.enabled:
        return telemetry.span("")
    kind = subjects.kind(destination)
    attributes: dict[str, str | int] = {
        semconv.MESSAGING_SYSTEM: semconv.MESSAGING_SYSTEM_NATS,
        semconv.MESSAGING_OPERATION_NAME: "send",
        semconv.MESSAGING_OPERATION_TYPE: "send",
        semconv.MESSAGING_DESTINATION_NAME: destination,
        semconv.MESSAGING_DESTINATION_TEMPLATE: kind,
        semconv.MESSAGING_MESSAGE_BODY_SIZE: size,
    }
    if message_id:
        attributes[semconv.MESSAGING_MESSAGE_ID] = message_id
    return telemetry.span(f"send {kind}", kind="producer", attributes=attributes)


@dataclass(frozen=True, slots=True)
class Server:
    """A handler of requests with what its spans and logs need."""

    telemetry: Telemetry
    subject: str
    queue: str
    handler: RequestHandler

    async def answer(
        self, payload: bytes, headers: Mapping[str, str] | None, *, asked: bool = True
    ) -> bytes | None:
        """The handler's answer, made inside the caller's trace; None when the handler has a bug.

        The one place where a request's bug is caught: it is logged without the payload, and the
        caller meets its deadline. What nobody waits for (`asked` is false) gets no span: it is sent
        by callbacks, outside of any trace.
        """
        with self.telemetry.attached(headers):
            try:
                with self._span(len(payload)) if asked else nullcontext():
                    return await self.handler(payload)
            except Exception:
                log.exception("request handler failed", extra={"subject": self.subject})
                return None

    def _span(self, size: int) -> AbstractContextManager[Span]:
        if not self.telemetry.enabled:
            return self.telemetry.span("")
        kind = subjects.kind(self.subject)
        attributes = {
            semconv.MESSAGING_SYSTEM: semconv.MESSAGING_SYSTEM_NATS,
            semconv.MESSAGING_OPERATION_NAME: "process",
            semconv.MESSAGING_OPERATION_TYPE: "process",
            semconv.MESSAGING_DESTINATION_NAME: self.subject,
            semconv.MESSAGING_DESTINATION_TEMPLATE: kind,
            semconv.MESSAGING_CONSUMER_GROUP_NAME: self.queue,
            semconv.MESSAGING_MESSAGE_BODY_SIZE: size,
        }
        return self.telemetry.span(f"process {kind}", kind="consumer", attributes=attributes)


class Tasks:
    """Tasks that a bus owns: they end with it.

    Not an anyio task group: a bus is opened and closed by calls, not by a block, and its callers'
    cancel scopes must not reach its tasks.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run `work`; a failure is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, timeout_s: float) -> None:
        """Wait for all, at most `timeout_s`, then cancel the rest."""
        if self._running and timeout_s > 0:
            await asyncio.wait(self._running, timeout=timeout_s)
        rest = list(self._running)
        self.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def wait_one(self, timeout_s: float) -> None:
        """Wait until one has ended, at most `timeout_s`."""
        if self._running:
            await asyncio.wait(
                self._running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )

    def cancel(self) -> None:
        """Cancel all, without waiting."""
        for task in self._running:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task of the bus failed", exc_info=error)


def matches(pattern: str, subject: str) -> bool:
    """Whether `subject` falls under `pattern` (`*`: one token, `>`: the rest, at least one)."""
    wanted = pattern.split(".")
    given = subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(given) > index
        if index >= len(given) or (token != "*" and token != given[index]):
            return False
    return len(given) == len(wanted)
