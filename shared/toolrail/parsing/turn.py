"""The machine that owns a whole turn: reasoning, text and calls in one ordered list.

Prose is searched for the family's markers; an opener hands over to a `Block`, which reads the tool
markup and gives back. Chaining a reasoning parser and a tool parser instead would lose the order.
What is quoted, what is recovered and what is dropped is decided here, once for all families.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from toolrail.arguments.json_value import Read
from toolrail.arguments.output import Output
from toolrail.arguments.types import ToolTypes
from toolrail.events import Event
from toolrail.parsing import ParseSpec
from toolrail.parsing.blocks import Block, Reading
from toolrail.parsing.prose import Channel, Prose
from toolrail.parsing.quotes import closing
from toolrail.parsing.turn_grammar import (
    Grammar,
    MarkerKind,
    led_openers,
    marker_kinds,
    reasoning_markers,
    waits,
)
from toolrail.scan import Buffer, Markers, marker_set
from toolrail.syntax import ReasoningMarkers

_MAX_TRIALS: Final = 16
"""Blocks of a turn that may be read twice (quoted ones, ones that broke off): bounds the work."""
_LONG_TRIAL: Final = 512
"""Text after an opener that proved to be prose, and that is not read twice too often."""


class _State(Enum):
    PROSE = auto()
    BLOCK = auto()
    QUOTED_CALL = auto()  # a complete call after an open quote
    QUOTED_MARKER = auto()  # no complete call after an open quote
    GARBAGE = auto()  # a call broke off: up to the next closer or opener everything is its markup


class TurnParser:
    """Parses one choice of one request. See `parsing.StreamParser`."""

    def __init__(self, grammar: Grammar, spec: ParseSpec) -> None:
        self._grammar: Final = grammar
        self._tools: Final = ToolTypes(spec.tools)
        self._held: Final = spec.held
        self._buffer: Final = Buffer()
        self._output: Final = Output(mute_calls=spec.tool_choice == "none", buffer=self._buffer)
        self._kinds: Final = marker_kinds(grammar, spec)
        self._led: Final = led_openers(grammar)
        self._markers: Final[dict[Channel, Markers]] = {
            "text": marker_set(*self._kinds, *self._led),
            "reasoning": marker_set(*reasoning_markers(grammar, self._kinds)),
        }
        self._prose: Final = Prose(
            self._buffer, self._output, "reasoning" if spec.starts_in == "reasoning" else "text"
        )
        if waits(grammar, spec):
            self._prose.wait()
        self._state = _State.PROSE
        self._block: Block | None = None
        self._opener = ""
        self._quote: str | None = None
        self._calls_before = 0
        self._started_before = 0
        self._trials = 0
        if spec.starts_in != "reasoning" or grammar.reasoning is None:
            self._try_first()

    @property
    def work(self) -> int:
        """Characters looked at so far: the cost, for tests."""
        return self._buffer.work

    def feed(self, text: str) -> list[Event]:
        """Events that `text` makes certain. Amortised O(len(text))."""
        self._buffer.push(text)
        while self._step(final=False):
            pass
        return self._output.drain()

    def finish(self, *, cut: bool = False) -> list[Event]:
        """The rest. `cut`: a partial marker at the end is dropped, not shown."""
        self._buffer.cut = cut
        while self._step(final=True):
            pass
        self._prose.decide("text")
        self._output.end(complete=False)
        return self._output.drain()

    def _step(self, *, final: bool) -> bool:
        """One step; False when it needs more text."""
        match self._state:
            case _State.PROSE:
                return self._read_prose(final)
            case _State.BLOCK:
                return self._read_block(final)
            case _State.QUOTED_CALL:
                return self._read_quoted_call(final)
            case _State.QUOTED_MARKER:
                return self._read_quoted_marker(final)
            case _State.GARBAGE:
                return self._read_garbage(final)

    def _read_prose(self, final: bool) -> bool:
        prose = self._prose
        marker = prose.read(self._markers[prose.channel], final=final, cut=self._buffer.cut)
        if marker is None:
            return False
        bare = self._led.get(marker, marker)
        kind = self._kinds.get(bare, "boundary")
        reasoning = self._grammar.reasoning
        prose.decide("reasoning" if kind == "end" else "text")
        inside = prose.channel == "text" or reasoning is None or reasoning.calls_inside
        if kind == "open" and inside:
            return self._open(marker, bare)
        if kind == "open":
            kind = "boundary"
        strict = kind not in ("stray", "inner")
        quote = None if self._held else prose.context.open_quote(strict=strict)
        if quote is not None:
            quotation = prose.quotation(marker, quote, strict=strict, final=final)
            if quotation != "none":
                return quotation == "taken"
        if kind == "boundary":
            prose.channel = "text"
        else:
            self._buffer.take(len(marker))
        switch_channel(prose, kind, reasoning)
        if kind == "end":
            self._try_first()
        return True

    # --- tool markup ---

    def _try_first(self) -> None:
        first, output = self._grammar.first, self._output
        if first is None or output.complete_calls or self._prose.written:
            return
        self._opener = ""
        self._quote = None
        self._block = first(Reading(output, self._tools, careful=True))
        self._enter_block()
        output.hold()

    def _open(self, marker: str, opener: str) -> bool:
        lead = self._buffer.take(len(marker) - len(opener))
        context = self._prose.context
        if lead and context.fenced_after(lead):
            self._prose.put(lead)  # inside a code block it is a line of the block
        elif lead:
            context.reset()  # a line break ends a quotation
        believed = self._held or self._trials >= _MAX_TRIALS
        self._quote = None if believed else context.open_quote()
        self._opener = self._buffer.take(len(opener))
        self._start_block()
        return True

    def _start_block(self) -> None:
        careful = self._prose.channel == "reasoning"
        reading = Reading(self._output, self._tools, careful, self._held)
        self._block = self._grammar.block(self._opener, reading)
        self._enter_block()
        if careful or self._quote is not None:
            self._output.hold()

    def _enter_block(self) -> None:
        self._buffer.keep()
        self._calls_before = self._output.complete_calls
        self._started_before = self._output.started_calls
        self._state = _State.BLOCK

    def _read_block(self, final: bool) -> bool:
        assert self._block is not None
        status = self._block.read(self._buffer, final=final)
        self._release_certain_call()
        if status is Read.MORE and not final:
            return False
        if status is Read.MORE:
            self._buffer.take(len(self._buffer))
        complete = self._output.complete_calls > self._calls_before
        if self._quote is not None:
            self._state = _State.QUOTED_CALL if complete else _State.QUOTED_MARKER
            if not complete:
                self._output.discard()
                self._buffer.rewind()
                self._trials += 1
            return True
        self._end_block(status, complete)
        return True

    def _release_certain_call(self) -> None:
        """In reasoning a call is believed once its tool is known or it is complete."""
        output = self._output
        if output.holding and self._quote is None:
            known = output.started_calls > self._started_before and output.name in self._tools
            if known or output.complete_calls > self._calls_before:
                output.release()

    def _end_block(self, status: Read, complete: bool) -> None:
        assert self._block is not None
        if complete:
            self._output.release()
        if status is Read.BAD and not self._block.begun:
            self._not_a_call()
        elif status is Read.BAD:
            self._call_broke_off()
        else:
            self._output.end(complete=False)
            self._output.discard()
            self._buffer.forget()
            self._after_block()

    def _after_block(self) -> None:
        self._state = _State.PROSE
        self._prose.context.reset()
        if self._prose.channel == "text":
            self._prose.skip(self._grammar.separator)

    def _not_a_call(self) -> None:
        self._output.discard()
        self._state = _State.PROSE
        word = self._opener in self._grammar.words
        prose = "literal" if word else self._grammar.prose_after_opener
        if prose == "literal":
            self._as_prose()
            return
        self._buffer.rewind()
        if prose == "dropped" and self._opener and self._prose.channel == "text":
            self._state = _State.GARBAGE

    def _as_prose(self) -> None:
        """The opener was prose, and so may be what was read after it."""
        self._prose.put(self._opener)
        read = self._buffer.kept
        self._trials += len(read) > _LONG_TRIAL
        if self._trials > _MAX_TRIALS and len(read) > _LONG_TRIAL:
            self._buffer.forget()
            self._prose.put(read)
        else:
            self._buffer.rewind()

    def _call_broke_off(self) -> None:
        """Look for a good call that the broken one may have swallowed, else skip its rest."""
        buffer, output = self._buffer, self._output
        self._trials += 1
        held = output.holding
        output.discard()
        output.end(complete=False)
        kept = buffer.kept
        since = max(0, output.seen - (buffer.consumed - len(kept)))
        swallowed = marker_set(*self._grammar.openers).search(kept, since)
        self._prose.context.reset()
        self._state = _State.PROSE
        if self._trials > _MAX_TRIALS or (swallowed is None and not held):
            buffer.forget()
            self._state = _State.GARBAGE
        else:
            buffer.rewind(0 if held else swallowed[0] if swallowed else 0)

    def _read_quoted_call(self, final: bool) -> bool:
        """A complete call after an open quote: prose if the quotation closes after it."""
        assert self._quote is not None
        buffer, end = self._buffer, -1
        if self._prose.context.open_quote(strict=True) == self._quote:
            found = closing(buffer.window, buffer.pos, self._quote, strict=True, final=final)
            if found is None:
                return False
            end = found
        self._quote = None
        if end < 0:
            self._end_block(Read.DONE, complete=True)
            return True
        self._output.discard()
        self._state = _State.PROSE
        markup = self._opener + buffer.kept
        buffer.forget()
        self._prose.put(markup + buffer.take(end - buffer.pos))
        return True

    def _read_quoted_marker(self, final: bool) -> bool:
        """An opener without a complete call after an open quote: prose if the quotation closes."""
        assert self._quote is not None
        buffer = self._buffer
        end = closing(buffer.window, buffer.pos, self._quote, strict=False, final=final)
        if end is None:
            return False
        self._quote = None
        if end < 0:
            self._start_block()
            return True
        self._state = _State.PROSE
        self._prose.put(self._opener + buffer.take(end - buffer.pos))
        return True

    def _read_garbage(self, final: bool) -> bool:
        """Drop what is left of a broken call, up to a closer (eaten) or an opener."""
        buffer = self._buffer
        _, marker = buffer.until(self._markers["reasoning"], final=final)
        if marker is None:
            return False
        if self._kinds.get(marker) == "inner":
            buffer.take(len(marker))
            return True
        self._state = _State.PROSE
        if self._kinds.get(marker) != "stray":
            return True
        buffer.take(len(marker))
        self._after_block()
        resume = self._grammar.resume
        reading = Reading(self._output, self._tools, held=self._held)
        self._block = resume(marker, reading) if resume else None
        if self._block is not None:
            self._enter_block()
        return True


def switch_channel(prose: Prose, kind: MarkerKind, reasoning: ReasoningMarkers | None) -> None:
    """What a marker that was eaten does to the prose around it."""
    prose.context.reset()
    if reasoning is None:
        return
    if kind == "begin":
        prose.open_reasoning(reasoning)
    elif kind == "end" and prose.channel == "reasoning":
        prose.close_reasoning(reasoning)
