"""What a streamed and an unstreamed answer have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from services.gateway.objects import FinishReason
from toolrail.messages import ChoiceEnd, Failed, Usage

Stage: TypeAlias = Literal["hand_over", "wait", "stream"]
"""How far a request has come: to a preprocessor, waiting for its first event, streaming."""


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


def finish_reason(
    end: ChoiceEnd, complete_calls: int, of_calls: FinishReason = "tool_calls"
) -> FinishReason:
    """The reason a client sees for an engine's `stop` or `length`.

    `length` stays, whatever was called before the cut; then `of_calls` if a complete call was
    delivered; else `stop`. An incomplete call never makes it `tool_calls`: clients would run it.
    """
    if end.finish == "length":
        return "length"
    return of_calls if complete_calls else "stop"


@dataclass(slots=True)
class Outcome:
    """How a request went, for whoever counts and traces; no text of prompt or answer.

    Attributes:
        response_id: the `id` the client saw, or would have seen.
        model: the served model, empty while unknown.
        stream: whether the client asked for a stream.
        tokens: of prompt and answer together, as far as they are known; 0: it never began.
        first_event_s: from the last byte of the request to its first event; None: none came.
        failed: what the client was told, if it failed.
        left: what the client left, if it did: `hand_over`, `wait`, `stream`, or `slow` when it
            was cut off because it read too slowly.
    """

    response_id: str
    model: str = ""
    stream: bool = False
    tokens: int = 0
    first_event_s: float | None = None
    tally: Tally = field(default_factory=Tally)
    failed: Failed | None = None
    left: Stage | Literal["", "slow"] = ""
