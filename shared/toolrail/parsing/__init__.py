"""The parser contract: what every family's machine takes and gives.

A parser is sans-IO: `feed(text) -> list[Event]`, `finish() -> list[Event]`. One instance serves one
choice of one request. The events, folded, do not depend on where the stream was cut; parsing a
whole text is `feed(all) + finish()`. It never raises on model output, whatever the text.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import msgspec

from toolrail.events import Event
from toolrail.tools import StartsIn, Tool, ToolChoice

Mode: TypeAlias = Literal["native", "guided_json"]


class ParseSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """All a parser needs to know of a request; crosses the bus with the prompt.

    `tool_parser` and `reasoning_parser` are the configured names (None: not configured).
    `mode` `guided_json`: the engine holds a forced choice as bare JSON, not as native markup.
    `held`: a structural tag that keeps markers out of free text holds the output, so that every
    marker is structure, what stands around it aside. `engine_finish` is not here: the caller tells
    `finish`.
    """

    tool_parser: str | None = None
    reasoning_parser: str | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    starts_in: StartsIn = "none"
    mode: Mode = "native"
    held: bool = False


class StreamParser(Protocol):
    """One choice's parser."""

    def feed(self, text: str) -> list[Event]:
        """Events that `text` (any cut of the stream, or "") makes certain. Amortised O(len)."""
        ...

    def finish(self, *, cut: bool = False) -> list[Event]:
        """The rest, at the end of the stream. `cut` True: the engine stopped at a length limit.

        Held text that could still have become a marker is flushed in its channel, or, when `cut`,
        dropped where the family's rules call a partial marker markup. Calls still open end with
        `CallEnd(complete=False)` unless they are provably complete. Call once.
        """
        ...
