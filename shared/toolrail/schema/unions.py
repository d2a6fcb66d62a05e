"""`anyOf` and `oneOf`: branches, each joined with what stands beside them.

The engine reads nothing beside a union, so what stands there goes into each branch. `oneOf` becomes
`anyOf`: exact where no value can satisfy two branches, weaker otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolrail.schema.constants import Key, key_of, listed
from toolrail.schema.context import MAX_BRANCHES, Context, Emitted, Place
from toolrail.schema.kinds import ALL, Kind, kind_of
from toolrail.schema.locations import as_array, as_object
from toolrail.schema.sources import Gathered, Member, Source

UNIONS: Final = ("anyOf", "oneOf")
_ANY_WILL_DO: Final = frozenset({"null", "boolean", "integer", "number"})
"""Types of options, without keywords of their own, whose values are all the same to a schema."""


@dataclass(frozen=True, slots=True)
class Union:
    """One `anyOf` or `oneOf` at a place."""

    source: Source
    keyword: str
    branches: tuple[Member, ...]


def first_union(context: Context, sources: Sequence[Source], place: Place) -> Union | None:
    """A union of the sources that is to be opened next; those that cannot be are noted."""
    for source in sources:
        for keyword in UNIONS:
            if keyword not in source:
                continue
            members = as_array(source.get(keyword))
            if not members:
                context.malformed(source, keyword, "is not a nonempty array")
                continue
            if len(members) * place.combinations > MAX_BRANCHES and not _all_constant(members):
                context.note(
                    source, keyword, "checked_after", "branches",
                    f"makes more than {MAX_BRANCHES} combinations of branches", over_budget=True,
                )  # fmt: skip
                continue
            places = (source.below(keyword, str(index)) for index in range(len(members)))
            return Union(source, keyword, tuple(zip(members, places, strict=True)))
    return None


def _all_constant(members: Sequence[object]) -> bool:
    schemas = [as_object(member) or {} for member in members]
    return all("const" in schema or "enum" in schema for schema in schemas)


def without(sources: Sequence[Source], union: Union) -> list[Source]:
    """The sources without a union of theirs."""
    return [source.drop(union.keyword) if source is union.source else source for source in sources]


def say(context: Context, union: Union) -> None:
    """Notes how far the grammar holds a union that is opened."""
    if union.keyword == "oneOf" and not _are_disjoint(context, union):
        context.note(
            union.source, "oneOf", "relaxed", "overlap",
            "the grammar cannot tell a value that satisfies several branches",
        )  # fmt: skip
    context.hold(union.source, union.keyword)


def joined(options: Sequence[Emitted]) -> Emitted:
    """The union of emitted schemas, flat and without doubles."""
    flat: list[dict[str, object]] = []
    for option in options:
        if option is None:
            continue
        inner = as_array(option.get("anyOf")) if set(option) == {"anyOf"} else None
        members = [dict(as_object(m) or {}) for m in inner] if inner else [option]
        flat.extend(member for member in members if member not in flat)
    if {} in flat:
        return {}
    if not flat:
        return None
    return flat[0] if len(flat) == 1 else {"anyOf": _merged_constants(flat)}


def is_read_otherwise(emitted: Mapping[str, object]) -> bool:
    """Whether text that a string option admits may be read as a value that none of them admits.

    For places where a string stands as it is and the declared types alone tell it from other
    values. Text that looks like a value of a type is one: no harm where any value of the type will
    do.
    """
    options = [as_object(option) or {} for option in as_array(emitted.get("anyOf")) or [emitted]]
    strings = any(_admits_lookalikes(option) for option in options)
    others = [option for option in options if option.get("type") != "string"]
    return strings and any(_may_misread(option) for option in others)


def _admits_lookalikes(option: Mapping[str, object]) -> bool:
    """Whether the option admits a string that looks like another value."""
    texts = [value for value in as_array(option.get("enum")) or [] if isinstance(value, str)]
    return option.get("type") == "string" or any(_key_of_text(t) != key_of(t) for t in texts)


def _may_misread(option: Mapping[str, object]) -> bool:
    values = as_array(option.get("enum"))
    if values is None:
        return not (set(option) == {"type"} and option["type"] in _ANY_WILL_DO)
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) in (0, len(values)):
        return not texts
    known = {key_of(value) for value in values}
    return any(key not in known for key in map(_key_of_text, texts))


def _key_of_text(text: str) -> Key:
    try:
        return key_of(json.loads(text))
    except (ValueError, RecursionError):
        return key_of(text)


def _merged_constants(options: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Options that only list constants become one, where the first of them stood."""
    merged: list[dict[str, object]] = []
    constants: list[object] | None = None
    for option in options:
        values = as_array(option.get("enum")) if set(option) == {"enum"} else None
        if values is None:
            merged.append(option)
        elif constants is None:
            constants = list(values)
            merged.append({"enum": constants})
        else:
            known = {key_of(value) for value in constants}
            constants.extend(value for value in values if key_of(value) not in known)
    return merged


@dataclass(frozen=True, slots=True)
class _Shape:
    """What tells a branch from others: its kinds, its constants, its telling properties."""

    kinds: frozenset[Kind]
    constants: frozenset[Key] | None
    properties: dict[str, frozenset[Key]]
    """Required properties that can only hold constants."""


def _are_disjoint(context: Context, union: Union) -> bool:
    """True when provably no value satisfies two branches."""
    shapes = [_shape(context, context.document.gather([branch])) for branch in union.branches]
    return all(
        _apart(left, right) for index, left in enumerate(shapes) for right in shapes[index + 1 :]
    )


def _shape(context: Context, gathered: Gathered) -> _Shape:
    found: frozenset[Kind] = frozenset() if gathered.never else ALL
    constants: frozenset[Key] | None = None
    telling: dict[str, frozenset[Key]] = {}
    for source in gathered.sources:
        found &= _kinds(source)
        values = _constants(context, source)
        if values is not None:
            constants = values if constants is None else constants & values
        telling |= _telling(context, source)
    return _Shape(found, constants, telling)


def _kinds(source: Source) -> frozenset[Kind]:
    value = source.get("type")
    names = [value] if isinstance(value, str) else as_array(value)
    if not names or source.get("nullable") is True:
        return ALL
    admitted: set[Kind] = set()
    for name in names:
        if name == "number":
            admitted |= {"integer", "fraction"}
        admitted |= {kind for kind in ALL if kind == name}
    return frozenset(admitted)


def _constants(context: Context, source: Source) -> frozenset[Key] | None:
    values = listed(context, source) if "enum" in source or "const" in source.schema else None
    return None if values is None else frozenset(map(key_of, values))


def _telling(context: Context, source: Source) -> dict[str, frozenset[Key]]:
    required = as_array(source.get("required")) or []
    properties = as_object(source.get("properties")) or {}
    telling: dict[str, frozenset[Key]] = {}
    for name in required:
        if isinstance(name, str) and name in properties:
            place = source.below("properties", name)
            gathered = context.document.gather([(properties[name], place)])
            for inner in gathered.sources:
                values = _constants(context, inner)
                if values is not None:
                    telling[name] = telling.get(name, values) & values
    return telling


def _apart(left: _Shape, right: _Shape) -> bool:
    if left.kinds.isdisjoint(right.kinds):
        return True
    if left.constants is not None and right.constants is not None:
        return left.constants.isdisjoint(right.constants)
    if left.constants is not None or right.constants is not None:
        constants, other = (
            (left.constants, right) if left.constants is not None else (right.constants, left)
        )
        return all(_kind_of_key(key) not in other.kinds for key in constants or ())
    # Both may be objects: a property that each requires, with other constants, tells them apart.
    objects_only = left.kinds == right.kinds == frozenset({"object"})
    return objects_only and any(
        name in right.properties and values.isdisjoint(right.properties[name])
        for name, values in left.properties.items()
    )


def _kind_of_key(key: Key) -> Kind:
    if key[0] in ("boolean", "array", "object"):
        return key[0]
    return kind_of(key[1])
