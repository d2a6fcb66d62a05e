"""Turns made of messages: how their headers are written, and where the bodies go.

The record that harmony, beam, muse and inkling fill for the machines of `parsing.channels` and
`parsing.channels_guided`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from toolrail.parsing.blocks import Block, Reading
from toolrail.tools import StartsIn

_MAX_HEADER: Final = 512
"""Longest text from a start marker to the body that is still taken for a header."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a body goes. `name`: of the tool, where the header says it."""

    to: Literal["text", "reasoning", "call", "nowhere"]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Header:
    """A complete header. `text`: up to its body marker; `length`: with it."""

    text: str
    body: str

    @property
    def length(self) -> int:
        """Characters up to the body."""
        return len(self.text) + len(self.body)


@dataclass(frozen=True, slots=True)
class MessageSyntax:
    """How a family writes messages.

    Attributes:
        starts: markers that begin a header.
        bodies: markers that end a header and begin its body.
        ends: markers that end a body.
        header: matches a header from its start marker up to its body marker, and every start of
            one that ends between two words.
        first: the same of a header whose start marker the prompt has written.
        route: where the body of a header goes, by its text and its body marker.
        call: the reader of a call's body.
        inner: markers that stand inside headers only.
        strays: markup of calls, eaten where it stands around a guided payload.
        last: ends after which nothing counts any more.
        recipient: what begins a header without a start marker, also inside reasoning, or "".
        recipient_leaves_reasoning: whether it does so inside reasoning.
        self_describing: whether a body marker alone begins a message, wherever it stands.
        joint: what joins two neighbouring messages of reasoning.
        markers: every control string. `longest`: the length of the longest.
    """

    starts: tuple[str, ...]
    bodies: tuple[str, ...]
    ends: tuple[str, ...]
    header: re.Pattern[str]
    first: re.Pattern[str]
    route: Callable[[str, str], Route]
    call: Callable[[Route, Reading], Block]
    inner: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    recipient: str = ""
    recipient_leaves_reasoning: bool = False
    self_describing: bool = False
    joint: str = ""
    markers: tuple[str, ...] = field(init=False)
    longest: int = field(init=False)

    def __post_init__(self) -> None:
        markers = tuple(dict.fromkeys((*self.starts, *self.bodies, *self.ends, *self.inner)))
        object.__setattr__(self, "markers", markers)
        object.__setattr__(self, "longest", max(map(len, markers)))

    def read_header(
        self, pattern: re.Pattern[str], window: str, pos: int, *, final: bool
    ) -> Header | int | None:
        """The header at `pos`; the length of what looked like one but is none; None: more decides.

        O(longest header).
        """
        found = pattern.match(window, pos, pos + _MAX_HEADER)
        end = found.end() if found else pos
        rest = window[end : end + self.longest]
        body = next((b for b in self.bodies if rest.startswith(b)), None)
        if body is not None and found:
            return Header(found[0], body)
        grows = any(m.startswith(rest) and m != rest for m in self.markers)
        return None if grows and not final and end - pos < _MAX_HEADER else end - pos

    def starts_in(self, prompt: str) -> StartsIn:
        """What a rendered prompt left open: the body of its last message, if nothing ends it."""
        at = prompt.rfind(self.starts[0])
        header = self.read_header(self.header, prompt, max(at, 0), final=True)
        if at < 0 or not isinstance(header, Header):
            return "none"
        if any(end in prompt[at + header.length :] for end in self.ends):
            return "none"
        match self.route(header.text, header.body).to:
            case "reasoning":
                return "reasoning"
            case "text":
                return "response"
            case "call" | "nowhere":
                return "none"
