"""Whether the engine will take a tag, found out before the request is admitted.

A tag is compiled in another process (`compile_worker`) under CPU, memory and wall budgets,
and the verdict is remembered by the tag's hash, so that the same tools cost microseconds the second
time. A hostile schema costs its sender a 400: the process that choked on it is killed and replaced,
and because one process is always kept for quick checks, others wait no longer than a slice.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict, deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import anyio

from services.preprocessor.compile_process import CompileProcess, CompileProcessError
from services.preprocessor.compile_worker import Answer
from toolrail.errors import CallerError, FaultError, QueueFullError
from toolrail.settings import PreprocessorSettings

_SPARE: Final = 1
"""Processes beyond `compile_workers`, so that quick checks pass while long ones run."""
_MAX_REASON_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True)
class _Refusal:
    code: str
    message: str

    def error(self) -> CallerError:
        return CallerError(self.message, code=self.code)


_Verdict: TypeAlias = _Refusal | None
"""None: the tag compiles within the budgets."""


@dataclass(slots=True)
class CompileStats:
    """Counts since the start, for metrics.

    Attributes:
        hits: checks answered from the cache.
        joined: checks that waited for an identical one already running.
        compiled: checks that ran and passed.
        refused: checks that ran and were refused, budgets included.
        replaced: processes that were killed, died or retired.
    """

    hits: int = 0
    joined: int = 0
    compiled: int = 0
    refused: int = 0
    replaced: int = 0


@dataclass(slots=True)
class _Running:
    """An identical check in progress; `outcome` is set when `done` is."""

    done: anyio.Event = field(default_factory=anyio.Event)
    outcome: _Verdict | FaultError = None
    known: bool = False


class CompileCheck:
    """Checks tags on `compile_workers` + 1 processes: `start`, any number of `check`, `stop`."""

    def __init__(self, settings: PreprocessorSettings) -> None:
        self._settings = settings
        self.stats: Final = CompileStats()
        self._verdicts: OrderedDict[bytes, _Verdict] = OrderedDict()
        self._running: dict[bytes, _Running] = {}
        self._free: deque[CompileProcess] = deque()
        self._all: set[CompileProcess] = set()
        processes = settings.compile_workers + _SPARE
        self._turns = anyio.Semaphore(processes, fast_acquire=True)
        self._long_turns = anyio.Semaphore(settings.compile_workers, fast_acquire=True)
        self._stopped = False

    @property
    def processes(self) -> tuple[int, ...]:
        """The ids of the live processes."""
        return tuple(process.pid for process in self._all)

    async def start(self) -> None:
        """Returns once every process has loaded the engine.

        Raises:
            FaultError: a process ended or took longer than `compile_start_timeout_s`.
        """
        for _ in range(self._settings.compile_workers + _SPARE):
            self._free.append(await self._spawn())
        with self._loading():
            for process in self._free:
                await process.ready()

    async def stop(self) -> None:
        """Ends all processes; checks still running end with a FaultError."""
        self._stopped = True
        for process in tuple(self._all):
            await self._discard(process)
        self._free.clear()

    async def check(self, tag_json: str) -> bool:
        """Returns if the engine takes the tag within the budgets; True: that was known already.

        A remembered verdict costs one hash; identical checks share one run.

        Raises:
            CallerError: 400 with the reason. `code` is `invalid_grammar` for what the engine
                refuses, `grammar_too_expensive` for what exceeds a budget.
            QueueFullError: no process came free within `compile_queue_timeout_s`.
            FaultError: our process died and so did its replacement.
        """
        key = hashlib.sha256(tag_json.encode("utf-8", "surrogatepass")).digest()
        while True:
            if key in self._verdicts:
                self._verdicts.move_to_end(key)
                self.stats.hits += 1
                _raise_if_refused(self._verdicts[key])
                return True
            running = self._running.get(key)
            if running is None:
                _raise_if_refused(await self._lead(key, tag_json))
                return False
            await running.done.wait()
            if running.known:
                self.stats.joined += 1
                _raise_if_refused(running.outcome)
                return False
            # Its leader was cancelled while it waited for a turn: lead it ourselves.

    async def _lead(self, key: bytes, tag_json: str) -> _Verdict:
        running = self._running[key] = _Running()
        try:
            verdict = await self._judge(tag_json)
            running.outcome, running.known = verdict, True
            self._remember(key, verdict)
            return verdict
        except FaultError as fault:
            running.outcome, running.known = fault, True
            raise
        finally:
            del self._running[key]
            running.done.set()

    def _remember(self, key: bytes, verdict: _Verdict) -> None:
        self._verdicts[key] = verdict
        while len(self._verdicts) > self._settings.compile_cache_entries:
            self._verdicts.popitem(last=False)
        if verdict is None:
            self.stats.compiled += 1
        else:
            self.stats.refused += 1

    async def _judge(self, tag_json: str) -> _Verdict:
        """Runs the check: in a slice at first, and, if that is not enough, as a long one."""
        settings = self._settings
        with self._waiting() as wait:
            async with self._turns:
                wait.deadline = math.inf
                answer = await self._run(tag_json, settings.compile_slice_s, may_go_on=True)
        if answer is None:
            # All long turns are taken. What ran is lost; it was at most a slice.
            with self._waiting() as wait:
                async with self._long_turns, self._turns:
                    wait.deadline = math.inf
                    answer = await self._run(tag_json, settings.compile_timeout_s, may_go_on=False)
        if answer is None:
            return _too_expensive(f"compiling it takes more than {settings.compile_timeout_s:g} s")
        return _verdict(answer)

    async def _run(self, tag_json: str, limit_s: float, *, may_go_on: bool) -> Answer | None:
        """The answer, or None if `limit_s` was not enough. The caller holds a turn.

        A client that leaves does not stop a run: it is short, and its verdict is worth keeping.
        """
        with anyio.CancelScope(shield=True):
            try:
                process = self._free.popleft() if self._free else await self._spawn()
                return await self._attempt(process, tag_json, limit_s, may_go_on=may_go_on)
            except CompileProcessError:
                if self._stopped:
                    raise
                # The replacement, which was put last.
                process = self._free.pop() if self._free else await self._spawn()
                return await self._attempt(process, tag_json, limit_s, may_go_on=may_go_on)

    async def _attempt(
        self, process: CompileProcess, tag_json: str, limit_s: float, *, may_go_on: bool
    ) -> Answer | None:
        answer: Answer | None = None
        try:
            with self._loading():
                await process.ready()
            began = anyio.current_time()
            with anyio.move_on_after(self._settings.compile_timeout_s):
                await process.ask(tag_json)
                with anyio.move_on_at(began + limit_s):
                    answer = await process.answer()
                if answer is None and may_go_on:
                    answer = await self._go_on(process)
            return answer
        finally:
            await self._put_back(process, usable=answer is not None and not answer.retire)

    async def _go_on(self, process: CompileProcess) -> Answer | None:
        """Lets a check that used up its slice run on if a long turn is free."""
        try:
            self._long_turns.acquire_nowait()
        except anyio.WouldBlock:
            return None
        try:
            return await process.answer()
        finally:
            self._long_turns.release()

    async def _put_back(self, process: CompileProcess, *, usable: bool) -> None:
        if usable and not self._stopped:
            self._free.appendleft(process)
            return
        await self._discard(process)
        self.stats.replaced += 1
        if not self._stopped:
            # Loads the engine by itself, behind those that are ready.
            self._free.append(await self._spawn())

    @contextmanager
    def _waiting(self) -> Generator[anyio.CancelScope]:
        """Bounds the wait for a turn; whoever has got it sets the scope's deadline to never."""
        limit_s = self._settings.compile_queue_timeout_s
        try:
            with anyio.fail_after(limit_s) as scope:
                yield scope
        except TimeoutError as error:
            raise QueueFullError(f"no compile process came free in {limit_s:g} s") from error

    @contextmanager
    def _loading(self) -> Generator[None]:
        limit_s = self._settings.compile_start_timeout_s
        try:
            with anyio.fail_after(limit_s):
                yield
        except TimeoutError as error:
            raise CompileProcessError(
                f"a compile process did not load the engine in {limit_s:g} s"
            ) from error

    async def _spawn(self) -> CompileProcess:
        if self._stopped:
            raise CompileProcessError("the compile check is stopped")
        process = await CompileProcess.start(
            self._settings.compile_cpu_s, self._settings.compile_memory_bytes
        )
        self._all.add(process)
        return process

    async def _discard(self, process: CompileProcess) -> None:
        self._all.discard(process)
        await process.kill()


def _verdict(answer: Answer) -> _Verdict:
    if answer.error is None:
        return None
    if answer.out_of_memory:
        return _too_expensive("compiling it takes too much memory")
    if answer.too_slow:
        return _too_expensive(answer.error)
    reason = answer.error[:_MAX_REASON_CHARACTERS]
    return _Refusal(
        "invalid_grammar", f"The grammar of the tools or of the response cannot be built: {reason}"
    )


def _too_expensive(reason: str) -> _Refusal:
    return _Refusal(
        "grammar_too_expensive",
        f"The grammar of the tools or of the response is too expensive: {reason}. Simplify the "
        "schemas: fewer optional properties, shorter patterns, less nesting.",
    )


def _raise_if_refused(outcome: _Verdict | FaultError) -> None:
    if isinstance(outcome, _Refusal):
        raise outcome.error()
    if outcome is not None:
        raise outcome
