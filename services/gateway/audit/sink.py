"""What all sinks say when they cannot keep records."""

from __future__ import annotations


class SinkError(Exception):
    """Records could not be kept for now; its text says why, for a log."""
