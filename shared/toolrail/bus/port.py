"""The bus as its users see it: an interface with two implementations, NATS and in-memory.

Guarantees. `publish`: at most once, in order per subject and sender. `request`/`serve`: one server
of the queue group answers, or the caller learns why not before its deadline. `WorkQueue`: at least
once, an accepted item survives the death of everybody until it is acknowledged. `KeyValue`: last
value, watchers see every change including expiry. Trace context is carried in headers by the bus
itself: `request`, `serve`, `put` and `pull` inject and extract it; frames carry none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Protocol, TypeAlias

FrameHandler: TypeAlias = Callable[[bytes], None]
"""Called in order, inline, for every message: it must be quick and must not raise."""

RequestHandler: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""Answers one request. It runs as a task of its own, inside the caller's trace context."""

ChangeHandler: TypeAlias = Callable[[str, bytes | None], None]
"""A key's new value, or None when it was deleted or expired."""


class Subscription(Protocol):
    """An interest that can be withdrawn."""

    async def stop(self, *, drain_s: float = 0.0) -> None:
        """Take nothing new; wait up to `drain_s` for what was already received."""
        ...


class WorkItem(Protocol):
    """One delivery of a job; until `ack` it will be delivered again if its worker dies.

    It may also be delivered again while its worker lives, to that worker or another: when nothing
    is heard of it for the queue's wait (`in_progress` prevents that), and when a server crashes,
    which may even forget how often it was delivered. Who runs jobs knows those it holds by name.
    """

    @property
    def payload(self) -> bytes:
        """The job's bytes."""
        ...

    @property
    def deliveries(self) -> int:
        """How often it was delivered, this time included: 1 for the first."""
        ...

    @property
    def queued_s(self) -> float:
        """When the queue took it, in seconds since 1970 on the server's clock."""
        ...

    @property
    def trace_headers(self) -> dict[str, str]:
        """W3C trace context of the sender (`traceparent`, …), empty when there is none."""
        ...

    async def ack(self) -> None:
        """Done with it: never again. It leaves after everything that was published before it."""
        ...

    async def nak(self, delay_s: float = 0.0) -> None:
        """Give it back for another worker."""
        ...

    async def in_progress(self) -> None:
        """Still waiting to start it: restart the redelivery clock."""
        ...


class WorkPull(Protocol):
    """A standing pull on one model's queue, bounded by credit."""

    def grant(self, credit: int) -> None:
        """Allow `credit` further items to be delivered (free slots); callable from callbacks."""
        ...

    async def stop(self) -> None:
        """Withdraw the pull; undelivered items stay queued."""
        ...


class WorkQueue(Protocol):
    """The durable queue of jobs, one line per model."""

    async def put(
        self,
        model: str,
        payload: bytes,
        *,
        message_id: str,
        timeout_s: float,
        ttl_s: float | None = None,
    ) -> str:
        """Accept a job; a repeated `message_id` is accepted once. A receipt, for `withdraw`.

        After `ttl_s` (rounded up to whole seconds) it is gone, whether anybody took it or not.

        Raises:
            QueueFullError: the queue is at its bound.
            DeadlineError: no acknowledgement within `timeout_s`.
        """
        ...

    async def withdraw(self, receipt: str) -> None:
        """Remove the job of this receipt, if it is still there: nobody waits for it any more."""
        ...

    async def gone(self, model: str, receipts: Collection[str]) -> set[str]:
        """Those of the jobs of `model` that are certainly not in the queue any more.

        What has left it only now may be missing. Takes no longer for many. Raises FaultError.
        """
        ...

    async def bury(self, model: str, record: bytes) -> None:
        """Keep a record of a job that could not be run: the last ones, for a bounded time."""
        ...

    async def pull(self, model: str, handler: Callable[[WorkItem], None]) -> WorkPull:
        """Deliver jobs of `model` to `handler`, never more than the credit granted."""
        ...


class KeyValue(Protocol):
    """A bucket of small values whose keys expire unless renewed."""

    async def put(self, key: str, value: bytes) -> None:
        """Set or renew `key`; it expires `ttl_s` (of the bucket) later."""
        ...

    async def delete(self, key: str) -> None:
        """Remove `key`; watchers see None."""
        ...

    async def watch(self, handler: ChangeHandler) -> Subscription:
        """Tell `handler` all present keys before this returns, then every change."""
        ...


class ObjectStore(Protocol):
    """Immutable blobs by name: a name stands for the same data for ever."""

    async def put(self, name: str, data: bytes, *, ttl_s: float | None = None) -> None:
        """Store `data`; storing the same name again is a no-op. It expires after `ttl_s`, if given.

        A blob for one request has a `ttl_s`, so that it goes even if everybody who knew it died.
        """
        ...

    async def get(self, name: str) -> bytes:
        """The blob. Raises KeyError when there is none."""
        ...

    async def delete(self, name: str) -> None:
        """Remove it if it is there."""
        ...


class Documents(Protocol):
    """Values that are kept for a time of their own, whoever dies; the oldest go when it is full."""

    async def put(self, key: str, value: bytes, *, ttl_s: float) -> None:
        """Store `value`, or replace what was there; it expires `ttl_s` later. Of any size.

        Raises:
            FaultError: it may or may not be stored.
        """
        ...

    async def get(self, key: str) -> bytes:
        """The value. Raises KeyError when there is none."""
        ...

    async def delete(self, key: str) -> None:
        """Remove it if it is there."""
        ...


class AuditRecords(Protocol):
    """Records for others to read, kept for a bounded time and size; the oldest go first."""

    async def check(self) -> None:
        """Return when records can be kept at all. Raises FaultError: why they cannot."""
        ...

    async def append(self, record: bytes, *, record_id: str, timeout_s: float) -> None:
        """Keep `record`; one with the same id is kept once, if it is repeated soon.

        Raises:
            ValueError: it is larger than a message may be.
            FaultError: it may or may not be kept.
        """
        ...


@dataclass(frozen=True, slots=True)
class BusStats:
    """Counters of one connection since it was opened; `unsent`: messages that wait to leave now."""

    messages_out: int = 0
    messages_in: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    reconnects: int = 0
    dropped: int = 0
    unsent: int = 0


class Bus(Protocol):
    """One connection of one process."""

    @property
    def work(self) -> WorkQueue:
        """The queue of jobs."""
        ...

    @property
    def models(self) -> KeyValue:
        """Model cards."""
        ...

    @property
    def instances(self) -> KeyValue:
        """Live processes."""
        ...

    @property
    def blobs(self) -> ObjectStore:
        """Tokenizers, templates, large prompts."""
        ...

    @property
    def documents(self) -> Documents:
        """Responses that can be asked for later."""
        ...

    @property
    def audit(self) -> AuditRecords:
        """What gateways were asked and answered, where that is wanted."""
        ...

    @property
    def max_payload_bytes(self) -> int:
        """Largest payload a message may have; larger ones go through `blobs`."""
        ...

    def stats(self) -> BusStats:
        """Counters for metrics and benchmarks."""
        ...

    async def publish(self, subject: str, payload: bytes) -> None:
        """Send and forget, in order. Raises BusClosedError."""
        ...

    def publish_soon(self, subject: str, payload: bytes) -> None:
        """Like `publish`, from a callback: queued in order, bounded; a full queue drops and counts.

        Receivers notice a drop by the sequence numbers of the streams.
        """
        ...

    async def subscribe(self, subject: str, handler: FrameHandler) -> Subscription:
        """Deliver every message on `subject` (wildcards allowed) to `handler`, in order, inline."""
        ...

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """The answer of one server of `subject`.

        Raises:
            NoRespondersError: nobody serves it (noticed at once).
            DeadlineError: no answer within `timeout_s`.
            BusClosedError: the connection is gone.
        """
        ...

    async def serve(
        self, subject: str, queue: str, handler: RequestHandler, *, max_in_flight: int
    ) -> Subscription:
        """Answer requests as a member of `queue`; beyond `max_in_flight` they wait their turn.

        A handler that raises is a bug: it is logged and the caller meets its deadline.
        """
        ...

    async def close(self) -> None:
        """Flush and disconnect."""
        ...
