"""`enum` and `const`: the values that are left, written as the engine takes them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, Literal, TypeAlias

from toolrail.schema.context import Context, Emitted, Place
from toolrail.schema.kinds import Kind, kind_of
from toolrail.schema.locations import as_array, as_object
from toolrail.schema.numbers import number
from toolrail.schema.sources import Source
from toolrail.schema.strings import string_conforms

MAX_CONSTANT_DEPTH: Final = 32
MAX_CONSTANT_BYTES: Final = 100_000
"""Characters of all constants of one place: a compile pays for each."""
_MAX_INTEGER: Final = 2**63 - 1
_MAX_DECIMAL: Final = 10**15
_DECIMALS: Final = 10**6
_SCALAR_KEYWORDS: Final = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_LENGTH_KEYWORDS: Final = ("minLength", "maxLength")

Key: TypeAlias = tuple[Literal["boolean", "number", "array", "object", "scalar"], Hashable]
"""A JSON value as something that compares as JSON Schema compares."""


def constants(
    context: Context,
    sources: Sequence[Source],
    values: Sequence[object],
    admitted: frozenset[Kind],
    place: Place,
) -> Emitted:
    """A schema for those of the `shared` values that the sources allow.

    What else the sources say of scalars is applied to the values here; what they say of objects
    and arrays is left to the check after generation.
    """
    kept = [v for v in values if kind_of(v) in admitted and _conforms(context, sources, v)]
    _note_unapplied(context, sources, kept)
    return _written(context, sources, kept, place)


def key_of(value: object) -> Key:
    """Equal for values that JSON Schema calls equal (1 and 1.0, objects in any order)."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, int | float):
        return ("number", value)
    array = as_array(value)
    if array is not None:
        return ("array", tuple(map(key_of, array)))
    members = as_object(value)
    if members is not None:
        return ("object", frozenset((name, key_of(member)) for name, member in members.items()))
    return ("scalar", None if value is None else str(value))


def listed(context: Context, source: Source) -> list[object] | None:
    """The values that one source allows by `enum` or `const`; None: it has neither."""
    found: list[object] | None = None
    if "enum" in source:
        found = as_array(source.get("enum"))
        if found is None:
            context.malformed(source, "enum", "is not an array")
    if "const" in source.schema and "const" not in source.without:
        const = source.schema["const"]
        if found is None:
            found = [const]
        elif _is_shallow(const) and _is_shallow(found):
            found = [v for v in found if key_of(v) == key_of(const)]
    if found is None:
        return None
    if not _is_shallow(found) or _characters(found) > MAX_CONSTANT_BYTES:
        for keyword in ("enum", "const"):
            context.note(
                source, keyword, "checked_after", "constant_size",
                "the constants are too deep or too long for a grammar", over_budget=True,
            )  # fmt: skip
        return None
    context.hold(source, "enum", "const")
    return found


def shared(context: Context, sources: Sequence[Source]) -> list[object] | None:
    """The values that every `enum` and `const` of the sources allows; None: there is none."""
    common: dict[Key, object] | None = None
    for source in sources:
        found = listed(context, source)
        if found is None:
            continue
        keyed = {key_of(value): value for value in found}
        common = keyed if common is None else {k: v for k, v in common.items() if k in keyed}
    return None if common is None else list(common.values())


def _is_shallow(value: object) -> bool:
    level = [value]
    for _ in range(MAX_CONSTANT_DEPTH):
        below: list[object] = []
        for member in level:
            below.extend(as_array(member) or (as_object(member) or {}).values())
        if not below:
            return True
        level = below
    return False


def _characters(value: object) -> int:
    total = 0
    pending = [value]
    while pending:
        member = pending.pop()
        members = as_object(member)
        total += len(member) if isinstance(member, str) else 8
        if members is not None:
            total += sum(map(len, members))
            pending.extend(members.values())
        pending.extend(as_array(member) or ())
    return total


def _conforms(context: Context, sources: Sequence[Source], value: object) -> bool:
    """Whether a scalar meets what the sources say of scalars; True for what is not looked at."""
    if isinstance(value, str):
        return all(string_conforms(source, value) for source in sources)
    exact = number(value)
    return exact is None or all(_number_conforms(source, value) for source in sources)


def _number_conforms(source: Source, value: object) -> bool:
    exact = number(value)
    if exact is None:
        return True
    least, most = number(source.get("minimum")), number(source.get("maximum"))
    over, under = number(source.get("exclusiveMinimum")), number(source.get("exclusiveMaximum"))
    factor = number(source.get("multipleOf"))
    return not (
        (least is not None and exact < least)
        or (most is not None and exact > most)
        or (over is not None and exact <= over)
        or (under is not None and exact >= under)
        or (factor is not None and factor > 0 and (exact / factor).denominator != 1)
    )


def _note_unapplied(context: Context, sources: Sequence[Source], kept: Sequence[object]) -> None:
    """Says of the other keywords whether they were applied to the constants."""
    composite = any(isinstance(value, list | dict) for value in kept)
    for source in sources:
        for keyword in source.schema:
            if keyword in _APPLIED:
                context.hold(source, keyword)
            elif keyword in _STRUCTURAL and composite:
                context.note(
                    source, keyword, "checked_after", "beside_constants",
                    "the grammar holds the listed values as they are",
                )  # fmt: skip
            elif keyword in _STRUCTURAL:
                context.hold(source, keyword)


_APPLIED: Final = frozenset({*_SCALAR_KEYWORDS, *_LENGTH_KEYWORDS, "pattern", "multipleOf"})
_STRUCTURAL: Final = frozenset(
    {
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "uniqueItems",
        "contains",
    }
)


def _written(
    context: Context, sources: Sequence[Source], values: Sequence[object], place: Place
) -> Emitted:
    plain: list[object] = []
    others: list[dict[str, object]] = []
    for value in values:
        if isinstance(value, float) and context.style.notation:
            whole = value.is_integer() and abs(value) < _MAX_DECIMAL
            plain.append(int(value) if whole else value)
        elif isinstance(value, float):
            others.append(_float(context, sources, value))
        elif isinstance(value, int) and not isinstance(value, bool) and abs(value) > _MAX_INTEGER:
            _relax(context, sources, "the grammar counts within int64 only")
            others.append({"type": "integer"})
        elif _is_writable(context, value, place):
            plain.append(value)
        else:
            _narrow(context, sources)
    style = context.style
    if style.pads and style.tells_type != "no" and place.level == "top":
        # Where the wire tells no type, a listed string is read without the space around it.
        for keyword in ("enum", "const"):
            context.relax(sources, keyword, "outer_space", "white space may stand around the value")
    options = [{"enum": plain}, *others] if plain else others
    if not options:
        return _unwritable(context, sources) if values else None
    return dict(options[0]) if len(options) == 1 else {"anyOf": options}


def _float(context: Context, sources: Sequence[Source], value: float) -> dict[str, object]:
    """One number: the engine would write a constant with seventeen digits."""
    if value.is_integer() and abs(value) < _MAX_DECIMAL:
        return {"enum": [int(value)]}
    if abs(value) < _MAX_DECIMAL and round(value, 6) == value:
        return {"type": "number", "minimum": value, "maximum": value}
    _relax(context, sources, "the grammar writes numbers with at most six decimals")
    return {"type": "number"}


def _is_writable(context: Context, value: object, place: Place) -> bool:
    """False when the text of the value would end the raw value that holds it."""
    closer = context.style.closer
    texts = (*context.excludes, closer) if closer and place.level != "root" else context.excludes
    return not any(_holds(value, text) for text in texts)


def _holds(value: object, text: str) -> bool:
    if isinstance(value, str):
        return text in value
    members = as_object(value)
    if members is not None:
        return any(text in name or _holds(member, text) for name, member in members.items())
    return any(_holds(member, text) for member in as_array(value) or ())


def _unwritable(context: Context, sources: Sequence[Source]) -> Emitted:
    for keyword in ("enum", "const"):
        context.after(
            sources, keyword, "closing_tag", "every value holds what ends the value on the wire"
        )
    return {"type": "string"}


def _narrow(context: Context, sources: Sequence[Source]) -> None:
    for source in sources:
        for keyword in ("enum", "const"):
            context.note(
                source, keyword, "enforced", "narrowed",
                "a value that holds what ends it on the wire is left out",
            )  # fmt: skip


def _relax(context: Context, sources: Sequence[Source], detail: str) -> None:
    for keyword in ("enum", "const"):
        context.relax(sources, keyword, "constant_number", detail)
