"""A turn of messages in which the engine was made to write the forced call as bare JSON.

The headers mean what they mean in `parsing.channels`; the payload stands in a visible body, in the
body of a message to a tool, or between messages. Markup around it is eaten, its own markup
(`strays`) included. What the payload may be is `parsing.guided`'s business.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from toolrail.arguments.json_value import JsonValue, Read
from toolrail.arguments.output import Output
from toolrail.arguments.types import ToolTypes
from toolrail.events import Event
from toolrail.parsing import ParseSpec, StreamParser
from toolrail.parsing.blocks import Block, Reading
from toolrail.parsing.channels import MessageParser
from toolrail.parsing.guided import begins_payload, dispatch
from toolrail.parsing.headers import Header, MessageSyntax, Route
from toolrail.parsing.prose import Channel, Prose
from toolrail.scan import Buffer, Markers
from toolrail.syntax import ReasoningMarkers

_MAX_TRIALS: Final = 16
"""Messages to tools in which a native call is looked for; bounds the work."""
_STARTS: Final = ("{", "[")


def message_parser(
    syntax: MessageSyntax, spec: ParseSpec, reasoning: ReasoningMarkers | None = None
) -> StreamParser:
    """The machine of `syntax` that `spec` wants: its own markup, or guided JSON."""
    guided = spec.mode == "guided_json" and spec.tool_choice != "none"
    return GuidedMessageParser(syntax, spec) if guided else MessageParser(syntax, spec)


class _State(Enum):
    START = auto()  # between messages: a header may come without its start marker
    PROSE = auto()
    TO_TOOL = auto()  # after the header of a message to a tool
    NATIVE = auto()  # such a message may be a native call: markup, it drops out
    PAYLOAD = auto()


class GuidedMessageParser:
    """Parses one choice whose forced call comes as JSON. See `parsing.StreamParser`."""

    def __init__(self, syntax: MessageSyntax, spec: ParseSpec) -> None:
        self._syntax: Final = syntax
        self._named: Final = (
            spec.tools[0].name if spec.tool_choice == "named" and spec.tools else None
        )
        self._tools: Final = ToolTypes(spec.tools)
        self._buffer: Final = Buffer()
        self._output: Final = Output()
        markup = (*syntax.markers, *syntax.strays)
        leaving = (syntax.recipient,) if syntax.recipient_leaves_reasoning else ()
        self._markers: Final[dict[Channel, Markers]] = {
            "text": Markers([*markup, *_STARTS]),
            "reasoning": Markers([*markup, *leaving]),
        }
        self._markup: Final = Markers(markup)
        self._strays: Final = Markers(syntax.strays)
        self._prose: Final = Prose(
            self._buffer, self._output, "reasoning" if spec.starts_in == "reasoning" else "text"
        )
        self._prose.holds_space = True
        self._state = _State.START if spec.starts_in == "none" else _State.PROSE
        self._route = Route("text")
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
        # Whitespace that ends in an eaten marker, or that is all there is after a call, is framing.
        after_marker = self._written_at_marker == self._prose.written
        if not self._seen_payload or not (after_marker or self._prose.blank):
            self._prose.flush_space()
        return self._output.drain()

    def _step(self, *, final: bool) -> bool:
        match self._state:
            case _State.START:
                return self._read_start(final)
            case _State.PROSE:
                return self._read_prose(final)
            case _State.TO_TOOL:
                return self._read_to_tool(final)
            case _State.NATIVE:
                return self._read_native(final)
            case _State.PAYLOAD:
                return self._read_payload(final)

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
            self._eat(marker)
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
        self._buffer.take(header.length)
        self._written_at_marker = self._prose.written
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
        in_text = prose.channel == "text"
        markers = self._markup if in_text and self._seen_payload else self._markers[prose.channel]
        marker = prose.read(markers, final=final)
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
        if marker in _STARTS:
            return self._at_brace(final)
        if marker in syntax.starts:
            return self._at_start_marker(marker, final)
        if marker in syntax.bodies and syntax.self_describing:
            self._enter(Header("", marker))
            return True
        self._eat(marker)
        if marker in syntax.ends:
            self._prose.context.reset()
            self._prose.channel = "text"
            self._state = _State.START
        return True

    def _eat(self, marker: str) -> None:
        self._buffer.take(len(marker))
        self._written_at_marker = self._prose.written

    def _at_brace(self, final: bool) -> bool:
        buffer = self._buffer
        begins = begins_payload(buffer.window, buffer.pos, self._named, final=final)
        if begins:
            self._begin_payload(Route("text"))
        elif begins is not None:
            self._prose.put(buffer.take(1))
        return begins is not None

    # --- messages to tools ---

    def _read_to_tool(self, final: bool) -> bool:
        buffer = self._buffer
        at = self._after_strays(final)
        begins: bool | None = False
        if at is not None and not self._seen_payload:
            begins = begins_payload(buffer.window, at, self._named, final=final)
        if at is None or begins is None:
            return False
        if begins:
            buffer.take(at - buffer.pos)
            buffer.skip_space()
            self._prose.channel = "text"
            self._begin_payload(self._route)
        elif self._trials < _MAX_TRIALS:
            self._trials += 1
            buffer.keep()
            self._discarded = Output()
            self._native = self._syntax.call(self._route, Reading(self._discarded, self._tools))
            self._state = _State.NATIVE
        else:
            self._state = _State.PROSE
        return True

    def _after_strays(self, final: bool) -> int | None:
        """Position after the family's own markup that comes next; None: more text decides."""
        window, at = self._buffer.window, self._buffer.pos
        strays = self._strays
        while True:
            space = at
            while space < len(window) and window[space].isspace():
                space += 1
            found = strays.search(window, space)
            if found is not None and found[0] == space:
                at = space + len(found[1])
                continue
            undecided = space == len(window) or strays.grows(window[space:])
            return None if undecided and not final else at

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

    # --- the payload ---

    def _begin_payload(self, route: Route) -> None:
        self._route = route
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
        calls = value.status is Read.DONE and dispatch(payload, self._named, self._output)
        if not calls and not self._is_native(payload):
            self._prose.put(space + payload)
        return True

    def _is_native(self, payload: str) -> bool:
        """Whether the JSON is the body of a native call, whose header came before it."""
        if self._route.to != "call":
            return False
        buffer, discarded = Buffer(), Output()
        buffer.push(payload)
        self._syntax.call(self._route, Reading(discarded, self._tools)).read(buffer, final=True)
        return bool(discarded.complete_calls)
