"""A turn of messages in which the engine was made to write the forced call as bare JSON.

The headers mean what they mean in `parsing.channels`; the payload stands in a visible body, in the
body of a message to a tool, or between messages. Markup around it is eaten, its own markup
(`strays`) included. What the payload may be is `parsing.payload`'s business.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
from typing import Final

from toolrail.arguments.output import Output
from toolrail.events import Event
from toolrail.parsing import ParseSpec, StreamParser
from toolrail.parsing.channels import MessageParser
from toolrail.parsing.headers import Header, MessageSyntax, Route
from toolrail.parsing.payload import STARTS, Lookahead, Payload
from toolrail.parsing.prose import Channel, Prose
from toolrail.scan import Buffer, Markers
from toolrail.syntax import ReasoningMarkers


def message_parser(
    syntax: MessageSyntax, spec: ParseSpec, reasoning: ReasoningMarkers | None = None
) -> StreamParser:
    """The machine of `syntax` that `spec` wants: its own markup, or guided JSON."""
    guided = spec.mode == "guided_json" and spec.tool_choice != "none"
    return GuidedMessageParser(syntax, spec) if guided else MessageParser(syntax, spec)


class _State(Enum):
    START = auto()  # between messages: a header may come without its start marker
    PROSE = auto()
    AT_START = auto()  # at a brace or bracket, which may begin the payload
    TO_TOOL = auto()  # after the header of a message to a tool: the payload, or a native call
    PAYLOAD = auto()  # in it, or in a native call


class GuidedMessageParser:
    """Parses one choice whose forced call comes as JSON. See `parsing.StreamParser`."""

    def __init__(self, syntax: MessageSyntax, spec: ParseSpec) -> None:
        self._syntax: Final = syntax
        self._buffer: Final = Buffer()
        self._output: Final = Output()
        markup = (*syntax.markers, *syntax.strays)
        leaving = (syntax.recipient,) if syntax.recipient_leaves_reasoning else ()
        self._markers: Final[dict[Channel, Markers]] = {
            "text": Markers([*markup, *STARTS]),
            "reasoning": Markers([*markup, *leaving]),
        }
        self._markup: Final = Markers(markup)
        self._prose: Final = Prose(
            self._buffer, self._output, "reasoning" if spec.starts_in == "reasoning" else "text"
        )
        self._payload: Final = Payload(self._prose, spec)
        strays = Markers(syntax.strays)
        self._lookahead: Final = Lookahead(self._payload.named, strays, Markers(()))
        self._state = _State.START if spec.starts_in == "none" else _State.PROSE
        self._route = Route("text")

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
        self._payload.finish()
        return self._output.drain()

    def _step(self, *, final: bool) -> bool:
        match self._state:
            case _State.START:
                return self._read_start(final)
            case _State.PROSE:
                return self._read_prose(final)
            case _State.AT_START | _State.TO_TOOL:
                return self._look_ahead(final)
            case _State.PAYLOAD:
                over = self._payload.read(final=final)
                self._state = _State.PROSE if over else _State.PAYLOAD
                return over

    # --- headers ---

    def _read_start(self, final: bool) -> bool:
        buffer, syntax = self._buffer, self._syntax
        if not len(buffer):
            return False
        header = syntax.read_header(syntax.first, buffer.window, buffer.pos, final=final)
        if header is None:
            return False
        if isinstance(header, Header):
            self._enter(header)
        else:
            self._state = _State.PROSE
        return True

    def _at_start_marker(self, marker: str, final: bool) -> bool:
        buffer, syntax = self._buffer, self._syntax
        header = syntax.read_header(syntax.header, buffer.window, buffer.pos, final=final)
        if header is None:
            return False
        if isinstance(header, Header):
            self._enter(header)
        else:
            self._payload.eat(len(marker))
        return True

    def _at_recipient(self, final: bool) -> bool:
        buffer, syntax, line = self._buffer, self._syntax, self._prose.context.line
        if not line or line[-1].isspace():
            header = syntax.read_header(syntax.first, buffer.window, buffer.pos, final=final)
            if header is None:
                return False
            if isinstance(header, Header):
                self._enter(header)
                return True
        self._prose.put(buffer.take(len(syntax.recipient)))
        return True

    def _enter(self, header: Header) -> None:
        self._payload.eat(header.length)
        self._prose.context.reset()
        self._route = self._syntax.route(header.text, header.body)
        self._state = _State.PROSE
        match self._route.to:
            case "reasoning":
                self._prose.channel = "reasoning"
            case "call":
                self._state = _State.TO_TOOL
            case "text" | "nowhere":
                self._prose.channel = "text"

    # --- prose ---

    def _read_prose(self, final: bool) -> bool:
        prose = self._prose
        seen = self._payload.seen and prose.channel == "text"
        marker = prose.read(self._markup if seen else self._markers[prose.channel], final=final)
        if marker is None:
            return False
        if marker == self._syntax.recipient:
            return self._at_recipient(final)
        strict = marker in self._syntax.ends
        quote = prose.context.open_quote(strict=strict)
        if quote is not None:
            quotation = prose.quotation(marker, quote, strict=strict, final=final)
            if quotation != "none":
                return quotation == "taken"
        return self._at_marker(marker, final)

    def _at_marker(self, marker: str, final: bool) -> bool:
        syntax = self._syntax
        if marker in STARTS:
            self._state = _State.AT_START
            return True
        if marker in syntax.starts:
            return self._at_start_marker(marker, final)
        if marker in syntax.bodies and syntax.self_describing:
            self._enter(Header("", marker))
            return True
        self._payload.eat(len(marker))
        if marker in syntax.ends:
            self._prose.context.reset()
            self._prose.channel = "text"
            self._state = _State.START
        return True

    # --- the payload ---

    def _look_ahead(self, final: bool) -> bool:
        found = self._lookahead.read(self._buffer, final=final)
        if found is None:
            return False
        to_tool, self._state = self._state is _State.TO_TOOL, _State.PROSE
        native = partial(self._syntax.call, self._route)
        if found == "payload" and not self._payload.seen:
            self._lookahead.settle()
            self._prose.channel = "text"
            self._payload.begin(native if to_tool else None)
            self._state = _State.PAYLOAD
            return True
        self._lookahead.give_back(self._buffer)
        if not to_tool:
            self._prose.put(self._buffer.take(1))
        elif self._payload.try_native(native):
            self._state = _State.PAYLOAD
        return True
