"""`minimax_append_think`: nothing is extracted, the opener that the prompt wrote is put back."""

from __future__ import annotations

from typing import Final

from toolrail.events import Event, TextDelta
from toolrail.parsing import ParseSpec


class PrefixedParser:
    """All output is text, with `prefix` before its first character."""

    def __init__(self, prefix: str, spec: ParseSpec) -> None:
        self._prefix = prefix

    def feed(self, text: str) -> list[Event]:
        """The text, once with the prefix."""
        if not text:
            return []
        prefix, self._prefix = self._prefix, ""
        return [TextDelta(prefix + text)]

    def finish(self, *, cut: bool = False) -> list[Event]:
        """Nothing is held."""
        return []


class PlainParser:
    """All output is text: no parser is configured."""

    def __init__(self, spec: ParseSpec) -> None:
        self._spec: Final = spec

    def feed(self, text: str) -> list[Event]:
        """The text."""
        return [TextDelta(text)] if text else []

    def finish(self, *, cut: bool = False) -> list[Event]:
        """Nothing is held."""
        return []
