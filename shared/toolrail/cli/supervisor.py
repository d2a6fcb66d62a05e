"""Keep programs running: start, log with a prefix, restart with back-off, end together.

Knows nothing of what the programs are. Every program leads a process group of its own, so that
whatever it leaves behind goes with it, and a Ctrl-C reaches only the supervisor, which then ends
them in order. A program dies with the supervisor even when that is killed (see `child`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import anyio.abc

_CHILD: Final = str(Path(__file__).with_name("child.py"))
_LINE_BYTES: Final = 1 << 16
"""A longer line of a program's log is cut into several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to keep running.

    Attributes:
        service: what it is; several programs may be the same.
        slot: its unique name, the prefix of its log.
        command: makes the argument list of one life, given that life's instance name.
        fatal_statuses: exit statuses that no restart will mend, as long as it never was settled.
        pass_fds: descriptors it inherits.
    """

    service: str
    slot: str
    command: Callable[[str], Sequence[str]]
    fatal_statuses: frozenset[int] = frozenset()
    pass_fds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One run of a program: the running process itself, not a wrapper around it."""

    service: str
    slot: str
    instance: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the supervisor waits for what.

    Attributes:
        restart_delay_s: before the first restart; doubles with each crash in a row.
        max_restart_delay_s: bound of that.
        settled_s: a life this long counts as a success; the delay starts anew.
        max_early_crashes: crashes in a row of one program that end everything, until `settled`.
        grace_s: from the polite signal to the kill.
        output_s: for the last lines of a program that has ended.
        roll_s: for a program that was restarted on purpose to be ready; then its turn is over.
    """

    restart_delay_s: float = 0.25
    max_restart_delay_s: float = 10.0
    settled_s: float = 30.0
    max_early_crashes: int = 5
    grace_s: float = 10.0
    output_s: float = 1.0
    roll_s: float = 600.0


@dataclass(slots=True)
class _Slot:
    program: Program
    stop: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)
    life: Life | None = None
    rolling: bool = False
    born: anyio.Event = field(default_factory=anyio.Event)


class Supervisor:
    """Programs that are kept running until they are stopped.

    `say` gets one line an event and `log` every line of a program's output with its slot;
    `changed` is called with all running lives whenever one has begun.

    Attributes:
        failed: set with the reason when a program cannot be kept running; stop everything then.
        failure: that reason.
    """

    def __init__(
        self,
        *,
        say: Callable[[str], None],
        log: Callable[[str, str], None],
        changed: Callable[[Sequence[Life]], None],
        environment: Mapping[str, str],
        patience: Patience,
    ) -> None:
        self._say = say
        self._log = log
        self._changed = changed
        self._environment = dict(environment)
        self._patience = patience
        self._slots: dict[str, _Slot] = {}
        self._settled = False
        self.failed = anyio.Event()
        self.failure = ""

    def settle(self) -> None:
        """From here on a crash is never a reason to give up: everything has worked once."""
        self._settled = True

    def start(self, tasks: anyio.abc.TaskGroup, program: Program) -> None:
        """Keep `program` running in `tasks`."""
        slot = self._slots[program.slot] = _Slot(program)
        tasks.start_soon(self._keep, slot)

    def give_up(self, reason: str) -> None:
        """Say that it makes no sense to go on; `failed` tells whoever waits for it."""
        self.failure = self.failure or reason
        self.failed.set()

    async def stop(self, services: Sequence[str] | None = None) -> None:
        """End the programs of these services (default: all): politely, then after the grace not."""
        chosen = [
            slot
            for slot in self._slots.values()
            if services is None or slot.program.service in services
        ]
        for slot in chosen:
            slot.stop.set()
            _send(slot.life, signal.SIGTERM, group=False)
        with anyio.move_on_after(self._patience.grace_s) as grace:
            for slot in chosen:
                await slot.ended.wait()
        if grace.cancelled_caught:
            late = [slot.program.slot for slot in chosen if not slot.ended.is_set()]
            self._say(f"killing {', '.join(late)}: still running after {self._patience.grace_s} s")
        self.kill([slot.program.slot for slot in chosen])
        for slot in chosen:
            await slot.ended.wait()

    async def roll(self, services: Sequence[str], ready: Callable[[Life], Awaitable[None]]) -> None:
        """Restart the programs of these services, in that order, one after another.

        Each is ended politely, and the next one's turn comes when `ready` says so of the new life.
        """
        for service in services:
            for slot in list(self._slots.values()):
                if slot.program.service == service and not slot.stop.is_set():
                    await self._roll(slot, ready)

    async def _roll(self, slot: _Slot, ready: Callable[[Life], Awaitable[None]]) -> None:
        slot.born, slot.rolling = anyio.Event(), True
        _send(slot.life, signal.SIGTERM, group=False)
        with anyio.move_on_after(self._patience.grace_s):
            await slot.born.wait()
        if not slot.born.is_set():
            _send(slot.life, signal.SIGKILL, group=True)
            await slot.born.wait()
        with anyio.move_on_after(self._patience.roll_s) as patience:
            if slot.life is not None:
                await ready(slot.life)
        late = " (not ready yet)" if patience.cancelled_caught else ""
        self._say(f"{slot.program.slot} was restarted{late}")

    def kill(self, slots: Sequence[str] | None = None) -> None:
        """End these programs (default: all) at once, with all they started."""
        for name, slot in self._slots.items():
            if slots is None or name in slots:
                slot.stop.set()
                _send(slot.life, signal.SIGKILL, group=True)

    async def _keep(self, slot: _Slot) -> None:
        program, patience = slot.program, self._patience
        crashes = 0
        while not slot.stop.is_set():
            born = anyio.current_time()
            status = await self._live(slot)
            if slot.stop.is_set():
                break
            if slot.rolling:
                crashes = 0
                continue
            crashes = 1 if anyio.current_time() - born > patience.settled_s else crashes + 1
            if not self._settled and self._is_hopeless(program, status, crashes):
                break
            doubled = patience.restart_delay_s * 2 ** min(crashes - 1, 20)
            delay = min(doubled, patience.max_restart_delay_s)
            self._say(f"{program.slot} {_how_ended(status)}; restarting it in {delay:g} s")
            with anyio.move_on_after(delay):
                await slot.stop.wait()
        slot.ended.set()

    def _is_hopeless(self, program: Program, status: int, crashes: int) -> bool:
        if status not in program.fatal_statuses and crashes < self._patience.max_early_crashes:
            return False
        self.give_up(f"{program.slot} {_how_ended(status)} and cannot be started")
        return True

    async def _live(self, slot: _Slot) -> int:
        """Run the program once; its exit status, negative for a signal."""
        program = slot.program
        instance = f"{program.slot}-{secrets.token_hex(3)}"
        shim = [sys.executable, "-I", "-S", _CHILD, str(os.getpid())]
        process = await anyio.open_process(
            [*shim, *program.command(instance)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=program.pass_fds,
            env=self._environment,
        )
        slot.life = Life(
            service=program.service, slot=program.slot, instance=instance, pid=process.pid
        )
        slot.rolling = False
        slot.born.set()
        try:
            self._changed([s.life for s in self._slots.values() if s.life])
            if slot.stop.is_set():
                # Told to stop while it was being started.
                _send(slot.life, signal.SIGTERM, group=False)
            return await self._follow(slot.life, process)
        finally:
            _send(slot.life, signal.SIGKILL, group=True)
            slot.life = None
            with anyio.CancelScope(shield=True):
                await process.aclose()

    async def _follow(self, life: Life, process: anyio.abc.Process) -> int:
        """Log its output until it has ended; then whatever it started is ended too."""
        async with anyio.create_task_group() as tasks:
            logged = anyio.Event()
            tasks.start_soon(self._pass_on, life.slot, process.stdout, logged)
            await process.wait()
            _send(life, signal.SIGKILL, group=True)
            with anyio.move_on_after(self._patience.output_s):
                await logged.wait()
            tasks.cancel_scope.cancel()
        return await process.wait()

    async def _pass_on(
        self, slot: str, output: anyio.abc.ByteReceiveStream | None, logged: anyio.Event
    ) -> None:
        pending = b""
        async for data in output or ():
            *lines, pending = (pending + data).split(b"\n")
            if len(pending) > _LINE_BYTES:
                lines, pending = [*lines, pending], b""
            for line in lines:
                self._log(slot, line.decode(errors="replace"))
        if pending:
            self._log(slot, pending.decode(errors="replace"))
        logged.set()


def _send(life: Life | None, number: signal.Signals, *, group: bool) -> None:
    if life is None:
        return
    with contextlib.suppress(ProcessLookupError):  # it may have been quicker
        (os.killpg if group else os.kill)(life.pid, number)


def _how_ended(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"exited with status {status}"
