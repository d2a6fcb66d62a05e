"""One choice of one request: token ids in, events out.

    ids → text (Detokenizer) → events (parser) → stop strings and the bound on calls
        → custom calls unwrapped

Pure: no clock, no bus. What comes out does not depend on how the ids were cut into deltas, except
that neighbouring deltas of one kind leave joined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import msgspec

from services.postprocessor.checking import (
    NO_ARGUMENTS,
    Check,
    Checker,
    InputChecker,
    Kept,
    first_of,
)
from services.postprocessor.joining import joined
from services.postprocessor.leaks import LeakWatch
from services.postprocessor.logprobs import visible
from services.postprocessor.stop import StopMatcher, StopStrings
from toolrail.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    TextDelta,
)
from toolrail.messages import (
    ChoiceEnd,
    FinishReason,
    Output,
    TokenDelta,
    TokenLogprob,
    VisibleLogprob,
)
from toolrail.parsing import StreamParser
from toolrail.parsing.custom import CustomCalls
from toolrail.tokens import Detokenizer, Tokenizer

CallOutcome: TypeAlias = Literal[
    "complete", "unchecked", "truncated", "malformed", "empty", "unknown_tool", "missing"
]
"""`unchecked`: complete, of a schema that nothing holds or checks; `truncated`: by the length limit
or a failure; `malformed`: what came was no call; `empty`: without the arguments that its tool
requires; `missing`: the choice had to call and ended without, which a grammar normally rules out.
"""

Recovery: TypeAlias = Literal["closed_by_end", "went_on"]
"""`closed_by_end`: a call that was whole when the output ended, without its closing marker;
`went_on`: what came was no call, and the parser read on behind it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What all choices of a request have in common.

    Attributes:
        keep: special tokens that come out as text, since the dialect's markers are made of them.
        ends: ids that end a choice without being part of its text, unless they are in `keep`.
        markers: the dialect's control strings, which visible text should not hold.
        tools: names of the offered tools.
        customs: names of those that are custom tools.
        needy: names of those that cannot be called without arguments.
        open_tools: names of those of whose arguments something is neither held nor checked.
        must_call: the tool choice asks for a call.
        reasons: whether the model may reason, so that ids must be looked at one by one.
        checkers: what checks the arguments of the tools of which the grammar does not hold all.
        answer: what checks the answer, likewise.
    """

    tokenizer: Tokenizer
    output: Output
    stop: StopStrings
    keep: Collection[str] = ()
    ends: frozenset[int] = frozenset()
    markers: Sequence[str] = ()
    tools: frozenset[str] = frozenset()
    customs: frozenset[str] = frozenset()
    needy: frozenset[str] = frozenset()
    open_tools: frozenset[str] = frozenset()
    must_call: bool = False
    reasons: bool = False
    checkers: Mapping[str, Checker | InputChecker] = field(
        default_factory=dict[str, Checker | InputChecker]
    )
    answer: Checker | None = None


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """A call that is over, for metrics and traces.

    Attributes:
        checked: a verdict on it is to come.
        index: its number in the choice.
        size: bytes of its arguments.
    """

    name: str
    outcome: CallOutcome
    checked: bool = False
    index: int = field(default=0, compare=False)
    size: int = field(default=0, compare=False)


@dataclass(slots=True)
class Step:
    """What one delta came to.

    Attributes:
        end: set when the choice is over.
        engine_runs_on: the choice ended here, not in the engine, whose run is to be cancelled.
        checks: of what is complete now.
        call_held: a call began that leaves when it is complete, which may take minutes: whoever
            waits for a first sign of an answer is to have one.
    """

    events: list[Event] = field(default_factory=list[Event])
    logprobs: tuple[VisibleLogprob, ...] = ()
    end: ChoiceEnd | None = None
    engine_runs_on: bool = False
    calls: tuple[FinishedCall, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    markers_in_text: int = 0
    checks: list[Check] = field(default_factory=list[Check])
    call_held: bool = False

    @property
    def says(self) -> bool:
        """Whether there is something to send of it."""
        return bool(self.events or self.logprobs or self.call_held or self.end is not None)


class Choice:
    """The state of one choice.

    Attributes:
        completion_tokens: ids the engine made for it, the one that ended it included.
        reasoning_tokens: those among them that made reasoning, its markers included as far as they
            came with it.
    """

    def __init__(self, plan: Plan, parser: StreamParser) -> None:
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self._plan = plan
        self._parser = parser
        self._detokenizer = Detokenizer(plan.tokenizer, plan.keep)
        self._stop = StopMatcher(plan.stop) if plan.stop else None
        self._leaks = LeakWatch(plan.markers)
        self._names: dict[int, str] = {}
        self._sizes: dict[int, int] = {}
        self._arguments: dict[int, Kept] = {}
        self._beginnings: dict[int, str] = {}
        self._customs = CustomCalls(plan.customs) if plan.customs else None
        self._answer = Kept(plan.answer) if plan.answer is not None else None
        self._complete_calls = 0
        self._unattributed = 0
        output = plan.output
        self._one_by_one = bool(plan.stop) or output.max_calls is not None or plan.reasons

    def feed(self, delta: TokenDelta) -> Step:
        """What `delta` makes certain. Nothing may be fed after a step with an `end`.

        Its `finish`, if it has one, is "stop" or "length". O(ids, and the text in them).
        """
        step = Step()
        ids = delta.token_ids
        if ends := delta.finish == "stop" and bool(ids) and ids[-1] in self._plan.ends:
            ids = ids[:-1]
        before = self.completion_tokens
        for portion in self._portions(ids):
            text = self._detokenizer.feed(portion)
            self.completion_tokens += len(portion)
            events = self._parser.feed(text) if text else []
            self._attribute(len(portion), events)
            if self._pass(events, step):
                step.engine_runs_on = delta.finish is None
                break
        if delta.logprobs is not None:
            step.logprobs = self._logprobs(delta.logprobs[: self.completion_tokens - before])
        if step.end is None and delta.finish is not None:
            self.completion_tokens += ends
            self._finish(delta.finish, delta.stop_token_id, step)
        if len(step.events) > 1:
            step.events = joined(step.events)
        return step

    def break_off(self, delta: TokenDelta) -> Step:
        """The last of a choice that fails: as `feed`, what was held back included, and no end."""
        step = self.feed(msgspec.structs.replace(delta, finish="length"))
        step.end = None
        match step.events:
            case [*_, CallEnd(complete=False)]:  # it is the failure that ends the call
                step.events.pop()
            case _:
                pass
        return step

    def _portions(self, ids: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
        """One by one where it matters after which id something happened, else all at once."""
        if len(ids) <= 1 or not self._one_by_one:
            return (ids,)
        return ((token_id,) for token_id in ids)

    def _finish(self, finish: FinishReason, stop_token_id: int | None, step: Step) -> None:
        text = self._detokenizer.finish()
        events = self._parser.feed(text) if text else []
        last = self._parser.finish(cut=finish == "length")
        closed = sum(isinstance(event, CallEnd) and event.complete for event in last)
        step.recoveries += ("closed_by_end",) * closed
        events += last
        self._attribute(0, events)
        if self._pass(events, step, broken="truncated" if finish == "length" else "malformed"):
            return
        self._flush_stop(step)
        if self._plan.must_call and finish == "stop" and not self._complete_calls:
            step.calls = (*step.calls, FinishedCall("", "missing"))
        if self._answer is not None and finish == "stop" and not self._complete_calls:
            step.checks.append(self._answer.check())
        step.end = ChoiceEnd(finish, stop_token_id)

    def _pass(self, events: Sequence[Event], step: Step, broken: CallOutcome | None = None) -> bool:
        """Take `events` into `step`. True when one of them ended the choice.

        `broken`: what a call is that breaks off with the output; None: the output goes on.
        """
        for event in events:
            if isinstance(event, TextDelta):
                if self._show(event.text, step):
                    return True
                continue
            self._flush_stop(step)
            if isinstance(event, CallStart):
                if self._enough_calls():
                    step.end = ChoiceEnd("stop")
                    return True
                self._begin(event)
            elif isinstance(event, CallEnd):
                done = self._finished(event, step, broken)
                size = self._sizes.pop(event.index, 0)
                step.calls = (*step.calls, replace(done, index=event.index, size=size))
            elif isinstance(event, ArgumentsDelta):
                self._keep(event)
            self._emit(event, step)
        return False

    def _emit(self, event: Event, step: Step) -> None:
        if self._customs is None:
            step.events.append(event)
            return
        events = self._customs.feed(event)
        step.events += events
        step.call_held = step.call_held or (isinstance(event, CallStart) and not events)

    def _begin(self, start: CallStart) -> None:
        self._names[start.index] = start.name
        if (checker := self._plan.checkers.get(start.name)) is not None:
            self._arguments[start.index] = Kept(checker)
        elif start.name in self._plan.needy:
            self._beginnings[start.index] = ""

    def _keep(self, delta: ArgumentsDelta) -> None:
        text = delta.text
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        self._sizes[delta.index] = self._sizes.get(delta.index, 0) + size
        if (begun := self._beginnings.get(delta.index)) is not None:
            if begun in ("", "{", "{}"):  # it may still be that of no arguments
                self._beginnings[delta.index] = first_of(begun + delta.text)
        elif (kept := self._arguments.get(delta.index)) is not None:
            kept.add(delta.text)

    def _show(self, text: str, step: Step) -> bool:
        """Visible text, as far as no stop string cuts it. True when one did."""
        hit = None
        if self._stop is not None:
            text, hit = self._stop.feed(text)
            if hit is not None and self._plan.output.include_stop:
                text += hit
        if text:
            self._visible(text, step)
        if hit is not None:
            step.end = ChoiceEnd("stop", hit)
        return hit is not None

    def _flush_stop(self, step: Step) -> None:
        """Held text cannot become a stop string once something else than text has come."""
        if self._stop is not None and (held := self._stop.flush()):
            self._visible(held, step)

    def _visible(self, text: str, step: Step) -> None:
        step.events.append(TextDelta(text))
        step.markers_in_text += self._leaks.feed(text)
        if self._answer is not None:
            self._answer.add(text)

    def _enough_calls(self) -> bool:
        """Whether one more call would be too many; those that broke off do not count."""
        max_calls = self._plan.output.max_calls
        return max_calls is not None and self._complete_calls + len(self._names) >= max_calls

    def _finished(self, end: CallEnd, step: Step, broken: CallOutcome | None) -> FinishedCall:
        name = self._names.pop(end.index, "")
        kept = self._arguments.pop(end.index, None)
        begun = self._beginnings.pop(end.index, None)
        if not end.complete:
            if broken is None:
                step.recoveries = (*step.recoveries, "went_on")
            return FinishedCall(name, broken or "malformed")
        self._complete_calls += 1
        if kept is not None:
            step.checks.append(kept.check())
            return FinishedCall(name, "complete", checked=True)
        if name in self._plan.tools:
            if begun in NO_ARGUMENTS:
                return FinishedCall(name, "empty")
            return FinishedCall(name, "unchecked" if name in self._plan.open_tools else "complete")
        if self._plan.checkers or self._plan.output.checks.fails:
            step.checks.append(Check(None))
        return FinishedCall(name, "unknown_tool")

    def _attribute(self, ids: int, events: Sequence[Event]) -> None:
        """Ids belong to what they made; those that made nothing yet, to what comes next."""
        self._unattributed += ids
        if events:
            if isinstance(events[0], ReasoningDelta):
                self.reasoning_tokens += self._unattributed
            self._unattributed = 0

    def _logprobs(self, entries: Sequence[TokenLogprob]) -> tuple[VisibleLogprob, ...]:
        top = self._plan.output.top_logprobs
        if top is None:
            return ()
        tokenizer, dropped = self._plan.tokenizer, self._detokenizer.dropped
        return tuple(
            visible(entry, tokenizer, top) for entry in entries if entry.token_id not in dropped
        )
