"""The record that a family file fills: parser, tag, bans, renderer, prompt policy follow.

Defined beside `templated`, which makes most of them; families import it from here.
"""

from __future__ import annotations

from toolrail.syntax import Marker, ReasoningMarkers
from toolrail.templated import Family, PromptPolicy

__all__ = ["Family", "Marker", "PromptPolicy", "ReasoningMarkers"]
