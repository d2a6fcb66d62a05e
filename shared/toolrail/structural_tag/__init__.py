"""The structural-tag vocabulary (xgrammar's wire objects) and the options that shape a tag.

Nothing in this package imports xgrammar: a tag is plain JSON data. What a family's tag looks like
follows from its record (`structural_tag.templated`); how arguments are held in each style is
`structural_tag.arguments`.

Source of the wire objects: xgrammar 0.2.8, `StructuralTag` formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

TagFormat: TypeAlias = dict[str, object]
"""One xgrammar format object, e.g. `{"type": "any_text", "excludes": [...]}`."""


class TagOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The fields of `--structural-tag` (specification: *CLI Flags*), with its defaults.

    `custom_grammars` is ours: grammars of custom tools are held instead of refused.
    """

    scope: Literal["auto", "always"] = "always"
    schema: Literal["auto", "strict"] = "auto"
    allow_tool_calls_with_structured_output: bool = False
    exclude_special_tokens: bool | None = None
    reasoning_boundary: Literal["auto", "structural_tag", "backend"] = "auto"
    tool_arguments_any_order: bool = False
    custom_grammars: bool = False


def const(value: str) -> TagFormat:
    """Exactly `value`."""
    return {"type": "const_string", "value": value}


def any_text(excludes: Sequence[str] = (), max_chars: int | None = None) -> TagFormat:
    """Any text without the strings `excludes` in it (empty ones would forbid all text)."""
    text: TagFormat = {"type": "any_text", "excludes": [e for e in dict.fromkeys(excludes) if e]}
    return text if max_chars is None else {**text, "max_chars": max_chars}


def regex(pattern: str) -> TagFormat:
    """Text that the whole of `pattern` matches."""
    return {"type": "regex", "pattern": pattern}


def grammar(ebnf: str) -> TagFormat:
    """Text of a grammar in the engine's EBNF, from its rule `root`."""
    return {"type": "grammar", "grammar": ebnf}


def sequence(elements: Sequence[TagFormat]) -> TagFormat:
    """One after the other."""
    return elements[0] if len(elements) == 1 else {"type": "sequence", "elements": [*elements]}


def either(elements: Sequence[TagFormat]) -> TagFormat:
    """One of them."""
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": [*elements]}


def optional(content: TagFormat) -> TagFormat:
    """`content` or nothing."""
    return {"type": "optional", "content": content}


def star(content: TagFormat) -> TagFormat:
    """`content` any number of times."""
    return {"type": "star", "content": content}


def at_least(count: int, content: TagFormat) -> TagFormat:
    """`content` so many times or more."""
    return {"type": "repeat", "min": count, "max": -1, "content": content}


def tag(begin: str, content: TagFormat, end: str) -> TagFormat:
    """`content` between two strings; free text in it stops at the first `end`."""
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def triggered(
    trigger: str,
    tags: Sequence[TagFormat],
    *,
    excludes: Sequence[str],
    at_least_one: bool,
    stop_after_first: bool,
) -> TagFormat:
    """Free text and `tags`, each of which begins with `trigger`.

    `at_least_one`: no text before the first. `stop_after_first`: nothing after it.
    """
    return {
        "type": "triggered_tags",
        "triggers": [trigger],
        "tags": [*tags],
        "at_least_one": at_least_one,
        "stop_after_first": stop_after_first,
        "excludes": [e for e in dict.fromkeys(excludes) if e],
    }


def separated(tags: Sequence[TagFormat], separator: str, *, stop_after_first: bool) -> TagFormat:
    """At least one of `tags`, `separator` between two, nothing else."""
    return {
        "type": "tags_with_separator",
        "tags": [*tags],
        "separator": separator,
        "at_least_one": True,
        "stop_after_first": stop_after_first,
    }
