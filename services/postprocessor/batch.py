"""What comes of one message or one tick: what is to be sent, and what is to be counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.postprocessor.run import Drop
from services.postprocessor.stream import Outcome, RequestStream
from toolrail.messages import Cancel, EventDelta, Want


@dataclass(slots=True)
class Happening:
    """One stream and what came of it; `bug` when that was an exception of ours."""

    stream: RequestStream
    outcome: Outcome
    bug: Exception | None = None


@dataclass(slots=True)
class Batch:
    """What is to be sent and counted after one message or one tick.

    Attributes:
        events: deltas by destination, in order.
        cancels: by model, for its workers.
        receipts: of jobs that wait in the queue and are not wanted any more.
        dropped: reasons, one for each delta that was not used.
        wants: what is asked of workers, by model and instance; "" stands for all of the model.
        done: requests that are answered, by the worker that wrote them.
        released: streams that have a later owner.
    """

    events: dict[str, list[EventDelta]] = field(default_factory=dict[str, list[EventDelta]])
    cancels: list[tuple[str, Cancel]] = field(default_factory=list[tuple[str, Cancel]])
    receipts: list[str] = field(default_factory=list[str])
    happenings: list[Happening] = field(default_factory=list[Happening])
    dropped: list[Drop] = field(default_factory=list[Drop])
    wants: dict[tuple[str, str], list[Want]] = field(
        default_factory=dict[tuple[str, str], list[Want]]
    )
    done: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    released: list[RequestStream] = field(default_factory=list[RequestStream])
