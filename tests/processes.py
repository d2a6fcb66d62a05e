"""Watching processes that are not this one's children."""

from __future__ import annotations

import time

import psutil


def alive(pid: int) -> bool:
    """Whether it runs; a zombie that nobody has waited for yet is dead."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until_dead(pid: int, *, timeout_s: float = 20) -> None:
    """Wait for its end, which sends no event to those who are not its parent."""
    deadline = time.monotonic() + timeout_s
    while alive(pid):
        assert time.monotonic() < deadline, f"{pid} still runs after {timeout_s} s"
        time.sleep(0.01)


def descendants(pid: int) -> list[int]:
    """Everything it started, and what that started."""
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def command_line(pid: int) -> str:
    """How it was started, or what it calls itself."""
    return " ".join(psutil.Process(pid).cmdline())
