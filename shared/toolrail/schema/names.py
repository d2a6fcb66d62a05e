"""Names of properties beyond the declared ones, and how many there may be.

What a grammar can say of other names is little: that there are none, that any will do, that all
match one expression. The engine lets a name that passes by an expression or a name schema repeat a
declared one, so both are held only where nothing is declared, or where the two cannot meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from toolrail.schema.context import Context, Emitted, Place
from toolrail.schema.enforcement import Note
from toolrail.schema.locations import as_array, as_object
from toolrail.schema.regex.matching import matcher
from toolrail.schema.regex.parse import RegexError
from toolrail.schema.sources import Member, Source, text
from toolrail.schema.strings import name_expression, string_conforms

MAX_COUNTED_OPTIONAL: Final = 16
"""Optional properties among which the grammar counts."""
_NO_OTHERS: Final = "arguments that are not declared cannot be written"
_NAME_KEYWORDS: Final = frozenset(
    {"type", "pattern", "minLength", "maxLength", "format", "title", "description", "$comment"}
)


@dataclass(slots=True)
class Names:
    """What the sources of an object say, put together.

    Attributes:
        declared: schemas that hold for each name, in order of first mention.
        required: the names that must be there.
        patterns: expression of a name, what holds for its value, and who says so.
        rest: what holds for all other names; None: there may be none.
    """

    declared: dict[str, list[Member]] = field(default_factory=dict[str, list[Member]])
    required: dict[str, None] = field(default_factory=dict[str, None])
    patterns: list[tuple[str, Member, Source]] = field(
        default_factory=list[tuple[str, Member, Source]]
    )
    rest: list[Member] | None = field(default_factory=list[Member])


def is_found(pattern: str, name: str) -> bool | None:
    """Whether the expression is found in a name; None if that cannot be told."""
    try:
        return matcher(pattern).found_in(name)
    except RegexError:
        return None


def forbidden_names(
    context: Context, sources: Sequence[Source], declared: Iterable[str]
) -> frozenset[str]:
    """The declared names that a `propertyNames` rules out."""
    forbidden: set[str] = set()
    names = list(declared)
    for source in sources:
        schema = as_object(source.get("propertyNames"))
        if schema is None or not _is_plain(schema):
            continue
        inner = Source(schema, source.below("propertyNames"))
        forbidden.update(name for name in names if not string_conforms(inner, name))
    return frozenset(forbidden)


def _is_plain(schema: Mapping[str, object]) -> bool:
    """True when everything in a name schema is looked at by `forbidden_names`."""
    return _NAME_KEYWORDS.issuperset(schema) and schema.get("type", "string") == "string"


def close(
    context: Context,
    sources: Sequence[Source],
    whole: Names,
    body: dict[str, object],
    place: Place,
) -> None:
    """Says in `body`, which has `properties`, what other names there may be."""
    name_schemas = _name_schemas(context, sources)
    notation = context.style.notation and (place.level != "root" or not whole.declared)
    if context.style.recursive and not notation:
        _close_elements(context, sources, whole, body)
    elif whole.patterns:
        if whole.rest is not None or name_schemas or not _patterned(context, whole, body, place):
            _leave_open(context, whole, body)
    elif whole.rest is None:
        body["additionalProperties"] = False
    else:
        _open(context, sources, whole.rest, place, body)
    if name_schemas:
        _say_name_schemas(context, sources, name_schemas, body, place)


def _close_elements(
    context: Context, sources: Sequence[Source], whole: Names, body: dict[str, object]
) -> None:
    """Elements have fixed names, so there are no others."""
    body["additionalProperties"] = False
    if whole.patterns or whole.rest is not None:
        for keyword in ("additionalProperties", "patternProperties", "unevaluatedProperties"):
            for source in sources:
                context.note(
                    source, keyword, "enforced", "narrowed",
                    "elements of any name cannot be written in this syntax",
                )  # fmt: skip


def _is_raw_root(context: Context, place: Place) -> bool:
    copied = context.style.notation or not context.style.is_json
    return copied and place.level == "root"


def _open(
    context: Context,
    sources: Sequence[Source],
    rest: Sequence[Member],
    place: Place,
    body: dict[str, object],
) -> None:
    asking = [s for s in sources if "additionalProperties" in s or "unevaluatedProperties" in s]
    raw = _is_raw_root(context, place) and bool(body["properties"])
    if raw and not asking:
        # An extra argument could repeat a declared name, and nobody has asked for extra ones.
        body["additionalProperties"] = False
        context.ledger.note(Note(text(sources[0].path), "enforced", "narrowed", _NO_OTHERS))
        return
    emitted = context.emit(rest, place.within("top" if place.level == "root" else "inner"))
    body["additionalProperties"] = False if emitted is None else emitted or True
    if emitted is not None and any(map(_is_escaped, as_object(body["properties"]) or {})):
        context.relax(
            sources, "properties", "repeated_name",
            "the grammar cannot keep other names from repeating one that JSON must escape",
        )  # fmt: skip
    if raw and emitted is not None and not context.style.notation:
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            context.relax(
                asking, keyword, "repeated_name",
                "the grammar cannot keep an extra argument from repeating a declared name",
            )  # fmt: skip


def _is_escaped(name: str) -> bool:
    return any(character in '"\\' or character < " " for character in name)


def _patterned(context: Context, whole: Names, body: dict[str, object], place: Place) -> bool:
    """Puts `patternProperties` in place; False if a name could pass by two rules."""
    declared = as_object(body["properties"]) or {}
    values = [member[0] for _, member, _ in whole.patterns]
    if any(value != values[0] for value in values) or any(
        is_found(pattern, name) is not False
        for pattern, _, _ in whole.patterns
        for name in declared
    ):
        return False
    raw = _is_raw_root(context, place)
    held: dict[str, object] = {}
    emitted = context.emit(
        [whole.patterns[0][1]], place.within("top" if place.level == "root" else "inner")
    )
    for pattern, _, source in whole.patterns:
        expression = name_expression(context, source, pattern, raw=raw)
        if expression is None:
            return False
        held[expression] = emitted
    body["additionalProperties"] = False
    if emitted is not None:
        body["patternProperties"] = held
    return True


def _leave_open(context: Context, whole: Names, body: dict[str, object]) -> None:
    for _, _, source in whole.patterns:
        for keyword in ("patternProperties", "additionalProperties"):
            context.note(
                source, keyword, "checked_after", "patterns",
                "the grammar holds expressions of names only where no other name may be there",
            )  # fmt: skip
    body["additionalProperties"] = True


def _name_schemas(context: Context, sources: Sequence[Source]) -> list[Member]:
    """The name schemas that rule out a name."""
    members: list[Member] = []
    for source in sources:
        schema = source.get("propertyNames")
        trivial = schema is True or (
            as_object(schema) is not None
            and {"type", "title", "description", "$comment"}.issuperset(as_object(schema) or {})
            and (as_object(schema) or {}).get("type", "string") == "string"
        )
        if trivial:
            context.hold(source, "propertyNames")
        elif "propertyNames" in source:
            members.append((schema, source.below("propertyNames")))
    return members


def _say_name_schemas(
    context: Context,
    sources: Sequence[Source],
    members: Sequence[Member],
    body: dict[str, object],
    place: Place,
) -> None:
    """Puts `propertyNames` in place where nothing is declared and names are JSON strings."""
    plain = all(_is_plain(as_object(schema) or {"not": {}}) for schema, _ in members)
    if body["additionalProperties"] is False and "patternProperties" not in body and plain:
        context.hold_all(sources, "propertyNames")  # the declared names were looked at
        return
    elements = context.style.recursive and not context.style.notation
    if not body["properties"] and not _is_raw_root(context, place) and not elements:
        emitted = context.emit(members, Place("inner", place.depth + 1))
        if emitted is not None and _is_string_schema(emitted):
            body["propertyNames"] = emitted
            context.hold_all(sources, "propertyNames")
            return
    context.after(
        sources, "propertyNames", "names", "the grammar cannot hold names beside declared ones"
    )


def _is_string_schema(emitted: Mapping[str, object]) -> bool:
    values = as_array(emitted.get("enum"))
    if values is not None:
        return bool(values) and all(isinstance(value, str) for value in values)
    return emitted.get("type") == "string"


def counted(
    context: Context,
    sources: Sequence[Source],
    body: dict[str, object],
    low: int,
    high: int | None,
) -> Emitted:
    """`body` with the number of properties, where it is not implied and can be afforded."""
    properties, required = as_object(body["properties"]) or {}, as_array(body["required"]) or []
    optional = len(properties) - len(required)
    closed = body["additionalProperties"] is False and "patternProperties" not in body
    for keyword in ("properties", "required"):
        if not body[keyword]:
            del body[keyword]
    if closed and low > len(properties):
        return None
    if closed and high is not None and high >= len(properties):
        high = None
    bounds = {"minProperties": low if low > len(required) else None, "maxProperties": high}
    wanted = {keyword: bound for keyword, bound in bounds.items() if bound is not None}
    if wanted and optional > MAX_COUNTED_OPTIONAL:
        for keyword in wanted:
            context.after(
                sources, keyword, "count",
                f"the grammar counts among {MAX_COUNTED_OPTIONAL} optional properties at most",
            )  # fmt: skip
        return body
    if not closed:
        context.relax(
            sources if "minProperties" in wanted else [], "minProperties", "repeated_name",
            "the grammar counts a name that comes twice twice",
        )  # fmt: skip
    return body | wanted
