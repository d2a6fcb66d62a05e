"""The queue between requests and the sink: bounded, never waited for, and nothing lost unsaid.

A request that has ended puts its entry here and goes. One task turns entries into records, in a
thread, and has the sink keep them; while the sink cannot, it tries again, and what comes meanwhile
waits. Where there is no more room, records are dropped and counted; with `--audit-required`
requests are refused instead, before anything of them is read.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

import anyio
import anyio.to_thread

from services.gateway.answer import Outcome
from services.gateway.audit.entry import Budget, Entry, Transcript
from services.gateway.audit.metrics import AuditMeters
from services.gateway.audit.record import Caller, Client
from services.gateway.audit.sink import SinkError
from services.gateway.audit.sinks import Sink
from services.gateway.audit.writing import Line, Writer
from services.gateway.exchange import CLIENT_LEFT, Exchange
from toolrail.errors import FaultError
from toolrail.messages import Api
from toolrail.settings import GatewaySettings
from toolrail.telemetry import current_trace_id

log: Final = logging.getLogger(__name__)

_BATCH: Final = 64
_BATCH_BYTES: Final = 8 << 20
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_SAY_AGAIN_S: Final = 30.0
"""How often a log line tells of records that are dropped."""


class AuditUnavailableError(FaultError):
    """A record of this request could not be kept, and it may not be answered without."""

    code = "unavailable"
    retryable = True


class Auditor:
    """One process's records. `run` must run for them to be written."""

    def __init__(
        self,
        settings: GatewaySettings,
        sink: Sink | None,
        writer: Writer | None,
        meters: AuditMeters,
    ) -> None:
        """Without a sink it keeps nothing, and `open` returns None. See `setup.auditor_of`."""
        self._settings = settings
        self._sink = sink
        self._writer = writer
        self._meters = meters
        self._budget = Budget(settings.max_audit_held_bytes)
        self._queue: deque[Entry] = deque()
        self._open = 0
        self._writing = 0
        self._away = False
        self._said_at = float("-inf")
        self._news = anyio.Event()
        self._turn = anyio.Lock()
        meters.queued.set_function(self.__len__)

    def __len__(self) -> int:
        """Records that are not kept yet."""
        return len(self._queue) + self._writing

    @property
    def required(self) -> bool:
        """Whether no request may go without a record."""
        return self._settings.audit_required

    def open(self, exchange: Exchange, route: str) -> Entry | None:
        """The entry of a request that begins; None when no records are kept.

        Raises:
            AuditUnavailableError: there would be no room for it, and records are required.
        """
        if self._sink is None:
            return None
        full = self._open + len(self) >= self._settings.max_audit_queue
        if self.required and (self._away or full):
            self._meters.records.labels("refused").inc()
            text = "audit records cannot be kept at the moment, try again shortly"
            raise AuditUnavailableError(text)
        self._open += 1
        return Entry(
            budget=self._budget,
            request_id=exchange.request_id,
            method=exchange.method[:16],
            route=route,
            trace_id=current_trace_id(),
            client=self._client(exchange),
            transcript=self._transcript(),
        )

    def open_background(self, request_id: str, exchange: Exchange) -> Entry | None:
        """The entry of a response that is generated after its request was answered."""
        if exchange.audit is None:
            return None
        self._open += 1
        return Entry(
            kind="background",
            budget=self._budget,
            request_id=request_id,
            method=exchange.audit.method,
            route=exchange.audit.route,
            api=exchange.audit.api,
            trace_id=exchange.audit.trace_id,
            key=caller_of(exchange),
            client=exchange.audit.client,
            transcript=self._transcript(),
        )

    def take_body(self, exchange: Exchange, body: bytes, api: Api) -> bool:
        """Keep the body of a request, where one is kept; False: it may not be answered without."""
        entry = exchange.audit
        return entry is None or entry.take_body(body, api) or not self.required

    def end(self, exchange: Exchange, outcome: Outcome | None) -> None:
        """A request has ended, with that answer: have its record written. Does so once."""
        entry, exchange.audit = exchange.audit, None
        if entry is None:
            return
        entry.key = caller_of(exchange)
        entry.status = exchange.status or CLIENT_LEFT
        entry.outcome = outcome
        self._add(entry)

    def end_background(self, entry: Entry | None, outcome: Outcome) -> None:
        """A response without a client has ended: have its record written."""
        if entry is None:
            return
        entry.outcome = outcome
        self._add(entry)

    def _add(self, entry: Entry) -> None:
        """Have it written. O(1); where there is no room it is dropped."""
        entry.took_s = time.perf_counter() - entry.began_s
        self._open -= 1
        if len(self) >= self._settings.max_audit_queue and not self.required:
            entry.release()
            self._lost(1, "dropped", "the queue is full")
            return
        self._queue.append(entry)
        self._news.set()

    async def start(self) -> None:
        """Make the sink ready. Raises ConfigError."""
        if self._sink is not None:
            await self._sink.open()

    async def run(self) -> None:
        """Write what comes. Until cancelled."""
        while self._sink is not None:
            while not self._queue:
                self._news = anyio.Event()
                await self._news.wait()
            await self._write_next()

    async def finish(self, timeout_s: float) -> None:
        """Wait until everything is kept, at most that long; the rest is lost, and counted."""
        with anyio.move_on_after(timeout_s, shield=True):
            while len(self):
                await self._write_next()
        if left := len(self):  # with those that the sink has and has not said that it keeps
            self._lost(left, "failed", "the process ends")
            self._queue.clear()

    async def close(self) -> None:
        """Let go of the sink; `run` has ended."""
        if self._sink is not None:
            await self._sink.close()

    def _transcript(self) -> Transcript | None:
        if self._settings.audit_content == "none":
            return None
        return Transcript(self._budget, self._settings.max_audit_content_bytes)

    def _client(self, exchange: Exchange) -> Client | None:
        if not self._settings.audit_client_address:
            return None
        forwarded = exchange.header(b"x-forwarded-for")
        return Client(exchange.client_address, forwarded and forwarded[:256])

    def _batch(self) -> list[Entry]:
        batch: list[Entry] = []
        size = 0
        while self._queue and len(batch) < _BATCH and size < _BATCH_BYTES:
            batch.append(self._queue.popleft())
            size += batch[-1].held
        return batch

    async def _write_next(self) -> None:
        """Write some of what waits. When cancelled, it waits again."""
        if self._sink is None or self._writer is None:
            return
        async with self._turn:
            batch = self._batch()
            self._writing = len(batch)
            try:
                await self._write(self._sink, self._writer, batch)
            except anyio.get_cancelled_exc_class():
                self._queue.extendleft(reversed(batch))
                raise
            finally:
                self._writing = 0
        for entry in batch:
            entry.release()

    async def _write(self, sink: Sink, writer: Writer, batch: Sequence[Entry]) -> None:
        lines = await anyio.to_thread.run_sync(self._lines, writer, batch)
        began, pause_s = anyio.current_time(), _FIRST_PAUSE_S
        while lines:
            try:
                with anyio.fail_after(2 * self._settings.audit_timeout_s):
                    await sink.write(lines)
            except (SinkError, TimeoutError) as error:
                self._turned(away=True, reason=str(error) or "the sink takes too long")
                waited_s = anyio.current_time() - began
                if not self.required and waited_s > self._settings.audit_retry_s:
                    self._lost(len(lines), "failed", "the sink did not take them")
                    return
                await anyio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                self._turned(away=False)
                self._meters.records.labels("written").inc(len(lines))
                self._meters.bytes.inc(sum(len(line.data) for line in lines))
                return

    def _lines(self, writer: Writer, batch: Sequence[Entry]) -> list[Line]:
        lines: list[Line] = []
        for entry in batch:
            try:
                lines.append(writer.line(entry))
            except Exception:  # the boundary: a bug costs one record, and the log has it
                extra = {"request_id": entry.request_id}
                log.exception("an audit record could not be written", extra=extra)
                self._meters.records.labels("failed").inc()
        return lines

    def _turned(self, *, away: bool, reason: str = "") -> None:
        """The sink is away, or there again: said when it changes."""
        if away and not self._away:
            log.error("audit records cannot be kept", extra={"reason": reason})
        elif self._away and not away:
            log.info("audit records are kept again")
        self._away = away
        self._meters.away.set(away)

    def _lost(self, count: int, outcome: str, reason: str) -> None:
        self._meters.records.labels(outcome).inc(count)
        now = anyio.current_time()
        if now - self._said_at >= _SAY_AGAIN_S:
            self._said_at = now
            log.warning("audit records are lost", extra={"reason": reason})


def caller_of(exchange: Exchange) -> Caller | None:
    """Whose request it is, as far as that is known."""
    key = exchange.key
    return None if key is None else Caller(key.id, key.name, exchange.owner)
