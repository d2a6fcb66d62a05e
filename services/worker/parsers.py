"""Whether the parsers that the flags name exist and go together.

The worker knows no family: a process of its own, which ends before the engine starts, asks those
who do.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import anyio

from toolrail.errors import ConfigError, FaultError
from toolrail.settings import WorkerSettings

CHECK: Final = "toolrail.cli.check_parsers"
CHECK_TIMEOUT_S: Final = 60.0


async def check(settings: WorkerSettings) -> None:
    """Returns if they can work. Raises ConfigError naming those that can."""
    command = [sys.executable, "-P", "-m", CHECK]
    command += [settings.tool_call_parser, settings.reasoning_parser, settings.dyn_parser_version]
    try:
        with anyio.fail_after(CHECK_TIMEOUT_S):
            done = await anyio.run_process(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
            )
    except TimeoutError as error:
        raise FaultError(f"the check of the parsers took over {CHECK_TIMEOUT_S:g} s") from error
    answer = done.stdout.decode().strip()
    if done.returncode == 2:
        field, _, why = answer.partition(": ")
        raise ConfigError(field, why)
    if done.returncode:
        raise FaultError(f"the check of the parsers failed with status {done.returncode}")
