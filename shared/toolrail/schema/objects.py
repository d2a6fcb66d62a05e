"""Objects: properties by name, by pattern and beyond, which must be there, and how many.

The engine closes an object that does not say otherwise, knows only those required names that are
properties, lets a name that matches a pattern or a name schema pass for a declared one, and pays
for every count over optional properties. Raw styles copy names as they are and take extra arguments
under simple names only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from toolrail.schema.context import Context, Emitted, Place
from toolrail.schema.locations import as_array, as_object
from toolrail.schema.names import Names, close, counted, forbidden_names, is_found
from toolrail.schema.sources import Member, Source
from toolrail.schema.strings import count

MAX_OPTIONAL: Final = 512
"""Optional properties of one object: an engine's cost grows with their square."""
MAX_PROPERTIES: Final = 5_000


def objects(context: Context, sources: Sequence[Source], place: Place) -> Emitted:
    """A schema for the objects that the sources allow."""
    whole = _put_together(context, sources)
    low, high = _counts(context, sources)
    if high is not None and max(low, len(whole.required)) > high:
        return None
    _say_names(context, sources, whole)
    if _is_too_wide(context, sources, whole):
        return context.any_object(place)
    is_free = not whole.declared and (whole.patterns or whole.rest is not None)
    elements = context.style.recursive and not context.style.notation
    if is_free and elements and place.level != "root":
        return _free(context, sources, place)
    level = "top" if place.level == "root" else "inner"
    within = place.within(level)
    properties: dict[str, object] = {}
    forbidden = forbidden_names(context, sources, whole.declared)
    for name, members in whole.declared.items():
        emitted = None if name in forbidden else context.emit(members, within)
        if emitted is None and name in whole.required:
            return None
        if emitted is None:
            _say_forbidden(context, sources, whole, name)
        elif not context.style.can_name(name) and context.copies_names(within):
            if name in whole.required:
                return _unwritable(context, sources, name, place)
            _say_unwritable(context, sources, name)
        else:
            properties[name] = emitted
    body: dict[str, object] = {"type": "object", "properties": properties}
    body["required"] = list(whole.required)
    close(context, sources, whole, body, place)
    return counted(context, sources, body, low, high)


def _put_together(context: Context, sources: Sequence[Source]) -> Names:
    whole = Names()
    names: dict[str, None] = {}
    for source in sources:
        names |= dict.fromkeys(_mapping(context, source, "properties"))
        for name in _strings(context, source, "required"):
            whole.required[name] = None
    names |= whole.required
    for source in sources:
        for name in names:
            whole.declared.setdefault(name, []).extend(_at(context, source, name))
        for pattern, schema in _mapping(context, source, "patternProperties").items():
            member = (schema, source.below("patternProperties", pattern))
            whole.patterns.append((pattern, member, source))
        rest = _rest(context, source)
        if rest is not None and rest[0] is False:
            whole.rest = None
        elif rest is not None and whole.rest is not None:
            whole.rest.append(rest)
    return whole


def _mapping(context: Context, source: Source, keyword: str) -> Mapping[str, object]:
    if keyword not in source:
        return {}
    value = as_object(source.get(keyword))
    if value is None:
        context.malformed(source, keyword, "is not an object")
    return value or {}


def _strings(context: Context, source: Source, keyword: str) -> list[str]:
    if keyword not in source:
        return []
    values = as_array(source.get(keyword))
    if values is None or not all(isinstance(value, str) for value in values):
        context.malformed(source, keyword, "is not an array of strings")
    return [value for value in values or () if isinstance(value, str)]


def _at(context: Context, source: Source, name: str) -> list[Member]:
    """What one source says of the value under a name."""
    members: list[Member] = []
    properties = as_object(source.get("properties")) or {}
    if name in properties:
        members.append((properties[name], source.below("properties", name)))
    for pattern, schema in (as_object(source.get("patternProperties")) or {}).items():
        found = is_found(pattern, name)
        if found is None:
            context.note(
                source, "patternProperties", "relaxed", "regex",
                "has an expression that the grammar cannot apply",
            )  # fmt: skip
        elif found:
            members.append((schema, source.below("patternProperties", pattern)))
    if not members:
        rest = _rest(context, source)
        if rest is not None:
            members.append(rest)
    return members


def _rest(context: Context, source: Source) -> Member | None:
    """What one source says of names that it does not declare; None: nothing."""
    if "additionalProperties" in source:
        value = source.get("additionalProperties")
        if value is None:
            context.malformed(source, "additionalProperties", "is not a schema")
            return None
        return (value, source.below("additionalProperties"))
    if "unevaluatedProperties" not in source:
        return None
    in_place = ("if", "then", "else", "dependentSchemas", "anyOf", "oneOf", "allOf", "$ref", "not")
    if any(keyword in source.schema for keyword in in_place):
        context.note(
            source, "unevaluatedProperties", "checked_after", "unevaluated",
            "the grammar cannot tell which properties other keywords have evaluated",
        )  # fmt: skip
        return None
    context.hold(source, "unevaluatedProperties")
    return (source.get("unevaluatedProperties"), source.below("unevaluatedProperties"))


def _counts(context: Context, sources: Sequence[Source]) -> tuple[int, int | None]:
    low, high = 0, None
    for source in sources:
        least, most = (
            count(context, source, "minProperties"),
            count(context, source, "maxProperties"),
        )
        low = max(low, least or 0)
        if most is not None:
            high = most if high is None else min(high, most)
    context.hold_all(sources, "minProperties", "maxProperties")
    return low, high


def _say_names(context: Context, sources: Sequence[Source], whole: Names) -> None:
    context.hold_all(sources, "properties", "patternProperties", "additionalProperties")
    if context.any_order and whole.required:
        context.relax(
            sources, "required", "any_order",
            "in any order the grammar counts arguments and does not tell which are there",
        )  # fmt: skip
    context.hold_all(sources, "required")


def _is_too_wide(context: Context, sources: Sequence[Source], whole: Names) -> bool:
    optional = len(whole.declared) - len(whole.required)
    if optional <= MAX_OPTIONAL and len(whole.declared) <= MAX_PROPERTIES:
        return False
    for keyword in ("properties", "required", "additionalProperties", "patternProperties"):
        for source in sources:
            context.note(
                source, keyword, "checked_after", "width",
                f"the grammar holds {MAX_OPTIONAL} optional properties of an object",
                over_budget=True,
            )  # fmt: skip
    return True


def _say_forbidden(context: Context, sources: Sequence[Source], whole: Names, name: str) -> None:
    """A name that may not be there is left out, which says nothing if any other name may."""
    if whole.rest is None and not whole.patterns:
        return
    for source in sources:
        if name in (as_object(source.get("properties")) or {}):
            context.note(
                source, "properties", "relaxed", "forbidden_name",
                "the grammar cannot forbid one name among any others",
            )  # fmt: skip


def _say_unwritable(context: Context, sources: Sequence[Source], name: str) -> None:
    for source in sources:
        context.note(
            source, "properties", "enforced", "narrowed",
            f"the argument {name[:40]!r} cannot be written in this syntax and is left out",
        )  # fmt: skip


def _unwritable(context: Context, sources: Sequence[Source], name: str, place: Place) -> Emitted:
    for keyword in ("properties", "required", "additionalProperties", "patternProperties"):
        context.after(
            sources, keyword, "unsafe_name",
            f"the argument {name[:40]!r} cannot be written in this syntax",
        )  # fmt: skip
    return context.any_object(place)


def _free(context: Context, sources: Sequence[Source], place: Place) -> Emitted:
    for keyword in ("type", "patternProperties", "additionalProperties", "propertyNames"):
        context.after(
            sources, keyword, "free_object", "elements of any name cannot be written in this syntax"
        )
    return context.any_object(place)
