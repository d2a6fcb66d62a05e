"""One HTTP request and its answer, over raw ASGI.

Not a framework: reading a bounded body, writing one answer or a stream of events, and noticing that
the client left is all this service needs, and the fewer layers lie on the path of an event the
better.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import anyio
import msgspec

from services.gateway import ids
from services.gateway.audit.entry import Entry
from services.gateway.failures import error_body, error_event, http_status, retry_after_s
from toolrail.api_keys import KeyRecord
from toolrail.errors import CallerError, QueueFullError
from toolrail.messages import Failed

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]
ErrorShape: TypeAlias = Callable[[Failed], bytes]
"""A failure in the words of an API: a whole body, or what ends a stream."""
ErrorStatus: TypeAlias = Callable[[Failed], int]
"""The status of a failure in an API."""

X_REQUEST_ID: Final = b"x-request-id"

ABORT: Final = "toolrail.abort"
"""ASGI extension of our server: cut the connection without waiting for what is unsent."""

STOPPING: Final = "toolrail.stopping"
"""ASGI extension of our server: whether it stops, so that an answer is the last of its connection.
"""

CLIENT_LEFT: Final = 499
"""Status, in metrics and traces only, of an answer that nobody waited for."""

_JSON: Final = (b"content-type", b"application/json")
_EVENTS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx buffers answers by default
)
_LINGER_S: Final = 2.0
"""How long a refused body is read on, so that the client sees the refusal, not a reset."""


class BodyBudget:
    """Bytes of request bodies held at once, for all requests of the process."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held = 0

    def take(self, size: int) -> None:
        """Count `size` more bytes. Raises QueueFullError when they are too many."""
        if self._held + size > self._limit:
            raise QueueFullError("too many request bodies at once")
        self._held += size

    def give_back(self, size: int) -> None:
        """These bytes are held no more."""
        self._held -= size


class Exchange:
    """A request, and the one answer it gets.

    Attributes:
        request_id: ours, also on the bus; the answer's x-request-id is the client's if it sent one.
        public_id: that id of the answer.
        status: of the answer, 0 while there is none.
        complete: the answer is sent to its end.
        client_left: the client closed the connection before that.
        error_body: how the API that was called words a failure; OpenAI's unless its route says.
        error_status: the status it has there.
        on_end: called once, before the last bytes of the answer leave.
        id_header: the name by which clients of that API know the request's id.
        key: the record of the caller's API key; None where no keys are in use.
        audit: what is gathered of the request for its audit record; None where none is kept.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, request_id: str) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.request_id = request_id
        self.status = 0
        self.complete = False
        self.client_left = False
        self.error_body: ErrorShape = error_body
        self.error_status: ErrorStatus = http_status
        self.id_header = X_REQUEST_ID
        self.on_end: Callable[[], None] | None = None
        self.key: KeyRecord | None = None
        self.audit: Entry | None = None
        self._scope = scope
        self._receive = receive
        self._send = send
        self._lingering = False
        self._ending = False
        self._more_body = True
        self._error_event: ErrorShape | None = None
        self._extra: list[Header] = []
        self.public_id = ids.client_request_id(self.header(b"x-request-id")) or request_id

    @property
    def owner(self) -> str:
        """Whom the request acts for; "" where no keys are in use."""
        return "" if self.key is None else self.key.owner or self.key.name

    @property
    def weight(self) -> int:
        """Its share of the workers while requests wait, against others'."""
        return 1 if self.key is None else self.key.weight

    def header(self, name: bytes) -> str | None:
        """The first header of that (lower-case) name, or None."""
        for key, value in self._scope["headers"]:
            if key == name:
                return value.decode("latin-1")
        return None

    @property
    def client_address(self) -> str | None:
        """Where the connection comes from, as far as the server knows."""
        client = self._scope.get("client")
        return None if client is None else str(client[0])

    @property
    def query(self) -> dict[str, list[str]]:
        """The parameters of the URL; `name[]` is `name`."""
        found: dict[str, list[str]] = {}
        pairs = parse_qsl(self._scope.get("query_string", b"").decode("latin-1"))
        for name, value in pairs:
            found.setdefault(name.removesuffix("[]"), []).append(value)
        return found

    @property
    def declared_bytes(self) -> int:
        """How long the body says it is; 0 where it does not say."""
        declared = self.header(b"content-length") or ""
        return int(declared[:18]) if declared.isdecimal() else 0

    def add_header(self, name: str, value: bytes) -> None:
        """Send one more header with whatever the answer will be; before it begins."""
        self._extra.append((name.encode("ascii"), value))

    def trace_headers(self) -> dict[str, str]:
        """The client's W3C trace context, empty if it sent none."""
        found = ((name, self.header(name.encode())) for name in ("traceparent", "tracestate"))
        return {name: value for name, value in found if value is not None}

    async def body(self, *, max_bytes: int, timeout_s: float, budget: BodyBudget) -> bytes:
        """The whole body, or what came of it if the client left.

        Its bytes are counted in `budget` until the caller gives them back.

        Raises:
            CallerError: it is too large (413) or came too slowly (408).
            QueueFullError: the process holds too many bodies.
        """
        if self.declared_bytes > max_bytes:
            self._refuse_body(max_bytes)
        chunks: list[bytes] = []
        size = 0
        try:
            with anyio.fail_after(timeout_s):
                while self._more_body:
                    chunk = await self._next_chunk()
                    budget.take(len(chunk))
                    size += len(chunk)
                    if size > max_bytes:
                        self._refuse_body(max_bytes)
                    chunks.append(chunk)
        except BaseException as error:
            budget.give_back(size)
            if isinstance(error, TimeoutError):
                self._lingering = True
                text = f"the request body did not arrive within {timeout_s:g} s"
                raise CallerError(text, code="request_timeout", status=408) from error
            raise
        return b"".join(chunks)

    async def _next_chunk(self) -> bytes:
        message = await self._receive()
        self._more_body = message.get("more_body", False)
        self.client_left = message["type"] == "http.disconnect"
        return message.get("body", b"")

    def _refuse_body(self, max_bytes: int) -> None:
        self._lingering = True
        text = f"the request body is larger than {max_bytes} bytes"
        raise CallerError(text, code="request_too_large", status=413)

    async def send(self, status: int, body: bytes, *, headers: Iterable[Header] = (_JSON,)) -> None:
        """Answer with a whole body."""
        await self._start(status, [*headers, (b"content-length", b"%d" % len(body))])
        if self._lingering:
            await self._write(body, last=False)
            await self._linger()
            body = b""
        await self._write(body, last=True)

    async def send_error(self, failed: Failed, *, headers: Iterable[Header] = ()) -> None:
        """Answer with an error object, and Retry-After where it makes sense."""
        failed = self._named(failed)
        extra = [_JSON, *headers]
        seconds = retry_after_s(failed)
        if seconds is not None:
            extra.append((b"retry-after", b"%d" % seconds))
        await self.send(self.error_status(failed), self.error_body(failed), headers=extra)

    async def fail(self, failed: Failed, *, headers: Iterable[Header] = ()) -> None:
        """Tell the client of a failure, in whatever way the answer still has room for."""
        if not self.status:
            await self.send_error(failed, headers=headers)
        elif self._error_event is not None and not self.complete:
            await self.write(self._error_event(self._named(failed)), last=True)
        elif not self.complete:
            await self.abort()

    def _named(self, failed: Failed) -> Failed:
        """`failed`, with the request's id: some APIs say it in the body."""
        if failed.request_id:
            return failed
        return msgspec.structs.replace(failed, request_id=self.request_id)

    async def start_events(self, error: ErrorShape = error_event) -> None:
        """Answer 200 with a stream of server-sent events; `error` is how a failure would end it."""
        self._error_event = error
        await self._start(200, list(_EVENTS))

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Send a piece of the stream; waits while the client is slower than we are."""
        await self._write(data, last=last)

    async def left(self) -> None:
        """Return when the client has closed the connection, or has its whole answer."""
        await self._disconnect()
        if not self._ending:  # else the server says so because it has the whole answer
            self.client_left = True

    async def abort(self) -> None:
        """Cut the connection: the answer cannot be finished and must not look as if it were."""
        cut = self._scope.get("extensions", {}).get(ABORT)
        if cut is not None:
            cut()
            with anyio.CancelScope(shield=True), anyio.move_on_after(_LINGER_S):
                await self._disconnect()

    async def _disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _start(self, status: int, headers: list[Header]) -> None:
        public_id = self.public_id.encode("ascii")
        headers += [(X_REQUEST_ID, public_id), *self._extra]
        if self.id_header != X_REQUEST_ID:
            headers.append((self.id_header, public_id))
        stopping = self._scope.get("extensions", {}).get(STOPPING)
        if self._lingering or (stopping is not None and stopping()):
            headers.append((b"connection", b"close"))
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _write(self, data: bytes, *, last: bool) -> None:
        self._ending = last
        if last and self.on_end is not None:
            self.on_end()
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})
        self.complete = last

    async def _linger(self) -> None:
        """Read on for a while: a connection closed over unread bytes is reset, answer and all."""
        with anyio.move_on_after(_LINGER_S):
            while self._more_body:
                await self._next_chunk()
