"""The machine for turns made of messages: a header says where the body goes.

Harmony and beam (channels and recipients), muse (recipients alone) and inkling (typed blocks) are
one machine with four records. A body goes to reasoning, to the visible text, to a reader of calls,
or nowhere; what stands between messages is text. Around a payload of guided JSON the headers mean
the same, see `parsing.channels_guided`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Literal, TypeAlias

from toolrail.arguments.json_value import Read
from toolrail.arguments.output import Output
from toolrail.arguments.types import ToolTypes
from toolrail.events import Event
from toolrail.parsing import ParseSpec
from toolrail.parsing.blocks import Block, Reading
from toolrail.parsing.headers import Header, MessageSyntax
from toolrail.parsing.quotes import ProseContext, closing
from toolrail.scan import Buffer, Markers

Place: TypeAlias = Literal["text", "reasoning", "nowhere"]

_MAX_SPACE: Final = 256
"""Longest whitespace between two messages that only separates them; more of it is text."""
_MAX_TRIALS: Final = 16
"""Broken calls after which it is looked for a message that they swallowed; bounds the work."""


class _State(Enum):
    START = auto()  # between messages: a header may come without its start marker
    BODY = auto()
    CALL = auto()
    OVER = auto()


class MessageParser:
    """Parses one choice of one request. See `parsing.StreamParser`.

    `calls` False: no tool parser is configured, so that messages to tools are text as they stand.
    """

    def __init__(self, syntax: MessageSyntax, spec: ParseSpec, *, calls: bool = True) -> None:
        self._syntax: Final = syntax
        self._calls: Final = calls
        self._tools: Final = ToolTypes(spec.tools)
        self._held: Final = spec.held
        self._buffer: Final = Buffer()
        self._output: Final = Output(mute_calls=spec.tool_choice == "none")
        self._context: Final = ProseContext()
        leaving = (syntax.recipient,) if syntax.recipient_leaves_reasoning else ()
        self._markers: Final = Markers(syntax.markers)
        self._reasoning_markers: Final = Markers([*syntax.markers, *leaving])
        self._state = _State.START if spec.starts_in == "none" else _State.BODY
        self._place: Place = "reasoning" if spec.starts_in == "reasoning" else "text"
        self._began = spec.starts_in != "none"
        self._outside: Place = "text"  # where text without a header goes
        self._joint = ""
        self._reasoned = False  # the last output was reasoning
        self._block: Block | None = None
        self._verbatim = False  # the body is text with its markup
        self._trials = 0
        self._cut = False

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
        """The rest. `cut`: the start of a marker or header at the end is dropped, not shown."""
        self._cut = cut
        while self._step(final=True):
            pass
        self._output.end(complete=False)
        return self._output.drain()

    def _step(self, *, final: bool) -> bool:
        """One step; False when it needs more text."""
        match self._state:
            case _State.START:
                return self._read_start(final)
            case _State.BODY:
                return self._read_body(final)
            case _State.CALL:
                return self._read_call(final)
            case _State.OVER:
                return bool(self._buffer.take(len(self._buffer)))

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
            return True
        if not self._skip_space(final):
            return False
        if final and self._cut:
            self._drop_cut_header(header)
        self._state, self._place = _State.BODY, self._outside
        return True

    def _skip_space(self, final: bool) -> bool:
        """Drop whitespace that only separates messages. False: more text decides."""
        buffer = self._buffer
        window, space = buffer.window, _space(buffer)
        after = buffer.pos + space
        if space > _MAX_SPACE:
            return True
        if after == len(window):
            if final and self._began:
                buffer.take(space)
            return final
        found = self._markers.search(window, after)
        if found is not None and found[0] == after:
            buffer.take(space)
        elif space and not final and self._markers.grows(window[after:]):
            return False
        return True

    def _drop_cut_header(self, length: int) -> None:
        """The text ended in what may have become a header."""
        buffer, recipient = self._buffer, self._syntax.recipient
        if recipient and length == len(buffer):
            ahead = buffer.peek(length).lstrip()
            if recipient.startswith(ahead[: len(recipient)]):
                buffer.take(length)

    def _at_start_marker(self, marker: str, final: bool) -> bool:
        buffer, syntax = self._buffer, self._syntax
        header = syntax.read_header(syntax.header, buffer.window, buffer.pos, final=final)
        if header is None:
            return False
        if isinstance(header, Header):
            self._enter(header)
            return True
        begun = header if self._is_cut_header(header, final) else 0
        buffer.take(max(begun, len(marker)))
        return True

    def _is_cut_header(self, length: int, final: bool) -> bool:
        """Whether what is there of a header was cut off by another marker or by the end."""
        buffer = self._buffer
        if length == len(buffer):
            return final
        found = self._markers.search(buffer.window, buffer.pos + length)
        return found is not None and found[0] == buffer.pos + length

    def _at_recipient(self, final: bool) -> bool:
        """Inside reasoning: a header without a start marker, if it is one."""
        buffer, syntax = self._buffer, self._syntax
        line = self._context.line
        if not line or line[-1].isspace():
            header = syntax.read_header(syntax.first, buffer.window, buffer.pos, final=final)
            if header is None:
                return False
            if isinstance(header, Header):
                self._enter(header)
                return True
            if final and self._cut:
                self._drop_cut_header(header)
        self._put(buffer.take(len(syntax.recipient)))
        return True

    def _enter(self, header: Header) -> None:
        self._buffer.take(header.length)
        self._began = True
        self._context.reset()
        route = self._syntax.route(header.text, header.body)
        interrupted = self._state is _State.BODY and self._place == "reasoning"
        # A call inside reasoning that was not closed: reasoning goes on after it.
        self._outside = "reasoning" if interrupted and route.to == "call" else "text"
        self._verbatim = route.to == "call" and not self._calls
        if self._verbatim:
            self._state, self._place = _State.BODY, "text"
            self._put(header.text + header.body)
            return
        if route.to == "call":
            reading = Reading(self._output, self._tools, held=self._held)
            self._block = self._syntax.call(route, reading)
            self._buffer.keep()
            self._state = _State.CALL
            return
        self._state, self._place = _State.BODY, route.to
        self._joint = self._syntax.joint if route.to == "reasoning" and self._reasoned else ""

    # --- bodies ---

    def _read_body(self, final: bool) -> bool:
        buffer, syntax = self._buffer, self._syntax
        reasoning = self._place == "reasoning"
        markers = self._reasoning_markers if reasoning else self._markers
        text, marker = buffer.until(markers, final=final and not self._cut)
        self._put(text)
        if marker is None:
            if final and self._cut:
                self._drop_partial_marker()
            return False
        if marker == syntax.recipient:
            return self._at_recipient(final)
        quotation = self._quotation(marker, final)
        if quotation is None:
            return False
        if quotation or (self._verbatim and marker not in syntax.starts):
            self._put(buffer.take(quotation or len(marker)))
            if not quotation and marker in syntax.ends:
                self._end_message(marker)
        elif marker in syntax.starts:
            return self._at_start_marker(marker, final)
        elif marker in syntax.ends:
            buffer.take(len(marker))
            self._end_message(marker)
        elif marker in syntax.bodies and syntax.self_describing:
            self._enter(Header("", marker))
        else:
            buffer.take(len(marker))
        return True

    def _quotation(self, marker: str, final: bool) -> int | None:
        """Length of the quotation that `marker`, unread, stands in; 0: none; None: more decides."""
        if self._held or self._place == "nowhere":
            return 0
        window, after = self._buffer.window, self._buffer.pos + len(marker)
        quote = self._context.open_quote()
        if quote is None:
            return 0
        if marker in self._syntax.ends:
            # What only mentions it has the quotes right beside it.
            if not self._context.line.endswith((quote, "“", "‘")):
                return 0
            if after == len(window) and not final:
                return None
            return len(marker) if window.startswith(quote, after) else 0
        end = closing(window, after, quote, strict=False, final=final)
        return None if end is None else max(end - self._buffer.pos, 0)

    def _end_message(self, marker: str) -> None:
        self._verbatim = False
        if self._place != "nowhere":
            self._outside = "text"
        self._context.reset()
        over = marker in self._syntax.last and self._began
        self._state = _State.OVER if over else _State.START
        self._began = True

    def _put(self, text: str) -> None:
        if not text:
            return
        if self._place == "nowhere":
            return
        self._began = True
        self._context.add(text)
        if self._place == "reasoning":
            self._output.reasoning(self._joint + text)
            self._joint = ""
        else:
            self._output.text(text)
        self._reasoned = self._place == "reasoning"

    def _drop_partial_marker(self) -> None:
        held = self._buffer.text
        self._buffer.take(len(held))
        if held[:1].isalnum():
            self._put(held)  # made of words: it may as well be prose

    # --- calls ---

    def _read_call(self, final: bool) -> bool:
        assert self._block is not None
        buffer, output = self._buffer, self._output
        # At a length limit the end of the text ends nothing.
        status = self._block.read(buffer, final=final and not self._cut)
        if status is Read.MORE and not final:
            return False
        self._reasoned = self._reasoned and not (self._block.begun or status is Read.DONE)
        self._state, self._place = _State.BODY, "nowhere"
        if status is Read.DONE:
            output.end(complete=False)
            buffer.forget()
            return True
        output.end(complete=False)
        if status is Read.MORE:
            buffer.take(len(buffer))
        swallowed = self._swallowed() if self._trials < _MAX_TRIALS else None
        self._trials += 1
        if swallowed is None:
            buffer.forget()
        else:
            buffer.rewind(swallowed)
        return True

    def _swallowed(self) -> int | None:
        """Where in what a broken call consumed another message begins."""
        kept, syntax = self._buffer.kept, self._syntax
        starts = Markers(syntax.starts)
        found = starts.search(kept)
        while found is not None:
            at = found[0]
            if isinstance(syntax.read_header(syntax.header, kept, at, final=True), Header):
                return at
            found = starts.search(kept, at + 1)
        return None


def _space(buffer: Buffer) -> int:
    """Length of the whitespace that comes next, as far as it matters."""
    ahead = buffer.peek(_MAX_SPACE + 1)
    return len(ahead) - len(ahead.lstrip())
