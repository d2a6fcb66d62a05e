"""The structural tag of a templated family (see `templated`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from toolrail.structural_tag import TagFormat, TagOptions
from toolrail.syntax import ReasoningMarkers, Syntax
from toolrail.tools import StartsIn, ToolPolicy

DEFAULT_OPTIONS: Final = TagOptions()


@dataclass(frozen=True, slots=True)
class TagRequest:
    """What a tag depends on.

    `reasoning`: markers of the configured reasoning parser, or None. `response`: the tag of a
    schema-held answer that may stand instead of calls.
    """

    policy: ToolPolicy
    starts_in: StartsIn = "none"
    options: TagOptions = DEFAULT_OPTIONS
    reasoning: ReasoningMarkers | None = None
    response: TagFormat | None = None


def templated_tag(syntax: Syntax, request: TagRequest) -> TagFormat | None:
    """The tag of `request`."""
    raise NotImplementedError
