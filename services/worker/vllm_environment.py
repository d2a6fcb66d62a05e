"""What must be set before vLLM is imported, and in the process that it forks."""

from __future__ import annotations

import ctypes
import importlib.metadata
import logging
import os
import signal
import socket
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

log: Final = logging.getLogger("toolrail.worker")

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_ALWAYS: Final = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CONFIGURE_LOGGING": "0",  # its records go where ours go, in our form
}
_ON_CPU: Final = {
    # More than one thread spins at barriers on a shared machine, and loses more than it gains.
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Else the first request for logprobs compiles C++ for half a minute.
    "TORCHDYNAMO_DISABLE": "1",
}
_PR_SET_PDEATHSIG: Final = 1


def is_cpu_build() -> bool:
    """Whether the vLLM that is installed here was built for CPUs."""
    try:
        importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def prepare(*, cpu: bool, tracing: bool) -> None:
    """Set the variables vLLM reads at import; those that are set already stay."""
    for name, value in (_ALWAYS | (_ON_CPU if cpu else {})).items():
        os.environ.setdefault(name, value)
    if tracing:
        os.environ.setdefault("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
        # Of processes that vLLM starts anew; in this one it finds our provider (`lend`), and warns.
        os.environ.setdefault("OTEL_SERVICE_NAME", "worker")
        logging.getLogger("opentelemetry.trace").setLevel(logging.ERROR)
    # What vLLM and torch say of each other while they load is of no use to whoever runs us.
    logging.getLogger("vllm").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")


@contextmanager
def own_log_records() -> Iterator[None]:
    """An import in this block leaves the form of log records alone; vLLM's adds a field to all."""
    factory = logging.getLogRecordFactory()
    try:
        yield
    finally:
        logging.setLogRecordFactory(factory)


def prefer_fork() -> None:
    """Have vLLM fork its engine process instead of starting a new interpreter.

    Called after the engine's config was made, which sets the opposite: a fresh interpreter would
    import everything again, 23 seconds of CPU.
    """
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"


@contextmanager
def ending_at_once() -> Iterator[None]:
    """While this process loads an engine, a signal to stop ends it on the spot, with status 0.

    Loading cannot be interrupted, takes half a minute, and partly holds up the event loop, so the
    service's own handlers would come too late. Nothing has been taken yet that could be finished.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.signal(number, _end_at_once) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _end_at_once(number: int, _frame: object) -> None:
    log.info("told to stop while loading", extra={"signal": signal.Signals(number).name})
    os._exit(0)


class _Forks:
    """Whether a process forked now is the engine's. `os` keeps its hooks for good."""

    expected = False
    hooked = False


@contextmanager
def own_child() -> Iterator[None]:
    """A process forked in this block is the engine's: it dies with us and keeps out of our way."""
    if not _Forks.hooked:
        os.register_at_fork(after_in_child=_in_child)
        _Forks.hooked = True
    _Forks.expected = True
    try:
        yield
    finally:
        _Forks.expected = False


def _in_child() -> None:
    if not _Forks.expected:
        return
    # A Ctrl-C for the whole group is ours to handle: the engine must outlive the drain.
    os.setpgid(0, 0)
    # vLLM's engine process does not notice that its parent is gone.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _close_network_sockets()


def _close_network_sockets() -> None:
    """Leave the parent's connections to the parent: its end must close them.

    vLLM talks to its child over pipes and Unix sockets, which stay.
    """
    for entry in os.listdir("/proc/self/fd"):
        descriptor = int(entry)
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            found = socket.socket(fileno=descriptor)
        except OSError:
            continue  # the directory's own descriptor, closed by now
        if found.family in (socket.AF_INET, socket.AF_INET6):
            found.close()
        else:
            found.detach()
