"""One stack with two of each service, for all tests that kill, cut or flood it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests import stack as stacks

FLAGS: Final = (
    *stacks.scripted("--obey-tag", "--scripted-step-ms", "20", "--slots", "48"),
    *("--replicas", "gateway=2,preprocessor=2,postprocessor=2,worker=2"),
    # Longer than any request takes here, however slow the machine is.
    *("--drain-s", "120"),
)
START_S: Final = 180.0


@pytest.fixture(scope="package")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stacks.Stack]:
    stack = stacks.start(tmp_path_factory.mktemp("chaos"), *FLAGS)
    try:
        stack.wait_ready(START_S)
        yield stack
    finally:
        stacks.discard(stack)
