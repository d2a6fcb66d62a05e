"""Which tokens made a text: logprobs come for all tokens of a delta, a message wants its own.

A delta may hold the last tokens of reasoning, a marker and the first of the text, and text may be
held back until later deltas. So tokens are kept until their bytes are found in what was said.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from services.gateway.objects import TokenLogprob, token_logprob
from toolrail.messages import VisibleLogprob

_MAX_KEPT: Final = 512
"""Tokens not yet found in any text; calls may be written otherwise than the model did."""


class Attribution:
    """The tokens of one choice that nothing said so far accounts for."""

    def __init__(self) -> None:
        self._kept: list[VisibleLogprob] = []

    def add(self, entries: Iterable[VisibleLogprob]) -> None:
        """More tokens of the output, in order."""
        self._kept.extend(entries)
        del self._kept[:-_MAX_KEPT]

    def take(self, text: str) -> tuple[TokenLogprob, ...]:
        """The tokens that made `text`; they and those before them are kept no longer.

        Where no run of the tokens holds it, as where a marker was cut out of its middle, all are
        taken. O(bytes kept).
        """
        if not self._kept:
            return ()
        first, end = self._place(text.encode()) or (0, len(self._kept))
        taken = self._kept[first:end]
        del self._kept[:end]
        return tuple(token_logprob(entry) for entry in taken if entry.data)

    def skip(self, text: str) -> None:
        """`text` was said where no logprobs are told: forget its tokens, if they can be found."""
        if place := self._place(text.encode()):
            del self._kept[: place[1]]

    def _place(self, text: bytes) -> tuple[int, int] | None:
        """The tokens from the one in which `text` begins to the one in which it ends.

        It begins where a token does, but for white space that was cut off: else the text `i` would
        be found in a marker such as `</think>`.
        """
        data = b"".join(entry.data for entry in self._kept)
        at = 0
        for first, entry in enumerate(self._kept):
            blank = len(entry.data) - len(entry.data.lstrip())
            for begin in (at, at + blank):
                if data.startswith(text, begin):
                    return first, self._after(first, begin + len(text) - at)
            at += len(entry.data)
        return None

    def _after(self, first: int, size: int) -> int:
        """The number of the token after those that hold `size` bytes from `first` on."""
        for number in range(first, len(self._kept)):
            size -= len(self._kept[number].data)
            if size <= 0:
                return number + 1
        return len(self._kept)
