r"""Reasoning in message channels, read alone: harmony (`gpt_oss`), beam and muse.

```
<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>final<|message|>Hi
```

A message is a header, `<|message|>` and a body; the header decides where the body goes. Messages to
a tool are text as they stand, because no tool parser follows here. With the tool parser of the same
model its family reads everything, and this module is not used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from toolrail.arguments.output import Output
from toolrail.events import Event
from toolrail.parsing import ParseSpec
from toolrail.scan import Buffer, Markers

_MAX_HEADER: Final = 512
"""Longest text before `<|message|>` that is still taken for a header."""


@dataclass(frozen=True, slots=True)
class Channels:
    """One message syntax.

    Attributes:
        starts: markers that begin a header.
        ends: markers that end a body.
        reasoning: headers whose body is reasoning.
        visible: headers whose body is the answer; any other is a message to a tool.
        dropped: headers whose body is shown to nobody, or None.
        bare: what the first header may begin with when the prompt has written its start marker.
    """

    starts: tuple[str, ...]
    ends: tuple[str, ...]
    reasoning: re.Pattern[str]
    visible: re.Pattern[str]
    dropped: re.Pattern[str] | None = None
    bare: tuple[str, ...] = ()


GPT_OSS: Final = Channels(
    starts=("<|start|>", "<|channel|>"),
    ends=("<|end|>", "<|return|>", "<|call|>"),
    reasoning=re.compile(r"\s*(?:<\|start\|>)?(?:assistant)?\s*<\|channel\|>\s*analysis\s*\Z"),
    visible=re.compile(
        r"\s*(?:<\|start\|>)?(?:assistant)?\s*<\|channel\|>\s*(?:final|commentary)\s*\Z"
    ),
)
BEAM: Final = Channels(
    starts=GPT_OSS.starts,
    ends=GPT_OSS.ends,
    reasoning=GPT_OSS.reasoning,
    visible=GPT_OSS.visible,
    bare=(" to=", "to="),
)
MUSE: Final = Channels(
    starts=("<|start|>",),
    ends=("<|eom|>", "<|eot|>"),
    reasoning=re.compile(r"(?:<\|start\|>)?(?:assistant)?\s*(?:to=self)?\s*\Z"),
    visible=re.compile(r"(?:<\|start\|>)?(?:assistant)?\s*to=(?:user|commentary)\s*\Z"),
    dropped=re.compile(r"(?:<\|start\|>)?(?:assistant)?\s*to=developer\s*\Z"),
    bare=(" to=", "to="),
)


class _At(Enum):
    START = auto()  # where a message may begin without its start marker
    OUTSIDE = auto()
    HEADER = auto()
    BODY = auto()


class ChannelParser:
    """Parses one choice. See `parsing.StreamParser`."""

    def __init__(self, channels: Channels, spec: ParseSpec) -> None:
        self._channels: Final = channels
        self._buffer: Final = Buffer()
        self._output: Final = Output()
        self._outside: Final = Markers([*channels.starts, *channels.ends, "<|message|>"])
        self._message: Final = Markers(["<|message|>"])
        self._body: Final = Markers([*channels.ends, "<|start|>"])
        self._at = _At.START if spec.starts_in == "none" else _At.BODY
        self._header: list[str] = []
        self._channel = {"reasoning": "reasoning", "response": "text"}.get(spec.starts_in, "")
        self._last = ""

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
        """The rest; an unfinished header is text unless the stream was `cut` in it."""
        while self._step(final=not cut):
            pass
        if self._at is _At.HEADER and not cut:
            self._output.text("".join(self._header))
        return self._output.drain()

    def _step(self, *, final: bool) -> bool:
        match self._at:
            case _At.START:
                return self._read_start(final)
            case _At.OUTSIDE:
                return self._read_outside(final)
            case _At.HEADER:
                return self._read_header(final)
            case _At.BODY:
                return self._read_body(final)

    def _read_start(self, final: bool) -> bool:
        bare = self._channels.bare
        ahead = self._buffer.peek(max(map(len, bare), default=0))
        undecided = any(b.startswith(ahead) and b != ahead for b in bare)
        if undecided and not final:
            return False
        self._at = _At.HEADER if bare and ahead.startswith(bare) else _At.OUTSIDE
        self._header = []
        return True

    def _read_outside(self, final: bool) -> bool:
        text, marker = self._buffer.until(self._outside, final=final)
        self._put("text", text)
        if marker is None:
            return False
        taken = self._buffer.take(len(marker))
        if marker in self._channels.starts:
            self._at, self._header = _At.HEADER, [taken]
        return True

    def _read_header(self, final: bool) -> bool:
        text, marker = self._buffer.until(self._message, final=final)
        self._header.append(text)
        if marker is None:
            if sum(map(len, self._header)) > _MAX_HEADER:
                self._put("text", "".join(self._header))
                self._at = _At.OUTSIDE
                return True
            return False
        self._buffer.take(len(marker))
        header = "".join(self._header)
        self._at = _At.BODY
        channels = self._channels
        if channels.reasoning.match(header):
            if self._last == "reasoning":
                self._output.reasoning("\n")  # adjacent messages are lines of one thought
            self._channel = "reasoning"
        elif channels.visible.match(header):
            self._channel = "text"
        elif channels.dropped is not None and channels.dropped.match(header):
            self._channel = "dropped"
        else:
            self._channel = "tool"
            self._put("text", header + marker)
        return True

    def _read_body(self, final: bool) -> bool:
        text, marker = self._buffer.until(self._body, final=final)
        self._put("text" if self._channel == "tool" else self._channel, text)
        if marker is None:
            return False
        self._at = _At.OUTSIDE
        if marker in self._channels.ends:
            self._buffer.take(len(marker))
            if self._channel == "tool":
                self._put("text", marker)
        return True

    def _put(self, channel: str, text: str) -> None:
        if not text or channel == "dropped":
            return
        if channel == "reasoning":
            self._output.reasoning(text)
        else:
            self._output.text(text)
        self._last = channel
