"""Arrays: items by position and beyond, and how many.

The engine closes an array without `items`, refuses `true` in `prefixItems` and more positions than
`maxItems`, and knows neither `uniqueItems` nor `contains`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolrail.schema.context import Context, Emitted, Place
from toolrail.schema.locations import as_array
from toolrail.schema.sources import Member, Source
from toolrail.schema.strings import count

_MAX_COUNT: Final = 2**31 - 1
_MAX_POSITIONS: Final = 256


@dataclass(frozen=True, slots=True)
class _Items:
    """What one source says of items: by position, then of all others (None: nothing)."""

    prefix: tuple[Member, ...]
    rest: Member | None

    def at(self, index: int) -> Member | None:
        return self.prefix[index] if index < len(self.prefix) else self.rest


def arrays(context: Context, sources: Sequence[Source], place: Place) -> Emitted:
    """A schema for the arrays that the sources allow."""
    low, high = _counts(context, sources)
    said = [_items(context, source) for source in sources]
    prefix, rest = _emitted(context, said, place)
    for index, item in enumerate(prefix):
        if item is None:
            # No value may stand there, so the array ends before.
            prefix, rest = prefix[:index], None
            break
    if rest is None:
        high = len(prefix) if high is None else min(high, len(prefix))
    if high is not None:
        prefix = prefix[:high]
    _note_unheld(context, sources, high)
    if high is not None and low > high:
        return None
    emitted: dict[str, object] = {"type": "array"}
    if prefix:
        emitted["prefixItems"] = prefix
    emitted["items"] = False if rest is None or high == len(prefix) else rest
    if low:
        emitted["minItems"] = low
    if high is not None and emitted["items"] is not False:
        emitted["maxItems"] = high
    return emitted


def _counts(context: Context, sources: Sequence[Source]) -> tuple[int, int | None]:
    low, high = 0, None
    for source in sources:
        least, most = count(context, source, "minItems"), count(context, source, "maxItems")
        if least is not None and least > _MAX_COUNT:
            context.note(
                source, "minItems", "checked_after", "int32", "the grammar counts within int32 only"
            )
        elif least is not None:
            low = max(low, least)
        if most is not None and most <= _MAX_COUNT:
            high = most if high is None else min(high, most)
        if "contains" in source and count(context, source, "minContains") != 0:
            low = max(low, 1)
    context.hold_all(sources, "minItems", "maxItems")
    return low, high


def _items(context: Context, source: Source) -> _Items:
    """Items in the words of drafts 4 to 2020-12: `prefixItems`, or `items` as an array."""
    listed, keyword = as_array(source.get("prefixItems")), "prefixItems"
    rest = _rest(source, "items")
    if as_array(source.get("items")) is not None:
        listed, keyword = as_array(source.get("items")), "items"
        rest = _rest(source, "additionalItems")
    if rest is None and "unevaluatedItems" in source:
        rest = _unevaluated(context, source)
    if "prefixItems" in source and as_array(source.get("prefixItems")) is None:
        context.malformed(source, "prefixItems", "is not an array")
    prefix = [(item, source.below(keyword, str(i))) for i, item in enumerate(listed or ())]
    context.hold(source, "prefixItems", "items", "additionalItems")
    if len(prefix) > _MAX_POSITIONS:
        context.note(
            source, keyword, "relaxed", "positions",
            f"the grammar holds the first {_MAX_POSITIONS} positions", over_budget=True,
        )  # fmt: skip
        return _Items(tuple(prefix[:_MAX_POSITIONS]), None)
    return _Items(tuple(prefix), rest)


def _rest(source: Source, keyword: str) -> Member | None:
    value = source.get(keyword)
    return None if value is None or isinstance(value, list) else (value, source.below(keyword))


def _unevaluated(context: Context, source: Source) -> Member | None:
    """`unevaluatedItems` of a schema whose own keywords alone evaluate items."""
    in_place = ("contains", "if", "then", "else", "anyOf", "oneOf", "allOf", "$ref", "not")
    if any(keyword in source.schema for keyword in in_place):
        context.note(
            source, "unevaluatedItems", "checked_after", "unevaluated",
            "the grammar cannot tell which items other keywords have evaluated",
        )  # fmt: skip
        return None
    context.hold(source, "unevaluatedItems")
    return _rest(source, "unevaluatedItems")


def _emitted(
    context: Context, said: Sequence[_Items], place: Place
) -> tuple[list[Emitted], Emitted]:
    """The schemas by position and of the rest; None where nothing may stand."""
    within = place.within("inner")
    length = max((len(items.prefix) for items in said), default=0)
    prefix: list[Emitted] = []
    for index in range(length):
        members = [member for items in said if (member := items.at(index)) is not None]
        prefix.append(context.emit(members, within))
    rest = context.emit([items.rest for items in said if items.rest is not None], within)
    return prefix, rest


def _note_unheld(context: Context, sources: Sequence[Source], high: int | None) -> None:
    for source in sources:
        if source.get("uniqueItems") is True and (high is None or high > 1):
            context.note(
                source, "uniqueItems", "checked_after", "unique", "the grammar cannot compare items"
            )
        context.hold(source, "uniqueItems")
        for keyword in ("contains", "minContains", "maxContains"):
            context.note(
                source, keyword, "checked_after", "contains",
                "the grammar cannot look for an item among others",
            )  # fmt: skip
