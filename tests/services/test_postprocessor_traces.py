"""What the span of a stream says of steps, and that it is asked nothing where nobody records it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan

from services.postprocessor.choice import FinishedCall, Step
from services.postprocessor.stream import Outcome
from services.postprocessor.tracing import StreamTrace
from tests.services.postprocessor_bench import stream
from toolrail.events import CallEnd, CallStart, Event, ReasoningDelta, TextDelta
from toolrail.messages import ChoiceEnd, Usage
from toolrail.parsing import ParseSpec
from toolrail.telemetry import MAX_EVENTS_OF_A_KIND
from toolrail.telemetry.content import Content
from toolrail.tools import Tool

KEY = "sk-proj-" + "abcDEF0123456789" * 3


class Silent(NonRecordingSpan):
    """Fails a test that says something of it."""

    def __getattribute__(self, name: str) -> Any:
        assert not name.startswith(("add_", "set_")), name
        return super().__getattribute__(name)


def traced(*steps: Step, content: Content | None = None, **fields: Any) -> ReadableSpan:
    """The span of a stream that had these steps."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    span = provider.get_tracer("t").start_span("stream")
    trace = StreamTrace(span, stream(**fields), "hermes", content or Content())
    for step in steps:
        trace.observe(Outcome(step=step))
    trace.end(Usage(1, 2))
    span.end()
    (made,) = exporter.get_finished_spans()
    return made


def facts(span: ReadableSpan, name: str) -> list[dict[str, Any]]:
    return [dict(event.attributes or {}) for event in span.events if event.name == name]


def test_a_stream_that_is_not_recorded_is_told_nothing() -> None:
    trace = StreamTrace(Silent(INVALID_SPAN_CONTEXT), stream(), "hermes", Content("full"))
    call = FinishedCall("f", "complete")
    trace.observe(Outcome(step=Step([TextDelta("x")], calls=(call,)), resumed_s=1.0))
    trace.fail("engine")
    trace.end(Usage(1, 2))


def test_calls_are_bounded_and_counted_and_made_up_names_are_text() -> None:
    spec = ParseSpec(tools=(Tool(name="f" * 64),))
    calls = [FinishedCall("f" * 64, "complete", index=n, size=n) for n in range(100)]
    made_up = FinishedCall("hush-hush", "truncated", index=100)
    span = traced(Step(calls=(made_up, *calls)), parse=spec)
    told = facts(span, "toolrail.call")
    assert len(told) == MAX_EVENTS_OF_A_KIND
    assert (span.attributes or {})["toolrail.calls"] == 101
    assert [one["gen_ai.tool.name"] for one in told[:2]] == ["", "f" * 64]
    assert (told[2]["toolrail.call.index"], told[2]["toolrail.call.bytes"]) == (1, 1)
    assert "hush" not in span.to_json()


@pytest.mark.parametrize(
    ("starts_in", "events", "marker"),
    [
        ("none", [TextDelta("a"), CallStart(0, "f")], "call"),
        ("none", [ReasoningDelta("a")], "reasoning"),
        ("reasoning", [ReasoningDelta("a"), TextDelta("b")], "response"),
        ("reasoning", [ReasoningDelta("a"), CallStart(0, "f")], "call"),
        ("response", [TextDelta("a")], None),
    ],
)
def test_the_first_marker_is_told_once(
    starts_in: Any, events: list[Event], marker: str | None
) -> None:
    spec = ParseSpec(starts_in=starts_in)
    span = traced(Step(events), Step(events), parse=spec)
    told = [one["toolrail.marker"] for one in facts(span, "toolrail.first_marker")]
    assert told == ([] if marker is None else [marker])


def test_answers_are_gathered_as_far_as_they_fit() -> None:
    end = ChoiceEnd("stop")
    content = Content("redacted", max_bytes=2000)
    said = Step([TextDelta(f"It is {KEY}."), CallStart(0, "f"), CallEnd(0)], end=end)
    (answer,) = json.loads(
        (traced(said, content=content).attributes or {})["gen_ai.output.messages"]
    )  # type: ignore[arg-type]
    assert [part["type"] for part in answer["parts"]] == ["text", "tool_call"]
    assert answer["finish_reason"] == "stop"
    for length in range(7900, 8000, 7):
        long = [TextDelta("x" * length), TextDelta(f" {KEY[:20]}"), TextDelta(KEY[20:])]
        span = traced(Step(list[Event](long), end=end), content=content)
        assert "sk-proj" not in span.to_json()
        assert (span.attributes or {})["toolrail.content_cut"] is True
