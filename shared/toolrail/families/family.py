"""The record that a family file fills: parser, tag, bans, renderer, prompt policy follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from toolrail.events import Item
from toolrail.parsing import ParseSpec, StreamParser
from toolrail.structural_tag import TagFormat, TagOptions
from toolrail.tools import StartsIn, ToolChoice, ToolPolicy


@dataclass(frozen=True, slots=True)
class Marker:
    """A control string. `special`: one vocabulary token that skip-special decoding would drop."""

    text: str
    special: bool = False


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """How reasoning is written. `after`: the separator that templates write after `end`."""

    begin: str
    end: str
    after: str = ""


@dataclass(frozen=True, slots=True)
class PromptPolicy:
    """What the chat template of the family needs of history and switches.

    Attributes:
        arguments: whether history `arguments` are rendered from an object or from the JSON text.
        call_id: shape of the ids that history shows the model.
        named_choice: template variables that a named tool choice sets, whatever the request says.
    """

    arguments: Literal["object", "text"] = "object"
    call_id: Literal["any", "functions_index", "nine_alphanumeric"] = "any"
    named_choice: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """One output syntax. Attributes: see `docs/adr/0001` and CONTRIBUTING, *Add a family*."""

    name: str
    aliases: tuple[str, ...]
    source: str
    reasoning: ReasoningMarkers | None
    markers: tuple[Marker, ...]
    prompt: PromptPolicy
    parser: Callable[[ParseSpec], StreamParser]
    tag: Callable[[ToolPolicy, StartsIn, TagOptions], TagFormat | None]
    render: Callable[[Sequence[Item]], str]
    bans: tuple[str, ...] = ()
    """Strings that a `tool_choice: none` tag excludes from the output."""
    kept_tags: tuple[ToolChoice, ...] = ()
    """Tool choices whose native tag stays where structural tags are switched off."""
    turn_grammar: bool = False
    """Whether a tag holds every turn, also one without tools and without a forced choice."""
