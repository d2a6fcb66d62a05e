"""What a run of tests cost in CPU, said at its end: wall time says little on a busy machine.

Nothing fails by it. The fast run has a budget, and CI's log shows how much of it is spent.
"""

from __future__ import annotations

import resource
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

FAST_BUDGET_S: Final = 90
LONG_S: Final = 30
"""Runs that cost less say nothing."""
SHOWN: Final = 20

_PYPROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"


def cpu_s() -> float:
    """CPU seconds of this process so far, and of its children that have ended."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def marks() -> frozenset[str]:
    """The project's own marks: a test without one is in the fast run."""
    options = tomllib.loads(_PYPROJECT.read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    return frozenset(line.partition(":")[0] for line in options["markers"])


class Cost:
    """Adds up what each test takes, its fixtures with it; a pytest plugin."""

    def __init__(self) -> None:
        self._marks = marks()
        self._of: dict[str, float] = {}
        self._fast = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = cpu_s()
        try:
            return (yield)
        finally:
            took = cpu_s() - before
            self._of[item.nodeid] = took
            if not any(mark.name in self._marks for mark in item.iter_markers()):
                self._fast += took

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = cpu_s()
        if total < LONG_S:
            return
        terminalreporter.section("CPU")
        dearest = sorted(self._of.items(), key=lambda row: -row[1])[:SHOWN]
        for name, took in dearest:
            terminalreporter.write_line(f"{took:7.2f} s {name}")
        terminalreporter.write_line(
            f"{total:.0f} s in all; {self._fast:.0f} s in tests of the fast run, which with their "
            f"collection are to take less than {FAST_BUDGET_S} s"
        )
