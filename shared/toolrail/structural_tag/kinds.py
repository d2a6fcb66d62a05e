"""Which types a schema allows, and which of its keywords no grammar of a notation holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from toolrail.arguments.types import as_list
from toolrail.schema.marking import CONSTRAINTS
from toolrail.structural_tag.scalars import Schema

_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_UNHELD: Final[Mapping[str, frozenset[str]]] = {
    "array": frozenset(
        {"uniqueItems", "contains", "minContains", "maxContains", "additionalItems"}
        | {"unevaluatedItems"}
    ),
    "object": frozenset(
        {"dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"}
    ),
}
KINDS: Final[Mapping[str, frozenset[str]]] = {
    # type → keywords that speak of its values
    "string": frozenset({"pattern", "format", "minLength", "maxLength"}),
    "integer": _BOUNDS | {"multipleOf"},
    "number": _BOUNDS | {"multipleOf"},
    "boolean": frozenset(),
    "null": frozenset(),
    "array": _UNHELD["array"] | {"items", "prefixItems", "minItems", "maxItems"},
    "object": _UNHELD["object"]
    | {"properties", "required", "additionalProperties", "patternProperties", "propertyNames"}
    | {"minProperties", "maxProperties"},
}
"""The types, and the keywords that speak of values of each."""
_TOLD: Final = frozenset[str]().union(*KINDS.values(), {"type"})


def kinds_of(node: Schema) -> set[str]:
    """The types that a schema names or that its keywords speak of; none: any."""
    kind = node.get("type")
    named = {k for k in (as_list(kind) or [kind]) if isinstance(k, str) and k in KINDS}
    if node.get("nullable") is True and named:
        named.add("null")
    if not named and kind is None:
        named = {k for k in ("object", "array") if node.keys() & KINDS[k]}
    return named


def unheld(node: Schema, kinds: Collection[str]) -> Iterator[str]:
    """The keywords that rule values of the types out and that no grammar of a notation holds."""
    yield from sorted((CONSTRAINTS & node.keys()) - _TOLD)
    for kind in sorted(_UNHELD.keys() & set(kinds)):
        for keyword in sorted(_UNHELD[kind]):
            if node.get(keyword) not in (None, False, []):
                yield keyword
