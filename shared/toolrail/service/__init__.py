"""Runs a service: settings, logs, signals, bus, registration, and an end within a bound.

A service is one function, `main(runtime)`: it serves until `runtime.stopping` is set, finishes what
it took, and returns. Nothing in it is global, so a test runs the same function over a `MemoryBus`:

    async with serving("gateway", settings, bus) as runtime:
        group.start_soon(main, runtime)
"""

from __future__ import annotations

from toolrail.service.process import run
from toolrail.service.runtime import Runtime, serving

__all__ = ["Runtime", "run", "serving"]
