"""The supervisor with real, small processes: no services, no server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from tests.processes import alive, until_dead
from toolrail.cli.supervisor import Life, Patience, Program, Supervisor

pytestmark = pytest.mark.anyio

QUICK = Patience(restart_delay_s=0.001, max_restart_delay_s=0.002, grace_s=5.0)
FOREVER = "import signal; print('up', flush=True); signal.pause()"


def program(code: str, *, service: str = "worker", slot: str = "worker", **more: object) -> Program:
    python = [sys.executable, "-I", "-S", "-c", textwrap.dedent(code)]
    return Program(service=service, slot=slot, command=lambda name: [*python, name], **more)  # pyright: ignore[reportArgumentType]


@dataclass
class Watched:
    """A supervisor with everything it reported."""

    patience: Patience
    said: list[str] = field(default_factory=list[str])
    logged: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    lives: list[Sequence[Life]] = field(default_factory=list[Sequence[Life]])
    supervisor: Supervisor = field(init=False)

    def __post_init__(self) -> None:
        self.news = anyio.Event()
        self.supervisor = Supervisor(
            say=lambda line: self._note(self.said, line),
            log=lambda slot, line: self._note(self.logged, (slot, line)),
            changed=lambda lives: self._note(self.lives, lives),
            environment=os.environ,
            patience=self.patience,
        )

    def _note(self, notes: list[object], note: object) -> None:
        notes.append(note)
        self.news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(20):
            while not condition():
                await self.news.wait()
                self.news = anyio.Event()


@asynccontextmanager
async def watched(*programs: Program, patience: Patience = QUICK) -> AsyncIterator[Watched]:
    watch = Watched(patience)
    async with anyio.create_task_group() as tasks:
        for each in programs:
            watch.supervisor.start(tasks, each)
        yield watch
        await watch.supervisor.stop()


async def test_programs_are_restarted_one_after_another_when_the_one_before_is_ready() -> None:
    programs = [program(FOREVER, slot=slot) for slot in ("worker-1", "worker-2")]
    async with watched(*programs) as watch:
        await watch.until(lambda: bool(watch.lives) and len(watch.lives[-1]) == 2)
        await watch.until(lambda: len(watch.logged) == 2)
        before = {life.slot: life for life in watch.lives[-1]}
        seen: list[tuple[Life, bool]] = []

        async def ready(life: Life) -> None:
            other = next(one for slot, one in before.items() if slot != life.slot)
            seen.append((life, alive(other.pid)))

        await watch.supervisor.roll(["worker"], ready)
    assert [(life.slot, other_runs) for life, other_runs in seen] == [
        ("worker-1", True),
        ("worker-2", False),
    ]
    assert all(life.instance != before[life.slot].instance for life, _ in seen)
    assert [line for line in watch.said if "restarting" in line] == []


async def test_a_program_that_does_not_end_is_killed_and_started_again() -> None:
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True)\n"
    stubborn += "while True: signal.pause()"
    patience = Patience(grace_s=0.05)
    async with watched(program(stubborn), patience=patience) as watch:
        await watch.until(lambda: len(watch.logged) == 1)
        first = watch.lives[-1][0]

        async def ready(life: Life) -> None:
            assert life.pid != first.pid

        await watch.supervisor.roll(["worker"], ready)
        until_dead(first.pid)


async def test_output_is_logged_line_by_line_under_the_slot_even_without_a_last_newline() -> None:
    code = "import sys; sys.stdout.write('one\\ntwo'); sys.stderr.write('three'); sys.exit()"
    async with watched(program(code, slot="worker-2")) as watch:
        await watch.until(lambda: len(watch.logged) >= 2)
    assert watch.logged[:2] == [("worker-2", "one"), ("worker-2", "twothree")]


async def test_a_killed_program_comes_back_as_another_process_and_instance() -> None:
    async with watched(program(FOREVER)) as watch:
        await watch.until(lambda: len(watch.logged) == 1)
        (first,) = watch.lives[-1]
        os.kill(first.pid, signal.SIGKILL)
        await watch.until(lambda: len(watch.logged) == 2)
        (second,) = watch.lives[-1]
    assert "worker was ended by SIGKILL; restarting it" in watch.said[0]
    assert (first.pid, first.instance) != (second.pid, second.instance)
    assert first.instance.startswith("worker-")


async def test_the_reported_process_is_the_program_itself() -> None:
    code = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    async with watched(program(code)) as watch:
        await watch.until(lambda: bool(watch.logged))
        assert watch.logged == [("worker", str(_pid(watch, "worker")))]


async def test_the_delay_doubles_up_to_its_bound_with_each_crash_in_a_row() -> None:
    patience = Patience(restart_delay_s=0.001, max_restart_delay_s=0.004)
    async with watched(program("raise SystemExit(3)"), patience=patience) as watch:
        watch.supervisor.settle()
        await watch.until(lambda: len(watch.said) >= 4)
    delays = [line.rsplit("in ")[-1] for line in watch.said[:4]]
    assert delays == ["0.001 s", "0.002 s", "0.004 s", "0.004 s"]
    assert "exited with status 3" in watch.said[0]


async def test_a_status_that_no_restart_mends_fails_the_start_at_once() -> None:
    hopeless = program("raise SystemExit(2)", fatal_statuses=frozenset({2}))
    async with watched(hopeless) as watch:
        with anyio.fail_after(20):
            await watch.supervisor.failed.wait()
    assert watch.supervisor.failure == "worker exited with status 2 and cannot be started"
    assert len(watch.lives) == 1


async def test_a_program_that_never_stays_up_fails_the_start_after_a_few_tries() -> None:
    async with watched(program("raise SystemExit(1)")) as watch:
        with anyio.fail_after(20):
            await watch.supervisor.failed.wait()
    assert len(watch.lives) == QUICK.max_early_crashes


async def test_after_everything_worked_once_no_status_is_a_reason_to_give_up() -> None:
    hopeless = program("raise SystemExit(2)", fatal_statuses=frozenset({2}))
    async with watched(hopeless) as watch:
        watch.supervisor.settle()
        await watch.until(lambda: len(watch.said) > QUICK.max_early_crashes)
        assert not watch.supervisor.failed.is_set()


async def test_what_a_program_leaves_behind_ends_with_it() -> None:
    code = f"""
        import subprocess, sys, signal
        left = subprocess.Popen([sys.executable, "-I", "-S", "-c", {FOREVER!r}])
        print(left.pid, flush=True)
        signal.pause()
    """
    async with watched(program(code)) as watch:
        await watch.until(lambda: len(watch.logged) == 2)
        left = int(next(line for _, line in watch.logged if line != "up"))
        os.kill(_pid(watch, "worker"), signal.SIGKILL)
        await watch.until(lambda: bool(watch.said))
    until_dead(left)


async def test_stopping_ends_only_the_services_named_and_lets_them_say_goodbye() -> None:
    polite = """
        import signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("bye")))
        print("up", flush=True)
        signal.pause()
    """
    programs = program(polite), program(FOREVER, service="nats", slot="nats")
    async with watched(*programs) as watch:
        await watch.until(lambda: len(watch.logged) == 2)
        await watch.supervisor.stop(["worker"])
        assert ("worker", "bye") in watch.logged
        assert alive(_pid(watch, "nats"))
    assert watch.said == []


async def test_what_ignores_the_polite_signal_is_killed_after_the_grace() -> None:
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {FOREVER}"
    patience = Patience(grace_s=0.01)
    async with watched(program(deaf), patience=patience) as watch:
        await watch.until(lambda: len(watch.logged) == 1)
        pid = _pid(watch, "worker")
    assert watch.said == ["killing worker: still running after 0.01 s"]
    assert not alive(pid)


def test_programs_die_with_a_supervisor_that_is_killed() -> None:
    code = f"""
        import anyio, os
        from toolrail.cli.supervisor import Patience, Program, Supervisor

        async def main():
            supervisor = Supervisor(
                say=print, log=lambda *_: print("up", flush=True), environment=os.environ,
                changed=lambda lives: print(lives[0].pid, flush=True), patience=Patience(),
            )
            command = [{sys.executable!r}, "-I", "-S", "-c", {FOREVER!r}]
            async with anyio.create_task_group() as tasks:
                supervisor.start(
                    tasks, Program(service="a", slot="a", command=lambda _: command)
                )

        anyio.run(main)
    """
    started = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    with started as supervisor:
        assert supervisor.stdout
        child = int(supervisor.stdout.readline())
        assert supervisor.stdout.readline() == "up\n"
        supervisor.kill()
        until_dead(child)


def _pid(watch: Watched, slot: str) -> int:
    return next(life.pid for life in watch.lives[-1] if life.slot == slot)
