"""One stack with two of each service, for all tests that kill, cut or flood it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import anyio
import pytest

from tests import stack as stacks
from tests.every_kind import write_script
from toolrail.bus.embedded import EmbeddedNats

FLAGS: Final = (
    *stacks.scripted("--obey-tag", "--scripted-step-ms", "20", "--slots", "48"),
    *("--replicas", "gateway=2,preprocessor=2,postprocessor=2,worker=2"),
    # Longer than any request takes here, however slow the machine is.
    *("--drain-s", "120"),
)
START_S: Final = 180.0


@pytest.fixture(scope="package")
def server() -> Iterator[EmbeddedNats]:
    """The one of `pairs`, which says what is held of it."""
    server = EmbeddedNats(monitoring=True)
    try:
        anyio.run(server.start, START_S)
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="package")
def pairs(tmp_path_factory: pytest.TempPathFactory, server: EmbeddedNats) -> Iterator[stacks.Stack]:
    folder = tmp_path_factory.mktemp("chaos")
    flags = ("--nats", server.url, "--script", write_script(folder))
    stack = stacks.start(folder, *FLAGS, *flags)
    try:
        stack.wait_ready(START_S)
        yield stack
    finally:
        stacks.discard(stack)
