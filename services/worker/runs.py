"""A job that holds a slot of this worker, and the ways it can end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import anyio
from opentelemetry.trace import INVALID_SPAN, Span

from services.worker.engine import Step, run_name
from toolrail.bus.port import WorkItem
from toolrail.messages import FailureCode, Job

Ending: TypeAlias = Literal[
    "cancelled", "complete", "orphaned", "deadline", "superseded", "released", "stopped"
]
"""Why this worker ended a run itself: the client left; the answer has all that it is to have; the
postprocessor died; too late; a newer attempt came; given back before it started; cut off at the end
of the drain."""


@dataclass(slots=True, eq=False)
class Run:
    """One delivery of a job, from its admission on.

    Attributes:
        item: the delivery to settle; a later delivery of the same job replaces it.
        job: what to generate.
        taken_s: when it came, on the monotonic clock.
        acked: whether its first token was sent, with which it is taken off the queue for good.
        seq: number of the next delta.
        tokens: ids sent.
        first_token_s: when the first delta left.
        wanted_s: when its postprocessor was last known to live; 0: never, so nothing follows.
        ending: set when this worker ends the run itself; nothing more is sent of it but its end.
        settled: set once the acknowledgement was sent.
        over: set once the slot is free.
        span: its span, once it has a slot and where it is traced.
    """

    item: WorkItem
    job: Job
    taken_s: float
    acked: bool = False
    seq: int = 0
    tokens: int = 0
    first_token_s: float = 0.0
    wanted_s: float = 0.0
    ending: Ending | None = None
    settled: anyio.Event = field(default_factory=anyio.Event)
    over: anyio.Event = field(default_factory=anyio.Event)
    span: Span = INVALID_SPAN

    @property
    def name(self) -> str:
        """The engine's name of it."""
        return run_name(self.job)

    def waited_s(self) -> float:
        """How long its job has waited until now: for its turn, then in the queue.

        The latter is between the clocks of two machines.
        """
        return self.job.waited_s + max(0.0, time.time() - self.item.queued_s)


@dataclass(frozen=True, slots=True)
class End:
    """The last step of a run; when that is an error, whose fault it is and in which field."""

    step: Step
    error_code: FailureCode | None = None
    error_param: str | None = None


def failed(code: FailureCode, why: str, param: str | None = None) -> End:
    """The end of a run that failed."""
    return End(Step(finish="error", error=why), code, param)


ABORTED: Final = End(Step(finish="abort"))
TOO_LATE: Final = failed("deadline", "the deadline passed before the engine could start")
UNDELIVERABLE: Final = failed("engine", "every worker that tried this request ended")
_STOPPED: Final = failed("lost", "the worker was stopped before the run was over")
CUT: Final[dict[Ending, End]] = {
    "cancelled": ABORTED,
    "complete": ABORTED,
    "orphaned": ABORTED,
    "deadline": failed("deadline", "the deadline passed during generation"),
    "stopped": _STOPPED,
    "released": _STOPPED,  # its first token was under way and could not be taken back
}
"""What the postprocessor is told of runs that this worker ended; of the others, nothing."""
