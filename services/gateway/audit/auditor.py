"""The queue between requests and the sink: bounded, never waited for, and nothing lost unsaid.

A request that has ended puts its entry here and goes. One task turns entries into records, in a
thread, and has the sink keep them; while the sink cannot, it tries again, and what comes meanwhile
waits. What the sink refuses for good keeps nobody waiting: it is offered without its content, and
then lost. Where there is no more room, records are dropped and counted; with `--audit-required`
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
from services.gateway.audit.sink import RefusedError, SinkError
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
"""How often a log line tells of records that are lost, or refused."""


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
        self._said_at: dict[str, float] = {}
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
        until_s = anyio.current_time() + self._settings.audit_retry_s
        for line in await self._offer(sink, lines, until_s):
            bare = line.bare()  # what is in it may be what the sink does not want
            if bare is None and not self.required:
                self._lost(1, "failed", "the sink refuses them")
            elif await self._offer(sink, [bare or line], until_s, last=True):
                self._lost(1, "failed", "the sink refuses them, also without their content")

    async def _offer(
        self, sink: Sink, lines: Sequence[Line], until_s: float, *, last: bool = False
    ) -> list[Line]:
        """Have the sink keep them, or lose them; those that it will never take, found by halves.

        `last`: there is nothing else to offer in their place.
        """
        if not lines:
            return []
        refused = await self._taken(sink, lines, until_s, last=last)
        if len(refused) <= 1:
            return list(refused)
        half = len(refused) // 2
        first = await self._offer(sink, refused[:half], until_s, last=last)
        return first + await self._offer(sink, refused[half:], until_s, last=last)

    async def _taken(
        self, sink: Sink, lines: Sequence[Line], until_s: float, *, last: bool
    ) -> Sequence[Line]:
        """Offer them until they are kept, or lost; of those that are refused, some are returned.

        What is required is never given up: a sink that refuses the last offer is away.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                with anyio.fail_after(2 * self._settings.audit_timeout_s):
                    await sink.write(lines)
            except RefusedError as error:
                if not (last and self.required):
                    self._refused(lines, error)
                    return error.lines
                reason = str(error)
            except (SinkError, TimeoutError) as error:
                reason = str(error) or "the sink takes too long"
            else:
                self._kept(len(lines), sum(len(line.data) for line in lines))
                return ()
            self._turned(away=True, reason=reason)
            if not self.required and anyio.current_time() > until_s:
                self._lost(len(lines), "failed", "the sink did not take them")
                return ()
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _refused(self, lines: Sequence[Line], error: RefusedError) -> None:
        self._say("audit records are refused", str(error))
        refused = {line.id for line in error.lines}
        size = sum(len(line.data) for line in lines if line.id not in refused)
        self._kept(len(lines) - len(refused) - error.lost, size)
        if error.lost:
            self._lost(error.lost, "failed", str(error))

    def _kept(self, count: int, size: int) -> None:
        if count:
            self._turned(away=False)
            self._meters.records.labels("written").inc(count)
            self._meters.bytes.inc(size)

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
        self._say("audit records are lost", reason)

    def _say(self, what: str, reason: str) -> None:
        """A log line, not one for every record."""
        now = anyio.current_time()
        if now - self._said_at.get(what, float("-inf")) >= _SAY_AGAIN_S:
            self._said_at[what] = now
            log.warning(what, extra={"reason": reason})


def caller_of(exchange: Exchange) -> Caller | None:
    """Whose request it is, as far as that is known."""
    key = exchange.key
    return None if key is None else Caller(key.id, key.name, exchange.owner)
