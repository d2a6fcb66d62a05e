"""All four services in this process on an in-memory bus: the pipeline without its way.

Takes the gateway's `--port` and the worker's flags.
"""

from __future__ import annotations

import signal
import sys
from contextlib import AsyncExitStack

import anyio

from services.gateway.main import main as gateway
from services.postprocessor.main import main as postprocessor
from services.preprocessor.main import main as preprocessor
from services.worker.main import main as worker
from toolrail.bus.memory import MemoryBroker
from toolrail.flags import load
from toolrail.service import serving
from toolrail.settings import (
    GatewaySettings,
    PostprocessorSettings,
    PreprocessorSettings,
    WorkerSettings,
)


async def serve(port: str, worker_flags: list[str]) -> None:
    """Serve until told to stop."""
    broker = MemoryBroker()
    stopping = anyio.Event()
    services = {
        "worker": (worker, load(WorkerSettings, worker_flags, {})),
        "postprocessor": (postprocessor, load(PostprocessorSettings, [], {})),
        "preprocessor": (preprocessor, load(PreprocessorSettings, [], {})),
        "gateway": (gateway, load(GatewaySettings, ["--port", port], {})),
    }
    async with AsyncExitStack() as stack:
        mains = []
        for name, (main, settings) in services.items():
            runtime = await stack.enter_async_context(
                serving(name, settings, broker.connect(), stopping=stopping)
            )
            mains.append((main, runtime))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for main, runtime in mains:
            tasks.start_soon(main, runtime)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                stopping.set()
                break


if __name__ == "__main__":
    _, _, given_port, *flags = sys.argv
    anyio.run(serve, given_port, flags, backend_options={"use_uvloop": True})
