"""What the span of a stream says: names, counts and times; nothing is gathered for none.

One span from the hand-over to the last word. What it is fed by has spans of its own: it is linked
to the run of each attempt at each choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from opentelemetry.trace import Span

from services.postprocessor.checking import Verdict
from services.postprocessor.choice import FinishedCall, Step
from services.postprocessor.run import Migration
from services.postprocessor.stream import Outcome
from toolrail import telemetry
from toolrail.events import (
    ArgumentsDelta,
    Call,
    CallStart,
    Event,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    Turn,
    assemble,
)
from toolrail.messages import Stream, Usage
from toolrail.telemetry import MAX_EVENTS_OF_A_KIND, semconv
from toolrail.telemetry.content import Content, Part, call_part, message, reasoning_part, text_part
from toolrail.tools import StartsIn

_CALLERS: Final = frozenset({"cancelled", "invalid_request", "not_found"})
"""Codes of failures that are not ours."""

_MOST_KEPT: Final = 4
"""Bytes of answers that are gathered, as a multiple of what one attribute may have."""

_MAX_PLACE: Final = 256
"""Characters of a place in a schema that the caller gave."""


class StreamTrace:
    """The span of one stream. `on`: it is recorded; where it is not, nothing here does anything."""

    def __init__(self, span: Span, stream: Stream, family: str, content: Content) -> None:
        self.span = span
        self._answers = Answers(content, stream.num_choices) if content.wanted(span) else None
        self.on = span.is_recording()
        self._family = family
        self._starts_in: StartsIn = stream.parse.starts_in
        self._offered = {tool.name for tool in stream.parse.tools} if self.on else set[str]()
        self._begun = False
        self._unmarked = set(range(stream.num_choices)) if self.on else set[int]()
        self._calls = 0
        self._checked = 0
        self._moves = 0
        self._markers_in_text = 0
        if self.on:
            self._describe(stream)

    def _describe(self, stream: Stream) -> None:
        self.span.set_attributes(
            {
                semconv.GEN_AI_REQUEST_MODEL: stream.model,
                semconv.GEN_AI_REQUEST_CHOICE_COUNT: stream.num_choices,
                semconv.REQUEST_ID: stream.request_id,
                semconv.FAMILY: self._family,
                semconv.TOOL_CHOICE: stream.parse.tool_choice,
                semconv.TOOLS: len(stream.parse.tools),
                semconv.STARTS_IN: self._starts_in,
                semconv.TERM: stream.term,
            }
        )
        if (tag := stream.guidance.structural_tag) is not None:
            self.span.set_attribute(semconv.TAG_HASH, telemetry.tag_hash(tag))

    def observe(self, outcome: Outcome) -> None:
        """Something happened to the stream."""
        if not self.on:
            return
        if outcome.run is not None:
            choice, attempt, worker, trace = outcome.run
            facts = {
                semconv.LINK: "run",
                semconv.CHOICE: choice,
                semconv.ATTEMPT: attempt,
                semconv.WORKER: worker,
            }
            telemetry.link(self.span, trace, facts)
        if outcome.migration is not None:
            self._moved(outcome.migration)
        if outcome.resumed_s is not None:
            facts = {semconv.CHOICE: outcome.choice, semconv.SECONDS: outcome.resumed_s}
            self.span.add_event(semconv.RESUMED_EVENT, facts)
        if outcome.step is not None:
            self._step(outcome.choice, outcome.step)
        self.checked(outcome.verdicts)

    def checked(self, verdicts: Iterable[Verdict]) -> None:
        """Checks were made."""
        if not self.on:
            return
        for verdict in verdicts:
            self._checked += 1
            if self._checked > MAX_EVENTS_OF_A_KIND:
                return
            facts = {
                semconv.RESULT: verdict.result,
                semconv.GEN_AI_TOOL_NAME: telemetry.shortened(verdict.tool),
                semconv.BROKEN: [place[:_MAX_PLACE] for place in verdict.broken],
            }
            self.span.add_event(semconv.CHECK_EVENT, facts)

    def released(self) -> None:
        """Another postprocessor has it."""
        self.span.add_event(semconv.RELEASED_EVENT)

    def end(self, usage: Usage) -> None:
        """It has come to an end, whichever."""
        if not self.on:
            return
        if self._answers is not None:
            self._answers.tell(self.span)
        self.span.set_attributes(
            {
                semconv.GEN_AI_USAGE_INPUT_TOKENS: usage.prompt_tokens,
                semconv.GEN_AI_USAGE_OUTPUT_TOKENS: usage.completion_tokens,
                semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: usage.cached_tokens,
                semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: usage.reasoning_tokens,
                semconv.CALLS: self._calls,
                semconv.MOVES: self._moves,
                semconv.CHECKS: self._checked,
                semconv.MARKERS_IN_TEXT: self._markers_in_text,
            }
        )

    def fail(self, code: str) -> None:
        """It fails, or was not taken."""
        if self.on:
            telemetry.fail(self.span, code, ours=code not in _CALLERS)
            facts = {semconv.FINISH: "error", semconv.CODE: code}
            self.span.add_event(semconv.FINISH_EVENT, facts)

    def _moved(self, moved: Migration) -> None:
        self._moves += 1
        facts = {
            semconv.CHOICE: moved.job.choice,
            semconv.ATTEMPT: moved.job.attempt,
            semconv.CAUSE: moved.cause,
            semconv.WORKER: moved.worker,
            semconv.TOKENS: len(moved.job.prefix_token_ids),
            semconv.SECONDS: moved.silent_s,
        }
        self.span.add_event(semconv.MIGRATION_EVENT, facts)

    def _step(self, choice: int, step: Step) -> None:
        if self._answers is not None:
            self._answers.feed(choice, step)
        if not self._begun and (step.says or step.calls):
            self._begun = True
            self.span.add_event(semconv.FIRST_TOKEN_EVENT, {semconv.CHOICE: choice})
        if choice in self._unmarked and (kind := self._marker(step)):
            self._unmarked.discard(choice)
            facts = {semconv.CHOICE: choice, semconv.MARKER: kind}
            self.span.add_event(semconv.FIRST_MARKER_EVENT, facts)
        for call in step.calls:
            self._calls += 1
            if self._calls <= MAX_EVENTS_OF_A_KIND:
                self.span.add_event(semconv.CALL_EVENT, self._call(choice, call))
        self._markers_in_text += step.markers_in_text
        if step.end is not None:
            facts = {semconv.CHOICE: choice, semconv.FINISH: step.end.finish}
            if step.end.stop is not None:
                facts[semconv.STOP] = "string" if isinstance(step.end.stop, str) else "token"
            self.span.add_event(semconv.FINISH_EVENT, facts)

    def _marker(self, step: Step) -> str:
        """Which structure the first marker in `step` begins; "" if there is none."""
        for event in step.events:
            if (kind := _kind(event)) != self._starts_in and kind != "response":
                return kind
            if self._starts_in == "reasoning" and kind == "response":
                return kind  # the marker was that of the reasoning's end
        return "call" if step.call_held else ""

    def _call(self, choice: int, call: FinishedCall) -> dict[str, str | int]:
        # A name that was not offered is the model's own text.
        name = call.name if call.name in self._offered else ""
        return {
            semconv.CHOICE: choice,
            semconv.CALL_INDEX: call.index,
            semconv.FAMILY: self._family,
            semconv.CALL_OUTCOME: call.outcome,
            semconv.CALL_BYTES: call.size,
            semconv.GEN_AI_TOOL_NAME: telemetry.shortened(name),
        }


def refused(code: str) -> None:
    """The hand-over of the current span is not taken."""
    if (span := telemetry.recorded()) is not None:
        telemetry.fail(span, code, ours=code not in _CALLERS)


class Answers:
    """What the choices of a stream say, where spans may hold it: as much as fits and no more."""

    def __init__(self, content: Content, num_choices: int) -> None:
        self._content = content
        self._room = content.max_bytes * _MOST_KEPT
        self._events: list[list[Event]] = [[] for _ in range(num_choices)]
        self._finish: dict[int, str] = {}
        self._broken: set[int] = set()

    def feed(self, choice: int, step: Step) -> None:
        """More of one. O(events)."""
        if step.end is not None:
            self._finish[choice] = step.end.finish
        for event in step.events:
            if choice in self._broken:
                return
            if isinstance(event, TextDelta | ReasoningDelta | ArgumentsDelta):
                self._room -= len(event.text)
            if self._room < 0:
                self._broken.add(choice)
            else:
                self._events[choice].append(event)

    def tell(self, span: Span) -> None:
        """All of them, as messages of the GenAI conventions."""
        said = [
            message("assistant", self._parts(choice), self._finish.get(choice, "error"))
            for choice in range(len(self._events))
        ]
        self._content.put(span, semconv.GEN_AI_OUTPUT_MESSAGES, said, cut=bool(self._broken))

    def _parts(self, choice: int) -> list[Part]:
        events = self._events[choice]
        parts = _parts(assemble(events))
        if choice in self._broken and events and isinstance(events[-1], TextDelta | ReasoningDelta):
            parts.pop()  # it breaks off, perhaps in the middle of what is to be blacked out
        return parts


def _parts(turn: Turn) -> list[Part]:
    found: list[Part] = []
    for item in turn.items:
        match item:
            case Reasoning(text):
                found.append(reasoning_part(text))
            case Text(text):
                found.append(text_part(text))
            case Call(name, arguments, call_id):
                found.append(call_part(call_id, name, arguments))
    return found


def _kind(event: Event) -> str:
    if isinstance(event, ReasoningDelta):
        return "reasoning"
    return "call" if isinstance(event, CallStart) else "response"
