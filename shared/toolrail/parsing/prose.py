"""The prose of a turn: text and reasoning between pieces of tool markup.

Searches for markers, knows which of them are only quoted, eats framing, and puts the rest out in
the channel that is open.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from toolrail.arguments.output import Output
from toolrail.parsing.quotes import ProseContext, closing
from toolrail.scan import Buffer, Markers
from toolrail.syntax import ReasoningMarkers

Channel: TypeAlias = Literal["text", "reasoning"]
Quotation: TypeAlias = Literal["taken", "none", "more"]


class Prose:
    """Reads prose from a buffer into an output, in the channel that is open.

    `holds_space`: whitespace at the end of visible text waits for more text, or for a decision.
    `blank`: no visible text but whitespace since the channel opened. `written`: characters of
    visible text put out.
    """

    __slots__ = (
        "_label",
        "_skip",
        "_space",
        "_undecided",
        "blank",
        "buffer",
        "channel",
        "context",
        "holds_space",
        "output",
        "written",
    )

    def __init__(self, buffer: Buffer, output: Output, channel: Channel) -> None:
        self.buffer: Final = buffer
        self.output: Final = output
        self.channel: Channel = channel
        self.context: Final = ProseContext()
        self.holds_space = False
        self.blank = True
        self.written = 0
        self._space: list[str] = []
        self._undecided: list[str] | None = None
        self._skip = ""
        self._label = ""

    def put(self, text: str) -> None:
        """Put out `text`, already consumed, in the open channel."""
        if not text:
            return
        self.context.add(text)
        if self._undecided is not None:
            self._undecided.append(text)
        elif self.channel == "text":
            self._put_text(text)
        else:
            self.flush_space()
            self.output.reasoning(text)

    def _put_text(self, text: str) -> None:
        if self.holds_space:
            body = text.rstrip()
            if not body:
                self._space.append(text)
                return
            text, self._space = self.take_space() + body, [text[len(body) :]]
        if self.blank and not text.isspace():
            self.blank = False
        self.written += len(text)
        self.output.text(text)

    def wait(self) -> None:
        """Hold all prose until `decide` says which channel it is in."""
        self._undecided = []

    def decide(self, channel: Channel) -> None:
        """What was held is prose of `channel`."""
        if self._undecided is None:
            return
        held, self._undecided = "".join(self._undecided), None
        self.channel = channel
        self.context.reset()
        self.put(held)

    def take_space(self) -> str:
        """The held whitespace, no longer held."""
        space, self._space = "".join(self._space), []
        return space

    def flush_space(self) -> None:
        """Put out the held whitespace."""
        self.output.text(self.take_space())

    def read(self, markers: Markers, *, final: bool, cut: bool = False) -> str | None:
        """Put out prose up to the next marker and return that (unread), or None.

        At the end of a stream that was `cut`, what may be a partial marker is dropped.
        """
        if not self._eat_framing(final):
            return None
        text, marker = self.buffer.until(markers, final=final and not cut)
        self.put(text)
        if marker is None and final and cut:
            self._drop_partial_marker()
        return marker

    def skip(self, framing: str) -> None:
        """Framing is due: as much of it as comes next is eaten."""
        self._skip = framing

    def open_reasoning(self, markers: ReasoningMarkers) -> None:
        """Reasoning begins; the word that may label it is eaten."""
        self.channel = "reasoning"
        self.blank = True
        self._label = markers.label

    def close_reasoning(self, markers: ReasoningMarkers) -> None:
        """Reasoning ends; its separator is framing."""
        self.channel = "text"
        self._skip = markers.after

    def quotation(self, marker: str, quote: str, *, strict: bool, final: bool) -> Quotation:
        """Take `marker`, unread, and the rest of the quotation it stands in as prose.

        `none`: the quotation does not close, nothing was taken.
        """
        start = self.buffer.pos + len(marker)
        end = closing(self.buffer.window, start, quote, strict=strict, final=final)
        if end is None:
            return "more"
        if end < 0:
            return "none"
        self.put(self.buffer.take(end - self.buffer.pos))
        return "taken"

    def _eat_framing(self, final: bool) -> bool:
        """Eat what is there of the framing that is due; False when more of it may come."""
        if self._label:
            ahead = self.buffer.peek(len(self._label))
            if ahead != self._label and self._label.startswith(ahead) and not final:
                return False
            if ahead == self._label:
                self.buffer.take(len(ahead))
            self._label = ""
        while self._skip:
            character = self.buffer.peek()
            if not character:
                return False
            if character == self._skip[0]:
                self.buffer.take(1)
                self._skip = self._skip[1:]
            else:
                self._skip = ""
        return True

    def _drop_partial_marker(self) -> None:
        held = self.buffer.text
        framing = len(held) - len(held.lstrip())
        if held[framing : framing + 1].isalnum():
            framing = len(held)  # a marker made of words: what is there of it may as well be prose
        self.put(self.buffer.take(framing))
        self.buffer.take(len(held) - framing)
