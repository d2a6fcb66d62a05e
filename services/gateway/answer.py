"""What a streamed and an unstreamed answer have in common."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.gateway.objects import FinishReason
from toolrail.messages import ChoiceEnd, Usage


@dataclass(frozen=True, slots=True)
class Head:
    """What every chunk of a stream repeats, and an object that is not streamed says once."""

    id: str
    created: int
    model: str


@dataclass(slots=True)
class Tally:
    """What a request came to, for metrics and traces; counts only."""

    finish_reasons: list[FinishReason] = field(default_factory=list[FinishReason])
    complete_calls: int = 0
    incomplete_calls: int = 0
    usage: Usage | None = None


def finish_reason(end: ChoiceEnd, complete_calls: int) -> FinishReason:
    """The reason a client sees for an engine's `stop` or `length`.

    `length` stays, whatever was called before the cut; then `tool_calls` if a complete call was
    delivered; else `stop`. An incomplete call never makes it `tool_calls`: clients would run it.
    """
    if end.finish == "length":
        return "length"
    return "tool_calls" if complete_calls else "stop"
