"""The service: what its process starts, and how it ends."""

from __future__ import annotations

import logging
import socket
from typing import Final

import anyio

from services.gateway.app import App
from services.gateway.failures import failure
from services.gateway.gateway import Gateway
from services.gateway.served import ServedCollector
from services.gateway.server import Server, listen
from toolrail.service import Runtime
from toolrail.settings import GatewaySettings

log: Final = logging.getLogger(__name__)

_LAST_WORDS_S: Final = 2.0
"""Before the end of the drain, streams still running are told so: that long to write it."""


async def main(runtime: Runtime[GatewaySettings]) -> None:
    """Serve HTTP until told to stop; then take nothing new and finish what runs, in `drain_s`."""
    settings = runtime.settings
    with listen(settings) as listener:
        gateway = Gateway.of(runtime)
        runtime.metrics.register(ServedCollector(runtime.directory))
        await gateway.streams.start()
        await gateway.auditor.start()
        server = Server(App(gateway), settings, grace_s=settings.drain_s)
        async with anyio.create_task_group() as tasks:
            served = anyio.Event()
            tasks.start_soon(_serve, server, listener, served)
            tasks.start_soon(gateway.watch)
            tasks.start_soon(gateway.auditor.run)
            tasks.start_soon(gateway.door.follow_keys, settings.api_keys_reload_s)
            await runtime.announce()
            host, port = listener.getsockname()[:2]
            log.info("listening", extra={"host": host, "port": port})
            await runtime.stopping.wait()
            server.should_exit = True
            with anyio.move_on_after(max(settings.drain_s - _LAST_WORDS_S, settings.drain_s / 2)):
                await served.wait()
                await gateway.runs.idle()
            text = "the server is shutting down"
            gateway.streams.fail_all(failure("unavailable", text, retryable=True))
            await served.wait()
            with anyio.move_on_after(_LAST_WORDS_S):  # what they came to is kept, and recorded
                await gateway.runs.idle()
            await gateway.auditor.finish(settings.audit_flush_s)
            tasks.cancel_scope.cancel()
        await gateway.auditor.close()
        await gateway.streams.stop()


async def _serve(server: Server, listener: socket.socket, served: anyio.Event) -> None:
    try:
        await server.serve([listener])
        served.set()
    finally:
        server.cut()
