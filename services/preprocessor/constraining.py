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
from typing import Final, Protocol, TypeAlias

import anyio
import msgspec

from toolrail.errors import CallerError, QueueFullError
from toolrail.openai.chat import ChatRequest
from toolrail.openai.compilable import TOO_EXPENSIVE, blamed
from toolrail.openai.constraint import Constraint, Setting, Settling, same_constraint, settle
from toolrail.schema.enforcement import Status

_MAX_KEPT_BYTES: Final = 64 << 20

Step: TypeAlias = "str | Constraint"
"""A tag to be checked, or the end."""


class TagCheck(Protocol):
    """Whether the engine takes a tag."""

    async def check(self, tag_json: str) -> None:
        """Raises CallerError when it does not."""
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
            return self._kept[key]
        param = "tools" if request.tools else "response_format"
        found = _with_report(await self._made(settle(request, setting), param))
        self._keep(key, found)
        return found

    async def _made(self, settling: Settling, param: str) -> Constraint:
        verdict: CallerError | None = None
        costly: CallerError | None = None
        with anyio.move_on_after(self._budget_s):
            while True:
                step = await self._in_thread(partial(_advanced, settling, verdict))
                if isinstance(step, Constraint):
                    return step
                verdict = await self._verdict(step)
                if verdict is not None and verdict.code == TOO_EXPENSIVE:
                    costly = verdict
        if costly is not None:
            raise blamed(costly, param, f"'{param}'")
        raise QueueFullError("the grammars of the request could not be checked in time")

    async def _verdict(self, tag_json: str) -> CallerError | None:
        try:
            await self._tags.check(tag_json)
        except CallerError as refusal:
            return refusal
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
        hashlib.blake2b(tag.encode(), digest_size=8).hexdigest() if tag else "",
        constraint.report.counts(),
    )
