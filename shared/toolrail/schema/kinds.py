"""Which kinds of JSON values a place admits.

`integer` and `fraction` (a number that is none) are kept apart, so that kinds intersect exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from toolrail.schema.context import Context
from toolrail.schema.enforcement import Note
from toolrail.schema.formats import FORMATS
from toolrail.schema.locations import as_array, as_object
from toolrail.schema.sources import Source, text

Kind: TypeAlias = Literal["null", "boolean", "object", "array", "string", "integer", "fraction"]

ALL: Final[frozenset[Kind]] = frozenset(
    {"null", "boolean", "object", "array", "string", "integer", "fraction"}
)
OF_TYPE: Final[Mapping[str, frozenset[Kind]]] = {
    "null": frozenset({"null"}),
    "boolean": frozenset({"boolean"}),
    "object": frozenset({"object"}),
    "array": frozenset({"array"}),
    "string": frozenset({"string"}),
    "integer": frozenset({"integer"}),
    "number": frozenset({"integer", "fraction"}),
    "any": ALL,  # draft 3, and many who write schemas by hand
}
"""The kinds of each type."""
_IMPLIED: Final[Mapping[str, frozenset[Kind]]] = {
    **dict.fromkeys(
        (
            "properties",
            "patternProperties",
            "additionalProperties",
            "unevaluatedProperties",
            "propertyNames",
            "required",
            "minProperties",
            "maxProperties",
        ),
        OF_TYPE["object"],
    ),
    **dict.fromkeys(
        (
            "items",
            "prefixItems",
            "additionalItems",
            "unevaluatedItems",
            "minItems",
            "maxItems",
            "uniqueItems",
            "contains",
        ),
        OF_TYPE["array"],
    ),
    **dict.fromkeys(("pattern", "minLength", "maxLength"), OF_TYPE["string"]),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        OF_TYPE["number"],
    ),
}
"""What a keyword says of the type of a schema that declares none.

By the letter such a schema admits every other type too. Whoever writes `{"minLength": 1}` means a
string, and a grammar that takes the letter lets a model answer with anything."""
_AS_IMPLIED: Final = "declares no type and is read as what its keywords are for"


def kind_of(value: object) -> Kind:
    """The kind of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "fraction"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def says_of_kinds(source: Source) -> bool:
    """True when a keyword of the source rules out values of some kind."""
    return bool(_implied(source))


def kinds(context: Context, sources: Sequence[Source]) -> frozenset[Kind]:
    """The kinds that all sources admit; of those that declare no type, what they imply."""
    admitted = ALL
    declared = False
    for source in sources:
        found = _declared(context, source)
        if found is not None:
            admitted &= found
            declared = True
        admitted -= _negated(context, source)
    if declared or any("enum" in source or "const" in source for source in sources):
        return admitted
    implied = frozenset[Kind]().union(*map(_implied, sources))
    if not implied:
        return admitted
    for source in sources:
        if _implied(source):
            context.ledger.note(Note(text(source.path), "enforced", "implied_type", _AS_IMPLIED))
    return admitted & implied


def _implied(source: Source) -> frozenset[Kind]:
    found = [kinds for keyword, kinds in _IMPLIED.items() if keyword in source]
    if source.get("format") in FORMATS:
        found.append(OF_TYPE["string"])
    return frozenset[Kind]().union(*found)


def _declared(context: Context, source: Source) -> frozenset[Kind] | None:
    if "type" not in source:
        return None
    value = source.get("type")
    names = [value] if isinstance(value, str) else as_array(value) or []
    known = [OF_TYPE[name] for name in names if isinstance(name, str) and name in OF_TYPE]
    if len(known) < len(names) or not names:
        context.malformed(source, "type", "names a type that JSON Schema does not have")
    elif "any" in names:
        context.malformed(source, "type", '"any" is no type of JSON Schema; anything is admitted')
    else:
        context.hold(source, "type")
    if not known:
        return None
    admitted = frozenset[Kind]().union(*known)
    return admitted | OF_TYPE["null"] if source.get("nullable") is True else admitted


def _negated(context: Context, source: Source) -> frozenset[Kind]:
    """What `not` takes away, where it names types alone."""
    schema = as_object(source.get("not"))
    if schema is None:
        return frozenset()
    value = schema.get("type")
    names = [value] if isinstance(value, str) else as_array(value) or []
    if set(schema) - {"type", "description", "title"} or not names:
        return frozenset()
    found = [OF_TYPE[name] for name in names if isinstance(name, str) and name in OF_TYPE]
    taken = frozenset[Kind]().union(*found)
    if len(found) == len(names) and taken.isdisjoint({"integer"}) | ("fraction" in taken):
        context.hold(source, "not")
        return taken
    return frozenset()
