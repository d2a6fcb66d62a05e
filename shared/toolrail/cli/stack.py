"""What the local stack consists of: the NATS server and every service, as command lines.

Knows the services by name only. They are run from the tree this library stands in.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolrail.bus.embedded import EmbeddedNats
from toolrail.cli.supervisor import Program
from toolrail.errors import ConfigError

SERVICES: Final[tuple[str, ...]] = ("gateway", "preprocessor", "postprocessor", "worker")
TREE: Final = Path(__file__).resolve().parents[3]
"""The checkout: `services/` lies beside `shared/`."""

BACKLOG: Final = 1024
"""Connections that wait while no gateway accepts them."""
_MAX_PORT: Final = 65_535

_BAD_SETTINGS: Final = 2
"""Exit status of a service whose settings cannot work; starting it again would not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What to run and how.

    Attributes:
        nats_url: the server everybody uses.
        data_directory: JetStream's store when the server is ours, else None.
        listener: the socket all gateways accept on. The supervisor holds it, so that a connection
            made while a gateway is being restarted waits instead of being refused.
        replicas: processes per service.
        model: the name it serves its model by.
        common_flags: passed to every service as they are.
        gateway_flags: passed to every gateway as they are.
        postprocessor_flags: passed to every postprocessor as they are.
        worker_flags: passed to every worker as they are.
    """

    nats_url: str
    data_directory: Path | None
    listener: socket.socket
    replicas: Mapping[str, int]
    model: str
    common_flags: Sequence[str] = ()
    gateway_flags: Sequence[str] = ()
    postprocessor_flags: Sequence[str] = ()
    worker_flags: Sequence[str] = ()


def nats_program(stack: Stack) -> Program:
    """Our own NATS server with JetStream, on the address of `nats_url`. Raises ConfigError."""
    server = EmbeddedNats(stack.data_directory, int(stack.nats_url.rpartition(":")[2]))
    command = server.command()
    return Program(service="nats", slot="nats", command=lambda _: command)


def service_programs(stack: Stack) -> list[Program]:
    """Every replica of every service. Raises ConfigError when the services are not there."""
    if not (TREE / "services").is_dir():
        raise ConfigError("toolrail up", f"runs from a checkout, and {TREE} has no services/")
    return [
        _program(stack, service, number)
        for service in SERVICES
        for number in range(1, stack.replicas[service] + 1)
    ]


def _program(stack: Stack, service: str, number: int) -> Program:
    # `-P`: a directory named services where the user stands must not be taken for ours.
    base = [sys.executable, "-P", "-m", f"services.{service}"]
    flags = list(stack.common_flags)
    if service == "gateway":
        flags += ["--listen-fd", str(stack.listener.fileno()), *stack.gateway_flags]
    elif service == "postprocessor":
        flags += stack.postprocessor_flags
    elif service == "worker":
        flags += stack.worker_flags
    return Program(
        service=service,
        slot=f"{service}-{number}" if stack.replicas[service] > 1 else service,
        command=_with_instance([*base, *flags]),
        fatal_statuses=frozenset({_BAD_SETTINGS}),
        pass_fds=(stack.listener.fileno(),) if service == "gateway" else (),
    )


def _with_instance(command: Sequence[str]) -> Callable[[str], Sequence[str]]:
    """Each life gets its own name: what was meant for the last one must not reach this one."""
    return lambda instance: [*command, "--instance", instance]


def environment(given: Mapping[str, str], *, nats_url: str, drain_s: float) -> dict[str, str]:
    """The environment of the services: they find the tree and end within the supervisor's grace.

    The server's URL is here and on no command line: it may hold a password, and whoever is on the
    machine may read command lines.
    """
    path = [str(TREE), *filter(None, [given.get("PYTHONPATH")])]
    return {
        "TOOLRAIL_DRAIN_S": str(drain_s),
        **given,
        "TOOLRAIL_NATS_URL": nats_url,
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
    }


def listen(host: str, port: int) -> socket.socket:
    """The socket for HTTP; port 0 takes a free one. Raises ConfigError when it cannot be had."""
    if not 0 <= port <= _MAX_PORT:  # getaddrinfo takes larger ones and drops their upper bits
        raise ConfigError("--port", f"must be 0 to {_MAX_PORT}, not {port}")
    with contextlib.ExitStack() as on_failure:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = on_failure.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            raise ConfigError(
                "--port", f"cannot listen on {host}:{port}: {error.strerror}"
            ) from error
        on_failure.pop_all()
    return listener


def base_url(host: str, listener: socket.socket) -> str:
    """The URL a client on this machine uses."""
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 (read, not bound)
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
