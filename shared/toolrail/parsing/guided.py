"""Calls that the engine was made to write as bare JSON instead of the family's own markup.

A named choice is the arguments object alone; `required` is one call object or an array of them.
Reasoning may come first, and stray native markup around the payload is eaten. All or nothing: a
payload of which one element is no call dispatches nothing and is shown as text.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from toolrail.arguments.json_calls import CallObjects
from toolrail.arguments.json_value import JsonValue, Read
from toolrail.arguments.output import Output
from toolrail.arguments.types import ToolTypes
from toolrail.events import Event
from toolrail.parsing import ParseSpec
from toolrail.parsing.blocks import Block, Reading
from toolrail.parsing.prose import Channel, Prose
from toolrail.parsing.turn import Grammar, marker_kinds, switch_channel, waits
from toolrail.scan import Buffer, Markers, marker_set
from toolrail.syntax import Objects

_MAX_TRIALS: Final = 16
"""Openers after which a native call is looked for; bounds the work."""
_STARTS: Final = ("{", "[")


class _State(Enum):
    PROSE = auto()
    NATIVE = auto()  # after an opener: a native call is markup, and drops out
    PAYLOAD = auto()


class GuidedParser:
    """Parses one choice whose forced call comes as JSON. See `parsing.StreamParser`."""

    def __init__(self, grammar: Grammar, spec: ParseSpec) -> None:
        self._grammar: Final = grammar
        self._named: Final = (
            spec.tools[0].name if spec.tool_choice == "named" and spec.tools else None
        )
        self._tools: Final = ToolTypes(spec.tools)
        self._buffer: Final = Buffer()
        self._output: Final = Output()
        self._kinds: Final = marker_kinds(grammar, spec)
        if grammar.header:
            self._kinds[grammar.header] = "open"
        self._markers: Final[dict[Channel, Markers]] = {
            "text": marker_set(*self._kinds, *_STARTS, grammar.prefix),
            "reasoning": marker_set(*self._kinds),
        }
        self._after_payload: Final = marker_set(*self._kinds)
        self._prose: Final = Prose(
            self._buffer, self._output, "reasoning" if spec.starts_in == "reasoning" else "text"
        )
        self._prose.holds_space = True
        if waits(grammar, spec):
            self._prose.wait()
        self._state = _State.PROSE
        self._value: JsonValue | None = None
        self._native: Block | None = None
        self._discarded: Output = Output()
        self._trials = 0
        self._seen_payload = False
        self._written_at_marker = -1

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
        """The rest; a payload that is not complete is text."""
        while self._step(final=True):
            pass
        self._prose.decide("text")
        # Whitespace that ends in an eaten marker, or that is all there is after a call, is framing.
        after_marker = self._written_at_marker == self._prose.written
        if not self._seen_payload or not (after_marker or self._prose.blank):
            self._prose.flush_space()
        return self._output.drain()

    def _step(self, *, final: bool) -> bool:
        match self._state:
            case _State.PROSE:
                return self._read_prose(final)
            case _State.NATIVE:
                return self._read_native(final)
            case _State.PAYLOAD:
                return self._read_payload(final)

    def _read_prose(self, final: bool) -> bool:
        prose = self._prose
        in_text = prose.channel == "text"
        markers = (
            self._after_payload if in_text and self._seen_payload else self._markers[prose.channel]
        )
        marker = prose.read(markers, final=final)
        if marker is None:
            return False
        kind = self._kinds.get(marker)
        prose.decide("reasoning" if kind == "end" else "text")
        strict = kind in ("begin", "end")
        quote = prose.context.open_quote(strict=strict)
        if quote is not None:
            quotation = prose.quotation(marker, quote, strict=strict, final=final)
            if quotation != "none":
                return quotation == "taken"
        if kind is None:
            at_prefix = marker == self._grammar.prefix
            return self._at_prefix(marker, final) if at_prefix else self._at_start(0, final)
        if kind == "open":
            return self._at_opener(marker, final)
        self._eat(marker)
        switch_channel(prose, kind, self._grammar.reasoning)
        return True

    def _eat(self, marker: str) -> None:
        self._buffer.take(len(marker))
        self._written_at_marker = self._prose.written

    def _at_prefix(self, prefix: str, final: bool) -> bool:
        """What a header begins with: markup if only a payload or a marker follows, else prose."""
        follows = self._begins_payload(len(prefix), final)
        if follows is False:
            rest = self._buffer.window[self._buffer.pos + len(prefix) :].lstrip()
            follows = rest.startswith(tuple(self._kinds))
            if not follows and not final and any(m.startswith(rest) for m in self._kinds):
                return False
        if follows is None:
            return False
        if follows and self._prose.blank:
            self._eat(prefix)
        else:
            self._prose.put(self._buffer.take(len(prefix)))
        return True

    def _at_start(self, offset: int, final: bool) -> bool:
        """A brace or bracket in visible text: the payload, if calls can begin like this."""
        begins = self._begins_payload(offset, final)
        if begins is None:
            return False
        if begins:
            self._begin_payload()
        else:
            self._prose.put(self._buffer.take(1))
        return True

    def _begins_payload(self, offset: int, final: bool) -> bool | None:
        at = self._buffer.pos + offset
        return begins_payload(self._buffer.window, at, self._named, final=final)

    def _at_opener(self, marker: str, final: bool) -> bool:
        begins = False if self._seen_payload else self._begins_payload(len(marker), final)
        if begins is None:
            return False
        self._eat(marker)
        if begins:
            self._prose.channel = "text"
            self._buffer.skip_space()
            self._begin_payload()
        elif self._prose.channel == "text" and self._trials < _MAX_TRIALS:
            self._trials += 1
            self._buffer.keep()
            self._discarded = Output()
            opener = next(o for o in self._grammar.openers if marker.startswith(o))
            self._native = self._grammar.block(opener, Reading(self._discarded, self._tools))
            self._state = _State.NATIVE
        return True

    def _read_native(self, final: bool) -> bool:
        assert self._native is not None
        status = self._native.read(self._buffer, final=final)
        if status is Read.MORE and not final:
            return False
        if self._discarded.complete_calls:
            self._buffer.forget()
            self._written_at_marker = self._prose.written
        else:
            self._buffer.rewind()
        self._state = _State.PROSE
        return True

    def _begin_payload(self) -> None:
        self._seen_payload = True
        if not self._prose.blank:
            self._prose.flush_space()
        self._value = JsonValue()
        self._buffer.keep()
        self._state = _State.PAYLOAD

    def _read_payload(self, final: bool) -> bool:
        value = self._value
        assert value is not None
        value.read(self._buffer, final=final)
        if value.status is Read.MORE and not final:
            return False
        payload = self._buffer.kept
        self._buffer.forget()
        self._state = _State.PROSE
        space = self._prose.take_space()
        if value.status is not Read.DONE or not dispatch(payload, self._named, self._output):
            self._prose.put(space + payload)
        return True


def begins_payload(window: str, at: int, named: str | None, *, final: bool) -> bool | None:
    """Whether a payload begins at `at`, whitespace before it aside; None: more text decides.

    `named`: the tool of a named choice, whose payload is the arguments object alone.
    """
    at = _after_space(window, at)
    if at == len(window):
        return False if final else None
    if window[at] == "{":
        return True
    if window[at] != "[" or named is not None:
        return False
    at = _after_space(window, at + 1)
    if at == len(window):
        return False if final else None
    return window[at] in "{]"


def dispatch(payload: str, named: str | None, output: Output) -> bool:
    """Put out the payload's calls; False, and nothing put out, when it is not calls alone."""
    buffer = Buffer()
    buffer.push(payload)
    if named is not None:
        output.start(named)
        output.arguments(JsonValue().read(buffer, final=True))
        output.end()
        return True
    output.hold()
    calls = CallObjects(Objects(), output, strict=True)
    status = calls.read(buffer, final=True)
    if status is Read.DONE and calls.ended and not buffer.text.strip():
        output.release()
        return True
    output.discard()
    return False


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\n\r":
        at += 1
    return at
