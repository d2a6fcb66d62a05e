"""What all sinks say when they cannot keep records."""

from __future__ import annotations

from collections.abc import Sequence

from services.gateway.audit.writing import Line


class SinkError(Exception):
    """Records could not be kept for now; its text says why, for a log."""


class RefusedError(Exception):
    """Not all are kept, and trying again is of no use. Its text says why, for a log.

    Attributes:
        lines: none of these is kept, and one at least will never be taken as it is: which of
            several is not known, so offer fewer.
        lost: so many of the others are not kept either, and nobody knows which.
    """

    def __init__(self, reason: str, lines: Sequence[Line], *, lost: int = 0) -> None:
        super().__init__(reason)
        self.lines = lines
        self.lost = lost
