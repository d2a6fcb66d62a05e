"""A reasoning parser handing its text over to a tool parser, for two names of different models.

The events stay in one ordered list; what is lost is only that neither knows the other's markers.
"""

from __future__ import annotations

from typing import Final

from toolrail.events import Event, TextDelta
from toolrail.parsing import StreamParser


class ChainedParser:
    """`reasoning` first; the text it leaves goes through `tools`."""

    def __init__(self, reasoning: StreamParser, tools: StreamParser) -> None:
        self._reasoning: Final = reasoning
        self._tools: Final = tools

    def feed(self, text: str) -> list[Event]:
        """Events that `text` makes certain."""
        return self._hand_over(self._reasoning.feed(text))

    def finish(self, *, cut: bool = False) -> list[Event]:
        """The rest."""
        events = self._hand_over(self._reasoning.finish(cut=cut))
        return events + self._tools.finish(cut=cut)

    def _hand_over(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, TextDelta):
                out += self._tools.feed(event.text)
            else:
                out.append(event)
        return out
