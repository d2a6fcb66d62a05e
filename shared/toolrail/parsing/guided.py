"""Calls that the engine was made to write as bare JSON instead of the family's own markup.

Reasoning may come first, and stray native markup around the payload is eaten. What the payload may
be is `parsing.payload`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final

from toolrail.arguments.output import Output
from toolrail.events import Event
from toolrail.parsing import ParseSpec
from toolrail.parsing.payload import STARTS, Found, Lookahead, Payload
from toolrail.parsing.prose import Channel, Prose
from toolrail.parsing.turn import switch_channel
from toolrail.parsing.turn_grammar import Grammar, MarkerKind, marker_kinds, waits
from toolrail.scan import Buffer, Markers, marker_set


class _State(Enum):
    PROSE = auto()
    AHEAD = auto()  # what comes next decides
    PAYLOAD = auto()  # in it, or in a native call


class GuidedParser:
    """Parses one choice whose forced call comes as JSON. See `parsing.StreamParser`."""

    def __init__(self, grammar: Grammar, spec: ParseSpec) -> None:
        self._grammar: Final = grammar
        self._buffer: Final = Buffer()
        self._output: Final = Output()
        self._kinds: Final = marker_kinds(grammar, spec)
        if grammar.header:
            self._kinds[grammar.header] = "open"
        self._after_payload: Final = marker_set(*self._kinds)
        self._markers: Final[dict[Channel, Markers]] = {
            "text": marker_set(*self._kinds, *STARTS, grammar.prefix),
            "reasoning": self._after_payload,
        }
        self._prose: Final = Prose(
            self._buffer, self._output, "reasoning" if spec.starts_in == "reasoning" else "text"
        )
        if waits(grammar, spec):
            self._prose.wait()
        self._payload: Final = Payload(self._prose, spec)
        self._lookahead: Final = Lookahead(self._payload.named, marker_set(), self._after_payload)
        self._then: Callable[[Found], None] = self._at_start
        self._state = _State.PROSE

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
        self._payload.finish()
        return self._output.drain()

    def _step(self, *, final: bool) -> bool:
        match self._state:
            case _State.PROSE:
                return self._read_prose(final)
            case _State.AHEAD:
                return self._look_ahead(final)
            case _State.PAYLOAD:
                over = self._payload.read(final=final)
                self._state = _State.PROSE if over else _State.PAYLOAD
                return over

    def _read_prose(self, final: bool) -> bool:
        prose = self._prose
        seen = self._payload.seen and prose.channel == "text"
        marker = prose.read(
            self._after_payload if seen else self._markers[prose.channel], final=final
        )
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
        if marker == self._grammar.prefix:
            self._buffer.take(len(marker))
            self._expect(partial(self._after_prefix, marker))
        elif kind is None:
            self._expect(self._at_start)
        else:
            self._payload.eat(len(marker))
            self._after_marker(marker, kind)
        return True

    def _after_marker(self, marker: str, kind: MarkerKind) -> None:
        if kind != "open":
            switch_channel(self._prose, kind, self._grammar.reasoning)
        elif self._payload.seen:
            self._after_opener(marker, "other")
        else:
            self._expect(partial(self._after_opener, marker))

    def _expect(self, then: Callable[[Found], None]) -> None:
        self._then = then
        self._state = _State.AHEAD

    def _look_ahead(self, final: bool) -> bool:
        found = self._lookahead.read(self._buffer, final=final)
        if found is not None:
            self._lookahead.give_back(self._buffer)
            self._state = _State.PROSE
            self._then(found)
        return found is not None

    def _at_start(self, found: Found) -> None:
        """A brace or bracket in visible text: the payload, if calls can begin like this."""
        if found == "payload":
            self._begin()
        else:
            self._prose.put(self._buffer.take(1))

    def _after_prefix(self, prefix: str, found: Found) -> None:
        """What a header begins with: markup if only a payload or a marker follows, else prose."""
        if found != "other" and self._prose.blank:
            self._payload.eat(0)  # the prefix is consumed
        else:
            self._prose.put(prefix)

    def _after_opener(self, marker: str, found: Found) -> None:
        if found == "payload":
            self._prose.channel = "text"
            self._buffer.skip_space()
            self._begin()
        elif self._prose.channel == "text":
            opener = next(o for o in self._grammar.openers if marker.startswith(o))
            if self._payload.try_native(partial(self._grammar.block, opener)):
                self._state = _State.PAYLOAD

    def _begin(self) -> None:
        self._payload.begin()
        self._state = _State.PAYLOAD
