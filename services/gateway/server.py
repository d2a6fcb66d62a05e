"""uvicorn as a part of this process: bounded heads, an honest abort, an end that loses nothing."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from services.gateway.app import App
from services.gateway.exchange import ABORT, STOPPING
from services.gateway.failures import error_body, failure_of
from toolrail.errors import CallerError, ConfigError
from toolrail.settings import GatewaySettings

_BACKLOG: Final = 2048
LAST_REQUEST_S: Final = 1.0
"""Of an idle connection of a server that stops: a request that is on its way is still answered.
Less where little time is left to drain."""

_LINGER_S: Final = 2.0
"""How long a client may take to notice that its connection is over."""


def listen(settings: GatewaySettings) -> socket.socket:
    """A listening socket. Raises ConfigError when the address cannot be had."""
    try:
        if settings.listen_fd:
            return socket.socket(fileno=settings.listen_fd)
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        address = (settings.host, settings.port)
        return socket.create_server(address, family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        if settings.listen_fd:
            raise ConfigError("listen_fd", f"not a listening socket: {error}") from error
        address = f"{settings.host}:{settings.port}"
        raise ConfigError("port", f"cannot listen on {address}: {error}") from error


class Server(uvicorn.Server):
    """A server that ends when it is told and not by a signal: those belong to the runtime.

    A subclass because uvicorn takes neither signal handling nor the protocol's limits as settings.
    """

    def __init__(self, app: App, settings: GatewaySettings, *, grace_s: float) -> None:
        """Serve `app`; on exit running requests get `grace_s` before they are cut off."""
        config = uvicorn.Config(
            cast(Any, app),
            http=_bounded(settings),
            ws="none",
            lifespan="off",
            access_log=False,
            log_level="warning",
            log_config=None,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=int(settings.idle_connection_s),
            timeout_graceful_shutdown=int(grace_s),
            ssl_certfile=settings.tls_cert or None,
            ssl_keyfile=settings.tls_key or None,
            ssl_ca_certs=settings.tls_client_ca or None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if settings.tls_client_ca else ssl.CERT_NONE,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise ConfigError("tls_cert", f"cannot be used: {type(error).__name__}") from None
        super().__init__(config)

    def cut(self) -> None:
        """Close every socket at once; nothing is left to do after an orderly end.

        uvicorn leaves them open when it is cancelled, and an open server keeps the loop alive.
        """
        for server in getattr(self, "servers", ()):
            server.close()
        for connection in list(self.server_state.connections):
            cast(_Connection, connection).transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield


def _bounded(settings: GatewaySettings) -> type[asyncio.Protocol]:
    class Connection(_Connection):
        max_header_bytes = settings.max_header_bytes
        header_timeout_s = settings.header_timeout_s
        last_request_s = min(LAST_REQUEST_S, settings.drain_s / 10)
        absence_s = settings.client_absence_s

    return Connection


def notice_absence(transport: asyncio.Transport, seconds: float) -> None:
    """Have the kernel give up a client that vanished without a word, sending or silent.

    By default it repeats what is not acknowledged for a quarter of an hour, and a stream goes on.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family == socket.AF_UNIX or sys.platform != "linux":
        return
    probe_s = max(1, int(seconds / 4))
    for level, option, value in (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, probe_s),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, probe_s),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(seconds * 1000))),
    ):
        sock.setsockopt(level, option, value)


class _Connection(HttpToolsProtocol):
    """HTTP with bounds on the head of a request: its size, and the time it may take to arrive.

    httptools has neither, and keeps a head that never ends in memory.
    """

    max_header_bytes: int
    header_timeout_s: float
    last_request_s: float
    absence_s: float

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        notice_absence(transport, self.absence_s)
        self._in_head = True
        self._over = False
        self._stopping = False
        self._told_bytes = 0
        self._raw_bytes = 0
        self._refused: CallerError | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        began_in_head = self._in_head
        super().data_received(data)
        if began_in_head and self._in_head and not self._over:
            # An unfinished header line is not told by `on_header` yet.
            self._raw_bytes += len(data)
            if self._raw_bytes > self.max_header_bytes:
                self._refuse_head()
                self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._told_bytes = 0
        self._raw_bytes = 0
        self._start_timer()
        self.scope["extensions"] = {  # type: ignore[typeddict-item]
            ABORT: self.transport.abort,
            STOPPING: lambda: self._stopping,
        }

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        hosts = sum(name == b"host" for name, _ in self.headers)
        assert self.parser is not None  # it calls this
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            self._refused = CallerError("exactly one Host header is needed", code="invalid_http")
            raise ValueError("not one host")  # the parser turns it into a 400
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that never became one, unless it is too late for an answer."""
        if self._over or self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # a broken body or trailer: its request is being answered
            return
        error = self._refused or CallerError(msg, code="invalid_http")
        body = error_body(failure_of(error))
        head = (
            b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            % len(body)
        )
        self.transport.write(STATUS_LINE[error.status] + head + body)
        # Not `close`: over unread bytes it is a reset, and the answer is lost with it.
        self.transport.write_eof()
        self._over = True
        self._stop_timer()
        self._head_timer = self.loop.call_later(_LINGER_S, self.transport.abort)

    def shutdown(self) -> None:
        """End the connection as its client can foresee: the next answer says that it is the last.

        Not at once, as uvicorn does: a request may be on its way, and would be lost.
        """
        self._stopping = True
        self.timeout_keep_alive = self.last_request_s
        if self.cycle is None or self.cycle.response_complete:
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.last_request_s, self.timeout_keep_alive_handler
            )

    def _count(self, size: int) -> None:
        self._told_bytes += size
        if self._told_bytes > self.max_header_bytes:
            self._refuse_head()
            raise ValueError("the head is too large")  # the parser turns it into a 400

    def _refuse_head(self) -> None:
        text = f"the request head is larger than {self.max_header_bytes} bytes"
        self._refused = CallerError(text, code="request_head_too_large", status=431)

    def _start_timer(self) -> None:
        self._stop_timer()
        self._head_timer = self.loop.call_later(self.header_timeout_s, self._on_timer)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_timer(self) -> None:
        self._head_timer = None
        if not self._raw_bytes:
            self.transport.close()  # a connection opened in advance: nobody waits for an answer
            return
        text = f"the request head did not arrive within {self.header_timeout_s:g} s"
        self._refused = CallerError(text, code="request_timeout", status=408)
        self.send_400_response(text)
