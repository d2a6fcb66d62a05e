"""Custom calls in the postprocessor: whole, in order, counted, and a sign of life before."""

from __future__ import annotations

from dataclasses import replace

from services.postprocessor.choice import Choice, FinishedCall, Step
from services.postprocessor.stream import RequestStream
from tests.services.postprocessing import ToyParser, delta, plan
from toolrail.events import ArgumentsDelta, CallEnd, CallStart, Event, TextDelta
from toolrail.messages import ChoiceEnd, Job, Output, Sampling

# The toy parser writes `[name:arguments]`, arguments without a bracket.
WRAPPED = '{"input": "a\\nb"}'


def custom(output: Output | None = None) -> Choice:
    return Choice(replace(plan(output, tools=("f", "g")), customs=frozenset({"g"})), ToyParser())


def fed(made: Choice, *texts: str, finish: str = "stop") -> list[Step]:
    steps = [made.feed(delta(text, seq)) for seq, text in enumerate(texts)]
    return [*steps, made.feed(delta("", len(texts), finish=finish))]


def events(steps: list[Step]) -> list[Event]:
    return [event for step in steps for event in step.events]


def test_an_input_leaves_whole_between_its_neighbours() -> None:
    steps = fed(custom(), "x[g:", WRAPPED, "]y[f:1]")
    assert events(steps) == [
        TextDelta("x"),
        CallStart(0, "g", custom=True),
        ArgumentsDelta(0, "a\nb"),
        CallEnd(0),
        TextDelta("y"),
        CallStart(1, "f"),
        ArgumentsDelta(1, "1"),
        CallEnd(1),
    ]
    assert [call for step in steps for call in step.calls] == [
        FinishedCall("g", "complete"),
        FinishedCall("f", "complete"),
    ]


def test_a_cut_call_leaves_nothing_and_is_counted() -> None:
    steps = fed(custom(), "x[g:", '{"input": "a', finish="length")
    assert events(steps) == [TextDelta("x")]
    assert steps[-1].end == ChoiceEnd("length")
    assert [call for step in steps for call in step.calls] == [FinishedCall("g", "truncated")]


def test_the_bound_on_calls_counts_custom_calls_when_they_begin() -> None:
    made = custom(Output(max_calls=1))
    made.feed(delta("[g:1]"))
    step = made.feed(delta("[g:2", 1))
    assert step.events == []
    assert step.end == ChoiceEnd("stop")
    assert step.engine_runs_on


def test_a_call_that_is_held_back_is_a_sign_of_life() -> None:
    """Whoever waits for the first event would take a long input for silence."""
    made = RequestStream("r", "m", "g", prompt_tokens=7, deadline_ms=0)
    job = Job(request_id="r", model="m", sampling=Sampling(max_tokens=9), reply_subject="p")
    made.begin([custom()], [job], now_s=0)
    begun = made.take(delta("[g:"), "w", 0.0)
    (sign,) = begun.deltas
    assert (sign.events, sign.end, sign.seq) == ((), None, 0)
    assert made.take(delta("{", 1), "w", 0.0).deltas == []
    (whole,) = made.take(delta("}]", 2), "w", 0.0).deltas
    assert whole.seq == 1
    assert whole.events == (
        CallStart(0, "g", custom=True),
        ArgumentsDelta(0, "{}"),
        CallEnd(0),
    )
