"""A small service, run as a process by the tests of the runner."""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from toolrail.errors import ConfigError
from toolrail.service import Runtime, run
from toolrail.settings import CommonSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoSettings(CommonSettings):
    """Settings of the echo.

    Attributes:
        mode: what it does: `serve`, or how it goes wrong.
    """

    mode: str = "serve"


async def main(runtime: Runtime[EchoSettings]) -> None:
    """Echoes requests until told to stop."""
    mode = runtime.settings.mode
    if mode == "misconfigured":
        raise ConfigError("mode", "cannot work")
    if mode == "broken":
        raise RuntimeError("a secret prompt")
    if mode == "ended":
        return

    async def echo(payload: bytes) -> bytes:
        if payload == b"slow":
            await anyio.sleep(0.3)
        return payload

    serving = await runtime.bus.serve("echo", "echoes", echo, max_in_flight=8)
    await runtime.announce()
    await runtime.stopping.wait()
    if mode == "endless":
        await anyio.sleep_forever()
    await serving.stop(drain_s=runtime.settings.drain_s)


if __name__ == "__main__":
    run("echo", EchoSettings, main)
