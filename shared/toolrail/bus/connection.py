"""One connection to NATS, as the parts of `NatsBus` share it: sending, errors, reconnects.

nats-py reconnects by itself, for ever; what lives on the server for one connection only (pull
requests, push consumers) does not come back by itself, so its owners register in `on_reconnect`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol, cast

from nats import errors as nats_errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext, api
from nats.js import errors as js_errors

from toolrail.bus import hops
from toolrail.errors import (
    BusClosedError,
    DeadlineError,
    FaultError,
    NoRespondersError,
    QueueFullError,
    ToolrailError,
)
from toolrail.settings import CommonSettings
from toolrail.telemetry import Telemetry

log: Final = logging.getLogger("toolrail.bus")

FOREIGN: Final = (nats_errors.Error, TimeoutError, OSError)
"""What nats-py raises; `translated` says it in our words."""

API_TIMEOUT_S: Final = 5.0
"""How long a call to JetStream's management may take."""

_MAX_UNSENT_BYTES: Final = 4 << 20
_RELIEF_TIMEOUT_S: Final = 10
_MAX_PENDING_MESSAGES: Final = 65_536
_MAX_PENDING_BYTES: Final = 128 << 20
_ANSWERS_KEPT: Final = 256
_ANSWERS_S: Final = 5.0
_ANSWER_BYTES: Final = 64 << 10
"""Of answers that are kept a while: 16 MiB at most, in practice a few hundred bytes each."""

_STREAM_FULL: Final = 10077
_AWAY: Final = 503


def without_secrets(urls: str) -> str:
    """Server URLs as they may be shown: `nats://user:password@host` without its user."""
    return re.sub(r"//[^/,@]*@", "//", urls)


def translated(error: BaseException, what: str) -> ToolrailError | ValueError:
    """Our exception for one of `FOREIGN` that came up while doing `what`."""
    match error:
        case nats_errors.NoRespondersError() | js_errors.NoStreamResponseError():
            return NoRespondersError(f"nobody serves {what}")
        case TimeoutError():
            return DeadlineError(f"no answer in time: {what}")
        case nats_errors.MaxPayloadError():
            return ValueError(f"payload over the limit of the bus: {what}")
        case js_errors.APIError():
            return _api_error(error, what)
        case _:
            return BusClosedError(f"{what}: {type(error).__name__}")


def _api_error(error: js_errors.APIError, what: str) -> FaultError:
    if error.err_code == _STREAM_FULL:
        return QueueFullError(f"full: {what}")
    kind = BusClosedError if error.code == _AWAY else FaultError
    return kind(f"{what}: {error.description}")


class OrderedClient(Client):
    """nats-py's client, whose `flush` and `drain` wait for what was sent before them.

    In nats-py 2.16 the PING of a flush overtakes what is still buffered, so that its PONG proves
    nothing: a subscription may not be known yet, a drained one still be sent to.
    """

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        pongs = cast("list[asyncio.Future[bool]]", self._pongs)  # pyright: ignore[reportUnknownMemberType] (left open)
        pongs.append(future or asyncio.get_running_loop().create_future())
        await self._send_command(b"PING\r\n")
        await self._flush_pending()


class JetStream(Protocol):
    """The part of nats-py's JetStream that we use, with the types that it leaves open."""

    async def publish(
        self,
        subject: str,
        payload: bytes,
        timeout: float,  # noqa: ASYNC109 (nats-py's name)
        *,
        headers: dict[str, str],
    ) -> api.PubAck:
        """Publish and wait for the stream's acknowledgement."""
        ...

    async def add_stream(self, config: api.StreamConfig) -> api.StreamInfo:
        """Make a stream."""
        ...

    async def stream_info(self, name: str) -> api.StreamInfo:
        """What the server knows of a stream. Raises NotFoundError."""
        ...

    async def update_stream(self, config: api.StreamConfig) -> api.StreamInfo:
        """Change a stream."""
        ...

    async def add_consumer(self, stream: str, config: api.ConsumerConfig) -> api.ConsumerInfo:
        """Make a consumer, or change a durable one."""
        ...

    async def consumer_info(self, stream: str, consumer: str) -> api.ConsumerInfo:
        """What the server knows of a consumer. Raises NotFoundError."""
        ...

    async def get_last_msg(self, stream_name: str, subject: str, direct: bool) -> api.RawStreamMsg:
        """The last message of a subject."""
        ...

    async def delete_msg(self, stream_name: str, seq: int) -> bool:
        """Remove one message."""
        ...

    async def purge_stream(self, name: str, *, subject: str) -> bool:
        """Remove the messages of a subject."""
        ...


class Connection:
    """A connected client with what its users must agree on.

    Attributes:
        client: nats-py's client.
        jetstream: its JetStream.
        settings: bounds and deadlines.
        telemetry: spans of hops.
        tasks: what runs until the connection is closed.
        served: requests being answered, by subscription; they end with the connection too.
        ensuring: held while missing streams are made: once at a time.
        on_reconnect: called, without waiting, when the connection was lost and is back.
        dropped: messages lost in this process.
    """

    def __init__(self, client: Client, settings: CommonSettings, telemetry: Telemetry) -> None:
        self.client = client
        self.jetstream = cast("JetStream", JetStreamContext(client, timeout=API_TIMEOUT_S))
        self.settings = settings
        self.telemetry = telemetry
        self.tasks = hops.Tasks()
        self.served: list[hops.Tasks] = []
        self.ensuring = asyncio.Lock()
        self.on_reconnect: list[Callable[[], None]] = []
        self.dropped = 0
        self._answers: deque[tuple[float, str, bytes]] = deque()
        self._last_complaint = ""

    async def complain(self, error: Exception) -> None:
        """What nats-py reports from its background: lost messages are counted, news are logged."""
        if isinstance(error, nats_errors.SlowConsumerError):
            self.dropped += 1
            complaint = f"slow handler of {error.subject}"
        elif isinstance(error, FOREIGN):
            complaint = f"{type(error).__name__}: {error}"
        else:
            log.error("handler of the bus failed", exc_info=error)
            return
        if complaint != self._last_complaint:  # not one line for every attempt to reconnect
            self._last_complaint = complaint
            log.warning("bus", extra={"complaint": complaint})

    async def reconnected(self) -> None:
        """The connection is back."""
        self._last_complaint = ""
        log.info("bus connected again")
        for listener in list(self.on_reconnect):
            listener()
        self._forget_answers()
        if self.settings.nats_inbox_prefix:
            return  # a user of least rights may answer on the connection alone that was asked
        with suppress(*FOREIGN):  # gone again: next time
            for _, reply, payload in list(self._answers):
                await self.client.publish(reply, payload)

    async def answer(self, reply: str, payload: bytes) -> None:
        """Answer a question; again should the connection be lost just now, with the answer in it.

        Raises BusClosedError, ValueError.
        """
        await self.send(reply, payload)
        if len(payload) <= _ANSWER_BYTES:
            self._answers.append((asyncio.get_running_loop().time(), reply, payload))
        self._forget_answers()

    def _forget_answers(self) -> None:
        oldest_s = asyncio.get_running_loop().time() - _ANSWERS_S
        while self._answers and (
            len(self._answers) > _ANSWERS_KEPT or self._answers[0][0] < oldest_s
        ):
            self._answers.popleft()

    async def subscribe(
        self, subject: str, handler: Callable[[Msg], Awaitable[None]], *, queue: str = ""
    ) -> Subscription:
        """Deliver to `handler`, one message after another, bounded. Raises what nats-py raises."""
        return await self.client.subscribe(  # pyright: ignore[reportUnknownMemberType] (its futures)
            subject,
            queue=queue,
            cb=handler,
            pending_msgs_limit=_MAX_PENDING_MESSAGES,
            pending_bytes_limit=_MAX_PENDING_BYTES,
        )

    async def send(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Publish; waits while the socket is far behind. Raises BusClosedError, ValueError.

        nats-py itself would buffer without bound there (nats-io/nats.py #257).
        """
        try:
            if self.client.pending_data_size > _MAX_UNSENT_BYTES and self.client.is_connected:
                await self.client.flush(timeout=_RELIEF_TIMEOUT_S)
            await self.client.publish(subject, payload, reply=reply, headers=headers)
        except FOREIGN as error:
            raise translated(error, subject) from error


class Outbox:
    """Messages sent from callbacks: in order, bounded, by one task."""

    def __init__(self, connection: Connection, limit: int) -> None:
        self._connection = connection
        self._limit = limit
        self._queue: deque[tuple[str, bytes]] = deque()
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        connection.tasks.start(self._run())

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def idle(self) -> bool:
        """Whether everything has been sent."""
        return self._idle.is_set()

    def put(self, subject: str, payload: bytes) -> None:
        """Send soon; when the queue is full it is dropped and counted. O(1)."""
        if len(self._queue) >= self._limit or self._connection.client.is_closed:
            self._connection.dropped += 1
            return
        self._queue.append((subject, payload))
        self._idle.clear()
        self._more.set()

    async def until_idle(self) -> None:
        """Wait until everything has been sent."""
        await self._idle.wait()

    async def _run(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            while self._queue:
                subject, payload = self._queue.popleft()
                try:
                    await self._connection.send(subject, payload)
                except (FaultError, ValueError) as error:
                    self._connection.dropped += 1
                    await self._connection.complain(ConnectionError(str(error)))
            self._idle.set()
