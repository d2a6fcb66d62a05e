"""The service: owns streams until told to stop, then lets them end."""

from __future__ import annotations

import logging
from typing import Final

import anyio

from services.postprocessor.postprocessor import Postprocessor
from toolrail.service import Runtime
from toolrail.settings import PostprocessorSettings

log: Final = logging.getLogger(__name__)


async def main(runtime: Runtime[PostprocessorSettings]) -> None:
    """Serve until `runtime.stopping`, then drain."""
    postprocessor = Postprocessor(runtime)
    async with anyio.create_task_group() as tasks:
        await postprocessor.warm()
        await postprocessor.start()
        tasks.start_soon(postprocessor.queue)
        tasks.start_soon(postprocessor.watch)
        tasks.start_soon(postprocessor.watch_workers)
        tasks.start_soon(postprocessor.watch_gateways)
        tasks.start_soon(postprocessor.keep_warm)
        tasks.start_soon(postprocessor.check)
        tasks.start_soon(postprocessor.tell_neighbours)
        await runtime.announce()
        log.info("serving", extra={"max_streams": runtime.settings.max_streams})
        await runtime.stopping.wait()
        await postprocessor.drain()
        tasks.cancel_scope.cancel()
