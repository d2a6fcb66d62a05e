"""Constraints of requests, each made and checked once: the same tools cost next to nothing again.

Making one takes about a millisecond a tool, off the event loop; its tags are compiled elsewhere.
What was refused is not kept: the compile check remembers its own verdicts.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Final, Protocol, TypeAlias

import anyio
import msgspec

from toolrail.errors import CallerError, FaultError, QueueFullError
from toolrail.openai.chat import ChatRequest
from toolrail.openai.compilable import TOO_EXPENSIVE, blamed
from toolrail.openai.constraint import Constraint, Setting, Settling, same_constraint, settle
from toolrail.schema.enforcement import Status
from toolrail.telemetry import event, semconv, tag_hash

_MAX_KEPT_BYTES: Final = 64 << 20

Step: TypeAlias = "str | Constraint"
"""A tag to be checked, or the end."""


class TagCheck(Protocol):
    """Whether the engine takes a tag."""

    async def check(self, tag_json: str) -> bool:
        """Raises CallerError when it does not. Whether that was known before."""
        ...


@dataclass(frozen=True, slots=True)
class Settled:
    """A constraint, with what is said of it.

    Attributes:
        constraint: what holds the output.
        enforcement: its report, as JSON text.
        tag_hash: of its tag; "" without one.
        keywords: how many keywords of its schemas are in each state.
    """

    constraint: Constraint
    enforcement: str
    tag_hash: str
    keywords: Mapping[Status, int]

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return len(self.enforcement) * 3 + len(self.constraint.guidance.structural_tag or "") * 2


@dataclass(slots=True)
class _Counts:
    """The compile checks of one request, for its trace.

    Attributes:
        known: of how many the verdict was remembered.
        seconds: all of them together, waiting for a turn included.
    """

    checks: int = 0
    known: int = 0
    seconds: float = 0.0

    def tell(self, verdict: str) -> None:
        """An event of the current span."""
        facts = {
            semconv.CACHE_HIT: bool(self.checks) and self.known == self.checks,
            semconv.CHECKS: self.checks,
            semconv.SECONDS: self.seconds,
            semconv.VERDICT: verdict,
        }
        event(semconv.COMPILED_EVENT, facts)


class Constraining:
    """Settles constraints; one for a process.

    `budget_s`: all the checks of one request together. The schema at fault is searched for tool by
    tool; without it, whoever waits for the answer would give up first and send the request again.
    """

    def __init__(
        self,
        tags: TagCheck,
        in_thread: Callable[[Callable[[], Step]], Awaitable[Step]],
        budget_s: float,
    ) -> None:
        self._budget_s = budget_s
        self._tags = tags
        self._in_thread = in_thread
        self._kept: OrderedDict[bytes, Settled] = OrderedDict()
        self._kept_bytes = 0

    async def settled(self, request: ChatRequest, setting: Setting) -> Settled:
        """The constraint of `request`.

        Raises:
            CallerError: the engine cannot hold what must be held.
            FaultError: a check failed, or there was no turn for it in time.
        """
        material = same_constraint(request, setting)
        key = hashlib.blake2b(material, digest_size=16).digest()
        if key in self._kept:
            self._kept.move_to_end(key)
            event(semconv.COMPILED_EVENT, {semconv.CACHE_HIT: True, semconv.CHECKS: 0})
            return self._kept[key]
        param = "tools" if request.tools else "response_format"
        counts = _Counts()
        try:
            found = _with_report(await self._made(settle(request, setting), param, counts))
        except (CallerError, FaultError) as error:
            counts.tell(error.code or "refused")
            raise
        counts.tell("accepted")
        self._keep(key, found)
        return found

    async def _made(self, settling: Settling, param: str, counts: _Counts) -> Constraint:
        verdict: CallerError | None = None
        costly: CallerError | None = None
        with anyio.move_on_after(self._budget_s):
            while True:
                step = await self._in_thread(partial(_advanced, settling, verdict))
                if isinstance(step, Constraint):
                    return step
                verdict = await self._verdict(step, counts)
                if verdict is not None and verdict.code == TOO_EXPENSIVE:
                    costly = verdict
        if costly is not None:
            raise blamed(costly, param, f"'{param}'")
        raise QueueFullError("the grammars of the request could not be checked in time")

    async def _verdict(self, tag_json: str, counts: _Counts) -> CallerError | None:
        counts.checks += 1
        begun = perf_counter()
        try:
            counts.known += await self._tags.check(tag_json)
        except CallerError as refusal:
            return refusal
        finally:
            counts.seconds += perf_counter() - begun
        return None

    def _keep(self, key: bytes, settled: Settled) -> None:
        if key not in self._kept and settled.size <= _MAX_KEPT_BYTES // 8:
            self._kept[key] = settled
            self._kept_bytes += settled.size
        while self._kept_bytes > _MAX_KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= oldest.size


def _advanced(settling: Settling, verdict: CallerError | None) -> Step:
    try:
        return settling.send(verdict)
    except StopIteration as ended:
        return ended.value


def _with_report(constraint: Constraint) -> Settled:
    tag = constraint.guidance.structural_tag
    return Settled(
        constraint,
        msgspec.json.encode(constraint.report.to_json()).decode(),
        tag_hash(tag) if tag else "",
        constraint.report.counts(),
    )
