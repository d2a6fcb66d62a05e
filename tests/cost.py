"""What a run of tests cost in CPU, said at its end: wall time says little on a busy machine.

Nothing fails by it. The fast run has a budget, and CI's log shows how much of it is spent. Where
several processes share the tests (pytest-xdist), each hands its part to the one that says it.
"""

from __future__ import annotations

import resource
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

FAST_BUDGET_S: Final = 120
"""Two processes share it, and each collects the tests: less than 90 s of wall time."""
LONG_S: Final = 30
"""Runs that cost less say nothing."""
SHOWN: Final = 20

_HANDED_ON: Final = "toolrail_cost"

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

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        handed_on: dict[str, object] | None = getattr(session.config, "workeroutput", None)
        if handed_on is not None:
            handed_on[_HANDED_ON] = (self._of, self._fast)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # A process that died hands nothing on, and the run fails by its death.
        of, fast = getattr(node, "workeroutput", {}).get(_HANDED_ON, ({}, 0.0))
        self._of |= of
        self._fast += fast

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        total = cpu_s()
        if total < LONG_S:
            return
        terminalreporter.section("CPU")
        dearest = sorted(self._of.items(), key=lambda row: -row[1])[:SHOWN]
        for name, took in dearest:
            terminalreporter.write_line(f"{took:7.2f} s {name}")
        terminalreporter.write_line(
            f"{total:.0f} s in all; {self._fast:.0f} s in tests of the fast run, which are to take "
            f"less than {FAST_BUDGET_S} s"
        )
