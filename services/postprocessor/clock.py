"""The two clocks that streams live by, as a value, so that a test can hold them still."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`seconds`: monotonic, for silence. `unix_ms`: for the deadlines that messages carry."""

    seconds: Callable[[], float] = time.monotonic
    unix_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
