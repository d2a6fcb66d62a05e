"""Strings: pattern, format and lengths in the one expression that the engine applies.

The engine takes a `pattern` instead of a format, a format instead of lengths, and applies each to
the wire's text: inside JSON before escapes are undone, in a raw value instead of the guard that
keeps the closing tag out. So one expression is made of all that holds, anchored, written for the
place, and, where a value is raw, without the character that a closing tag begins with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from toolrail.schema.context import MAX_BOUND, Context, Emitted, Place
from toolrail.schema.formats import FORMATS
from toolrail.schema.lengths import counted_lengths
from toolrail.schema.numbers import number
from toolrail.schema.regex.anchored import whole
from toolrail.schema.regex.charset import ANY, WORD, of
from toolrail.schema.regex.matching import matcher
from toolrail.schema.regex.parse import RegexError, parse
from toolrail.schema.regex.syntax import (
    Chars,
    Node,
    Repeat,
    beginnings,
    can_match,
    counted,
    has_wide_loop,
    is_empty,
    lengths,
    merged,
    optionals,
    restricted,
    size,
)
from toolrail.schema.regex.writing import written
from toolrail.schema.sources import Source

MAX_PATTERN: Final = 512
"""Characters of a pattern."""
MAX_SIZE: Final = 600
"""Character positions of a pattern, its bounds written out."""
MAX_OPTIONALS: Final = 24
"""Parts of a pattern that may be left out one by one."""


_TELLING: Final = of('"\t\n\v\f\r ')
"""With what text begins that may be read as a JSON string, where it may be one."""
_NAME_CHARS: Final = WORD | of("-.$ ")
"""What names passed by an expression may be made of where names are copied as they are."""


@dataclass(frozen=True, slots=True)
class _Held:
    """What the expression is made from: a pattern or a format, or nothing yet."""

    source: Source
    keyword: str
    node: Node


@dataclass(frozen=True, slots=True)
class _Bounds:
    low: int
    high: int | None


def strings(context: Context, sources: Sequence[Source], place: Place) -> Emitted:
    """A schema for the strings that the sources allow."""
    bounds = _bounds(context, sources)
    if bounds.high is not None and bounds.low > bounds.high:
        context.hold_all(sources, "minLength", "maxLength")
        return None
    if context.style.recursive and not context.style.notation and place.level != "root":
        for keyword in ("pattern", "format", "minLength", "maxLength"):
            context.after(sources, keyword, "marker", "the grammar holds the markers only")
        return {"type": "string"}
    held = _patterned(context, sources, place) or _formatted(context, sources, place)
    if held is not None:
        return _with_lengths(context, sources, place, held, bounds)
    if context.style.counts and context.is_raw(place):
        return {"type": "string", **counted_lengths(context, sources, bounds.low, bounds.high)}
    return _lengths_only(context, sources, place, bounds)


def _bounds(context: Context, sources: Sequence[Source]) -> _Bounds:
    low, high = 0, None
    for source in sources:
        least, most = count(context, source, "minLength"), count(context, source, "maxLength")
        low = max(low, least or 0)
        if most is not None:
            high = most if high is None else min(high, most)
    return _Bounds(low, high)


def count(context: Context, source: Source, keyword: str) -> int | None:
    """The whole number, at least 0, that a keyword has; None if it has none."""
    if keyword not in source:
        return None
    value = number(source.get(keyword))
    if value is None or value.denominator != 1 or value < 0:
        context.malformed(source, keyword, "is not a whole number of at least 0")
        return None
    return int(value)


def _patterned(context: Context, sources: Sequence[Source], place: Place) -> _Held | None:
    """The first pattern that can be held; what becomes of the others is noted."""
    held: _Held | None = None
    texts: set[str] = set()
    for source in sources:
        pattern = source.get("pattern")
        if "pattern" not in source:
            continue
        if not isinstance(pattern, str):
            context.malformed(source, "pattern", "is not a string")
        elif pattern in texts:
            context.hold(source, "pattern")
        elif held is not None:
            context.note(
                source, "pattern", "checked_after", "one_pattern",
                "the grammar holds one pattern of a value only",
            )  # fmt: skip
        else:
            held = _held(context, source, "pattern", pattern, place)
            texts.add(pattern if held else "")
    return held


def _formatted(context: Context, sources: Sequence[Source], place: Place) -> _Held | None:
    held: _Held | None = None
    for source in sources:
        name = source.get("format")
        if not isinstance(name, str):
            continue
        if name not in FORMATS:
            context.note(
                source, "format", "dropped", "unknown_format", "no grammar is known for the format"
            )
        elif held is None:
            held = _held(context, source, "format", FORMATS[name], place)
        elif source.get("format") != held.source.get("format"):
            context.note(
                source, "format", "dropped", "one_pattern",
                "the grammar holds one format of a value only",
            )  # fmt: skip
    return held


def _held(
    context: Context, source: Source, keyword: str, pattern: str, place: Place
) -> _Held | None:
    """The expression as it can be held at a place, or None and a note."""
    if len(pattern) > MAX_PATTERN and keyword != "format":
        context.note(
            source, keyword, "dropped", "pattern_length",
            f"is longer than {MAX_PATTERN} characters", over_budget=True,
        )  # fmt: skip
        return None
    try:
        whole_node, looks = _parsed(pattern)
    except RegexError as error:
        _unheld(context, source, keyword, error)
        return None
    node = _writable(context, source, keyword, whole_node, place)
    if node is None or not _is_affordable(context, source, keyword, node):
        return None
    if looks:
        context.note(source, keyword, "relaxed", "look_ahead", "the grammar cannot look ahead")
    context.hold(source, keyword)
    return _Held(source, keyword, node)


def _is_affordable(context: Context, source: Source, keyword: str, node: Node) -> bool:
    """True if the grammar can hold the node at a bearable cost; else False and a note."""
    if size(node) > MAX_SIZE or optionals(node) > MAX_OPTIONALS:
        context.note(
            source, keyword, "checked_after", "pattern_size",
            "has too many positions or optional parts for a grammar", over_budget=True,
        )  # fmt: skip
    elif has_wide_loop(node):
        context.note(
            source, keyword, "checked_after", "pattern_cost",
            "repeats a group that may be any one character, which costs an engine too much",
        )  # fmt: skip
    elif not context.budget.take_positions(size(node)) or not context.budget.take_counted(
        counted(node)
    ):
        context.note(
            source, keyword, "checked_after", "budget", "the schema's patterns are too many"
        )
    else:
        return True
    return False


@lru_cache(maxsize=512)
def _parsed(pattern: str) -> tuple[Node, bool]:
    """The expression as a whole match, and whether it looks ahead. Raises RegexError."""
    regex = parse(pattern)
    return merged(whole(regex.node)), bool(regex.looks)


def _unheld(context: Context, source: Source, keyword: str, error: RegexError) -> None:
    if error.is_valid:
        # Nor can it be matched in linear time afterwards.
        context.note(source, keyword, "dropped", "regex", f"has: {error.feature}")
    else:
        context.malformed(source, keyword, f"is not a regular expression: {error.feature}")


def _writable(
    context: Context, source: Source, keyword: str, node: Node, place: Place
) -> Node | None:
    """The node without what cannot be written at the place; None if nothing is left."""
    forbidden = context.unwritable(place)
    if not forbidden or not can_match(node, of(forbidden)):
        return node
    cut = restricted(node, ANY - of(forbidden))
    if is_empty(cut):
        context.note(
            source, keyword, "checked_after", "closing_tag",
            f"needs {forbidden!r}, which begins what ends the value",
        )  # fmt: skip
        return None
    _narrow(context, source, keyword, f"values cannot hold {forbidden!r}")
    return cut


def _narrow(context: Context, source: Source, keyword: str, detail: str) -> None:
    context.note(source, keyword, "enforced", "narrowed", detail)


def _with_lengths(
    context: Context, sources: Sequence[Source], place: Place, held: _Held, bounds: _Bounds
) -> Emitted:
    node = held.node
    if isinstance(node, Repeat) and isinstance(node.node, Chars):
        high = bounds.high if node.high is None else min(node.high, bounds.high or node.high)
        low = max(node.low, bounds.low)
        if high is not None and low > high:
            context.hold_all(sources, "minLength", "maxLength")
            return None
        if low <= MAX_BOUND and (high is None or high <= MAX_BOUND):
            node = Repeat(node.node, low, high)
    least, most = lengths(node)
    if least >= bounds.low:
        context.hold_all(sources, "minLength")
    else:
        _after_lengths(context, sources, "minLength", held.keyword)
    if bounds.high is None or (most is not None and most <= bounds.high):
        context.hold_all(sources, "maxLength")
    else:
        _after_lengths(context, sources, "maxLength", held.keyword)
    return _expression(context, node, place, [(held.source, held.keyword)])


def _after_lengths(context: Context, sources: Sequence[Source], keyword: str, beside: str) -> None:
    context.after(
        sources, keyword, f"{beside}_and_length", f"the grammar cannot count beside a {beside}"
    )


def _lengths_only(
    context: Context, sources: Sequence[Source], place: Place, bounds: _Bounds
) -> Emitted:
    plain: dict[str, object] = {"type": "string"}
    if bounds.low == 0 and bounds.high is None:
        context.hold_all(sources, "minLength", "maxLength")
        return plain
    guarded = bool(context.unwritable(place))
    if (
        bounds.high is not None
        and bounds.high <= MAX_BOUND
        and context.budget.take_counted(bounds.high)
    ):
        context.hold_all(sources, "minLength", "maxLength")
        said = [(s, k) for s in sources for k in ("minLength", "maxLength") if k in s]
        return _expression(context, Repeat(Chars(ANY), bounds.low, bounds.high), place, said)
    context.after(
        sources, "maxLength", "long_bound",
        f"the grammar counts up to {MAX_BOUND} characters of a string, and a limited number of all",
    )  # fmt: skip
    if context.style.notation and bounds.low <= MAX_BOUND:
        context.hold_all(sources, "minLength")
        return plain | ({"minLength": bounds.low} if bounds.low else {})
    if bounds.low == 0:
        context.hold_all(sources, "minLength")
        return plain
    if guarded:
        context.after(
            sources, "minLength", "closing_tag",
            "the grammar cannot count beside the guard of what ends the value",
        )  # fmt: skip
        return plain
    if bounds.low == 1:
        context.hold_all(sources, "minLength")
    else:
        context.relax(sources, "minLength", "one_at_least", "the grammar asks for one character")
    return _expression(context, Repeat(Chars(ANY), 1, None), place, [])


def _expression(
    context: Context, node: Node, place: Place, said: Sequence[tuple[Source, str]]
) -> Emitted:
    """The schema with the node as the engine's pattern; `said`: the keywords that it holds."""
    raw = context.is_raw(place)
    forbidden = context.unwritable(place)
    if forbidden and can_match(node, of(forbidden)):
        node = restricted(node, ANY - of(forbidden))
        for source, keyword in said:
            _narrow(context, source, keyword, f"values cannot hold {forbidden!r}")
    if context.style.counts_wire and raw and beginnings(node) & _TELLING:
        for source, keyword in said:
            detail = "values cannot begin with a quotation mark or white space"
            _narrow(context, source, keyword, detail)
    if place.level == "top" and context.style.pads:
        for source, keyword in said:
            context.note(
                source, keyword, "relaxed", "outer_space", "white space may stand around the value"
            )
    expression = written(node, json_string=not raw)
    if expression.narrowed:
        for source, keyword in said:
            _narrow(context, source, keyword, "values cannot hold what JSON must escape")
    if context.style.notation:
        expression = written(node, json_string=False)
    return {"type": "string", "pattern": expression.pattern}


def name_expression(context: Context, source: Source, pattern: str, *, raw: bool) -> str | None:
    """The engine's expression of the names in which `pattern` is found; None and a note if none.

    `raw`: the names are copied as they are, not written as JSON strings.
    """
    held = _held(context, source, "patternProperties", pattern, Place("inner"))
    if held is None:
        return None
    node = held.node
    if raw and can_match(node, ANY - _NAME_CHARS):
        node = restricted(node, _NAME_CHARS)
        if is_empty(node):
            return None
        _narrow(context, source, "patternProperties", "names are made of simple characters")
    return written(node, json_string=not (raw or context.style.notation)).pattern


def string_conforms(source: Source, value: str) -> bool:
    """Whether a string meets the lengths and the pattern of one source."""
    least, most = number(source.get("minLength")), number(source.get("maxLength"))
    if (least is not None and len(value) < least) or (most is not None and len(value) > most):
        return False
    pattern = source.get("pattern")
    try:
        return not isinstance(pattern, str) or matcher(pattern).found_in(value)
    except RegexError:
        return True
