"""Processes of the stack, started one by one: a NATS server, and services with their commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import anyio

from toolrail.bus.embedded import EmbeddedNats
from toolrail.cli import child

ROOT = Path(__file__).parents[2]
END_S = 60.0


@contextmanager
def nats(folder: Path) -> Iterator[str]:
    server = EmbeddedNats(folder)
    anyio.run(server.start)
    try:
        yield server.url
    finally:
        anyio.run(server.stop)


def process(
    command: list[str], environment: Mapping[str, str], log: Path
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """One of ours: `command` is what comes after Python."""
    return program([sys.executable, *command], environment, log)


@contextmanager
def program(
    command: list[str], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Any, until the end of the block; it dies with the test too. Its output is added to `log`."""
    shim = [sys.executable, "-I", "-S", child.__file__, str(os.getpid())]
    with log.open("ab") as out:
        running = subprocess.Popen(
            [*shim, *command],
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            yield running
        finally:
            running.terminate()
            try:
                running.wait(END_S)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
