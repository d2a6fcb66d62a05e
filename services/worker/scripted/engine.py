"""The scripted engine: steps shared by all runs, paced or as fast as they are taken.

What it has in common with a real one: ids only, one step for all running requests, an id for the
end of text, refusals before the first step, slots, abort. What it plays comes from the script, or,
with `--obey-tag`, from a walk through the request's own grammar.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import anyio
import anyio.to_thread

from services.worker.engine import (
    DuplicateRunError,
    EngineDeadError,
    Step,
    refuse_impossible_prompt,
    run_name,
)
from services.worker.scripted.playback import Output, Playback, output
from services.worker.scripted.script import FIXED_ROW, Row
from services.worker.scripted.work import Turns, WalkAbandonedError
from toolrail.messages import Job
from toolrail.tokens import Tokenizer

LAST_WORDS_S: Final = 0.05
"""Time that frames of earlier steps have to leave before a scripted death."""

_CLOCK_GRAIN_S: Final = 0.001
"""Event loops keep time to about a millisecond: what is due within that is due."""

WALKS_AT_ONCE: Final = 32
"""Walks that take turns; more wait until one of these is done."""

_INLINE_DECODE: Final = 2048
"""Longest prompt, in ids, decoded without a thread."""


def kill_process() -> None:
    """Die as a killed process does: at once, without a word."""
    loop = asyncio.get_running_loop()
    loop.call_later(LAST_WORDS_S, os.kill, os.getpid(), signal.SIGKILL)


class Walker(Protocol):
    """What `--obey-tag` adds; see `services.worker.scripted.walk`."""

    def prepare(self) -> None:
        """Do once what every walk needs. Blocks."""
        ...

    def wants(self, job: Job) -> bool:
        """Whether there is a walk for the job."""
        ...

    def output(self, job: Job, pause: Callable[[], None] | None = None) -> Output | None:
        """The choice that the job's grammar allows; None when it has none. Blocks.

        Calls `pause` every few milliseconds of work.
        """
        ...


class _Run:
    """A live run: its playback once it is prepared, the steps not taken yet, who waits for them."""

    def __init__(self) -> None:
        self.playback: Playback | None = None
        self.due = 0.0
        self.steps: deque[Step] = deque()
        self.over = False
        self.preparing = anyio.CancelScope()
        self._dead = False
        self._waiter: asyncio.Future[None] | None = None

    def push(self, step: Step) -> None:
        if not self.over:
            self.over = step.finish is not None
            self.steps.append(step)
            self._wake()

    def cut(self, step: Step) -> None:
        """`step` is the last, and what was not taken is lost, an end among it too."""
        self.steps.clear()
        self.over = False
        self.push(step)
        self.preparing.cancel()

    def kill(self) -> None:
        self._dead = True
        self.preparing.cancel()
        self._wake()

    async def take(self) -> Step:
        while not self.steps:
            if self._dead:
                raise EngineDeadError("the scripted engine died")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self.steps.popleft()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


@dataclass(frozen=True, slots=True)
class Model:
    """What the scripted engine has of a model.

    `end_of_text`: ids that end a turn, the principal one first.
    """

    tokenizer: Tokenizer
    end_of_text: Sequence[int]
    context_length: int
    slots: int


class ScriptedEngine:
    """See `services.worker.engine.Engine`.

    `walker` None: tags are ignored, the script is played. `step_s` 0: steps follow one another as
    fast as they are taken. `die` is called for `die_after`; tests pass something milder.

    Attributes:
        started: runs taken since the start.
        steps: steps in which some run got ids.
    """

    def __init__(
        self,
        model: Model,
        rows: Sequence[Row] = (),
        *,
        walker: Walker | None = None,
        step_s: float = 0.0,
        die: Callable[[], None] = kill_process,
    ) -> None:
        self._model = model
        self._tokenizer = model.tokenizer
        self._rows = rows
        self._walker = walker
        self._step_s = step_s
        self._die = die
        self._runs: dict[str, _Run] = {}
        self._timer: asyncio.Handle | None = None
        self._dead = False
        self._walking = anyio.CapacityLimiter(WALKS_AT_ONCE)
        self._turns = Turns()
        self.started = 0
        self.steps = 0

    @property
    def slots(self) -> int:
        """How many runs it takes at once."""
        return self._model.slots

    @property
    def vocab_size(self) -> int:
        """Ids are below this."""
        return self._tokenizer.vocab_size

    @property
    def context_length(self) -> int:
        """Longest prompt and output together."""
        return self._model.context_length

    @property
    def live(self) -> set[str]:
        """Names of the runs that hold a slot."""
        return set(self._runs)

    async def start(self) -> None:
        """Prepare the vocabulary for walks, if there will be any."""
        if self._walker is not None:
            await anyio.to_thread.run_sync(self._walker.prepare)

    async def generate(
        self, job: Job, *, trace_headers: Mapping[str, str], redelivered: bool = False
    ) -> AsyncGenerator[Step]:
        """The run of `job`."""
        del trace_headers  # no spans of its own: it does nothing worth one
        name = run_name(job)
        self._check(job, name)
        run = self._runs[name] = _Run()
        self.started += 1
        try:
            with run.preparing:
                playback = await self._playback(job, may_die=job.attempt == 0 and not redelivered)
                self._begin(run, playback)
            while True:
                step = await run.take()
                yield step
                if step.finish is not None:
                    return
        finally:
            if self._runs.get(name) is run:
                del self._runs[name]

    async def abort(self, run: str) -> None:
        """End a run."""
        live = self._runs.pop(run, None)
        if live is not None:
            live.cut(Step(finish="abort"))

    async def health(self) -> None:
        """Raises EngineDeadError after `kill`."""
        if self._dead:
            raise EngineDeadError("the scripted engine died")

    async def stop(self) -> None:
        """End everything."""
        self.kill()

    def kill(self) -> None:
        """Die as a crashed engine does: every run learns it at once."""
        self._dead = True
        if self._timer is not None:
            self._timer.cancel()
        for run in self._runs.values():
            run.kill()

    def _check(self, job: Job, name: str) -> None:
        if self._dead:
            raise EngineDeadError("the scripted engine died")
        if name in self._runs:
            raise DuplicateRunError(f"a run of {name} is live")
        refuse_impossible_prompt(self, job)

    async def _playback(self, job: Job, *, may_die: bool) -> Playback:
        row = await self._row(job)
        whole: Output | None = None
        if self._walker is not None and self._walker.wants(job):
            whole = await self._walk(self._walker, job)
        if whole is None:
            ids = row.token_ids
            if ids is None:
                ids = await self._tokenizer.encode(row.text or "")
            whole = output(ids, row.finish, job, self._model.end_of_text)
        return Playback(job, row, whole, may_die=may_die, vocab_size=self.vocab_size)

    async def _walk(self, walker: Walker, job: Job) -> Output | None:
        """A walk in a thread, in turn with the others; one nobody waits for ends at its next."""
        left = False

        def pause() -> None:
            self._turns.give_way()
            if left:
                raise WalkAbandonedError

        def walk() -> Output | None:
            with self._turns:
                if left:
                    raise WalkAbandonedError
                return walker.output(job, pause)

        try:
            return await anyio.to_thread.run_sync(
                walk, abandon_on_cancel=True, limiter=self._walking
            )
        finally:
            left = True

    async def _row(self, job: Job) -> Row:
        prompt: str | None = None
        for row in self._rows:
            if not row.match:
                return row
            if prompt is None:
                prompt = await self._prompt_text(job.prompt_token_ids)
            if row.match in prompt:
                return row
        return FIXED_ROW

    async def _prompt_text(self, ids: Sequence[int]) -> str:
        if len(ids) <= _INLINE_DECODE:
            return self._tokenizer.decode(ids)
        return await anyio.to_thread.run_sync(self._tokenizer.decode, ids)

    # The step clock. Runs of one pace share its ticks, whenever they began: hence one step, and
    # one frame, for all of them.

    def _pace_s(self, playback: Playback) -> float:
        return max(self._step_s, playback.delay_s)

    def _begin(self, run: _Run, playback: Playback) -> None:
        if self._dead:
            run.kill()
        run.playback = playback
        pace = self._pace_s(playback)
        first = asyncio.get_running_loop().time() + playback.ttft_s
        run.due = math.ceil(first / pace) * pace if pace else first
        self._arm()

    def _arm(self) -> None:
        """Have `_tick` called when the next run is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = min((run.due for run, _ in self._running()), default=None)
        if due is None or self._dead:
            return
        loop = asyncio.get_running_loop()
        if due > loop.time():
            self._timer = loop.call_at(due, self._tick)
        else:
            self._timer = loop.call_soon(self._tick)

    def _running(self) -> list[tuple[_Run, Playback]]:
        return [
            (run, run.playback)
            for run in self._runs.values()
            if run.playback is not None and not run.over
        ]

    def _tick(self) -> None:
        """One step: the next ids of every run that is due."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        self.steps += 1
        for run, playback in self._running():
            if run.due > now + _CLOCK_GRAIN_S:
                continue
            if playback.dies_now:
                run.over = True
                self._die()
                continue
            run.push(playback.next_step())
            pace = self._pace_s(playback)
            run.due += pace
            if run.due <= now:  # free running, or the process was held up: the next tick from now
                run.due = (math.floor(now / pace) + 1) * pace if pace else now
        self._arm()
