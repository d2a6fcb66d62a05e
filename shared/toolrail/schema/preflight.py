"""The strict preflight: which schemas `strict: true` admits, before anything is built from them.

The rules, limits and edges are the product specification's (*Request Validation*): closed objects
with every property required, a list of refused keywords, size budgets, ten object levels, and
references that stay in the document. Passing does not mean that the grammar engine holds every
keyword; that is the enforcement report's business.

One walk over the schema and one pass over its references: linear in the schema's size, and
iterative, so that depth costs heap and never the stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from toolrail.schema.faults import BrokenRuleError, Fault, Path
from toolrail.schema.locations import LIST, MAP, ONE, as_array, as_object, children
from toolrail.schema.references import check_references

__all__ = ["Fault", "check"]

MAX_PROPERTIES: Final = 5_000
MAX_ENUM_ENTRIES: Final = 1_000
MAX_CHARACTERS: Final = 120_000
LONG_ENUM_ENTRIES: Final = 250
MAX_LONG_ENUM_CHARACTERS: Final = 15_000
MAX_OBJECT_LEVELS: Final = 10

REFUSED: Final = frozenset(
    {
        "allOf",
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "maxContains",
        "minContains",
        "not",
        "oneOf",
        "then",
        "unevaluatedItems",
        "uniqueItems",
    }
)
TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def check(schema: object) -> Fault | None:
    """The first fault of a schema under `strict: true`, or None when it may pass.

    `schema` is parsed JSON. None stands for parameters that were not given, which pass; an empty
    object is a schema and does not. Faults are found in document order, references last.
    O(size of the schema).
    """
    if schema is None:
        return None
    root: Path = (None, ())
    try:
        walk = _Walk()
        walk.run(schema, root)
        check_references(schema, walk.references, walk.first_nested_id)
        return None
    except BrokenRuleError as broken:
        return broken.fault


@dataclass(slots=True)
class _Walk:
    """Visits every schema location once and counts against the budgets."""

    properties: int = 0
    enum_entries: int = 0
    characters: int = 0
    references: list[tuple[Path, Mapping[str, object]]] = field(
        default_factory=list[tuple[Path, Mapping[str, object]]]
    )
    first_nested_id: Path | None = None

    def run(self, root: object, path: Path) -> None:
        pending: list[tuple[object, Path, int]] = [(root, path, -1)]
        while pending:
            value, here, levels = pending.pop()
            if isinstance(value, bool) and here[0] is not None:
                continue
            schema = as_object(value)
            if schema is None:
                if here[0] is None:
                    raise BrokenRuleError(here, "root_type", _ROOT_TYPE)
                raise BrokenRuleError(
                    here, "schema_shape", "a schema must be an object or a boolean"
                )
            levels = self._visit(schema, here, levels)
            below = [(child, (here, tokens), levels) for tokens, child in children(schema)]
            pending.extend(reversed(below))

    def _visit(self, schema: Mapping[str, object], here: Path, levels: int) -> int:
        """Checks one schema; returns the object levels of the schemas below it."""
        is_root = here[0] is None
        if is_root:
            _check_root(schema, here)
        _check_keywords(schema, here)
        types = _check_type(schema, here)
        is_object = "object" in types or "properties" in schema or "patternProperties" in schema
        if is_root:
            levels = 0
        elif is_object:
            levels += 1
            if levels > MAX_OBJECT_LEVELS:
                raise BrokenRuleError(
                    here,
                    "object_levels",
                    f"objects nest more than {MAX_OBJECT_LEVELS} levels below the root; "
                    "flatten the schema",
                )
        self._count(schema, here)
        _check_object(schema, here, is_object)
        if "$ref" in schema:
            self.references.append((here, schema))
        if "$id" in schema and not is_root and self.first_nested_id is None:
            self.first_nested_id = here
        return levels

    def _count(self, schema: Mapping[str, object], here: Path) -> None:
        names = as_object(schema.get("properties")) or {}
        self.properties += len(names)
        if self.properties > MAX_PROPERTIES:
            raise BrokenRuleError(
                here,
                "property_count",
                f"more than {MAX_PROPERTIES} properties are declared in all; declare fewer",
            )
        self.characters += sum(map(len, names))
        for keyword in ("$defs", "definitions"):
            self.characters += sum(map(len, as_object(schema.get(keyword)) or {}))
        const = schema.get("const")
        self.characters += len(const) if isinstance(const, str) else 0
        if "enum" in schema:
            self._count_enum(schema["enum"], here)
        if self.characters > MAX_CHARACTERS:
            raise BrokenRuleError(
                here,
                "character_count",
                f"names, enum and const strings are longer than {MAX_CHARACTERS} characters in "
                "all; shorten them",
            )

    def _count_enum(self, enum: object, here: Path) -> None:
        entries = as_array(enum)
        if entries is None:
            raise BrokenRuleError(here, "enum_shape", "must be an array", "enum")
        self.enum_entries += len(entries)
        if self.enum_entries > MAX_ENUM_ENTRIES:
            raise BrokenRuleError(
                here,
                "enum_count",
                f"more than {MAX_ENUM_ENTRIES} enum entries are declared in all; declare fewer",
            )
        strings = [entry for entry in entries if isinstance(entry, str)]
        characters = sum(map(len, strings))
        self.characters += characters
        is_long = len(entries) > LONG_ENUM_ENTRIES and len(strings) == len(entries)
        if is_long and characters > MAX_LONG_ENUM_CHARACTERS:
            raise BrokenRuleError(
                here,
                "long_enum",
                f"an enum of more than {LONG_ENUM_ENTRIES} strings may hold "
                f"{MAX_LONG_ENUM_CHARACTERS} characters; shorten it",
                "enum",
            )


_ROOT_TYPE: Final = 'the root must have "type": "object" and no other type'


def _check_root(schema: Mapping[str, object], here: Path) -> None:
    if "anyOf" in schema:
        raise BrokenRuleError(
            here, "root_any_of", "the root must not use anyOf; declare one object"
        )
    if schema.get("type") not in ("object", ["object"]) and (
        "type" in schema or "$ref" not in schema
    ):
        raise BrokenRuleError(here, "root_type", _ROOT_TYPE)


def _check_keywords(schema: Mapping[str, object], here: Path) -> None:
    for keyword, value in schema.items():
        if keyword in REFUSED:
            raise BrokenRuleError(
                here,
                "refused_keyword",
                f"the keyword {keyword} is not supported in strict schemas; remove it",
                keyword,
            )
        if keyword in ("$dynamicRef", "$recursiveRef"):
            raise BrokenRuleError(
                here, "dynamic_reference", "use $ref to a place in this schema instead", keyword
            )
        shape = _SHAPES.get(keyword)
        if shape is not None and not _has_shape(keyword, value):
            raise BrokenRuleError(here, *shape, keyword)


_SHAPES: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(MAP, ("map_shape", "must be a map of names to schemas")),
    **dict.fromkeys(LIST, ("array_shape", "must be a nonempty array of schemas")),
    **dict.fromkeys(ONE, ("schema_shape", "a schema must be an object or a boolean")),
    "pattern": ("pattern_shape", "must be a string"),
    "$ref": ("reference_shape", "must be a string"),
    "required": ("required_shape", "must be an array of unique strings"),
}


def _has_shape(keyword: str, value: object) -> bool:
    if keyword in MAP:
        return isinstance(value, dict)
    if keyword in LIST:
        return bool(as_array(value))
    if keyword in ONE:
        # additionalProperties of an object is checked below, with the better message.
        return isinstance(value, dict | bool) or keyword == "additionalProperties"
    if keyword == "required":
        names = as_array(value)
        return names is not None and _are_unique_strings(names)
    return isinstance(value, str)


def _are_unique_strings(values: Sequence[object]) -> bool:
    return all(isinstance(value, str) for value in values) and len(set(values)) == len(values)


def _check_type(schema: Mapping[str, object], here: Path) -> frozenset[str]:
    if "type" not in schema:
        return frozenset()
    declared = schema["type"]
    names = [declared] if isinstance(declared, str) else as_array(declared)
    if not names or not _are_unique_strings(names) or not TYPES.issuperset(names):
        raise BrokenRuleError(here, "type_names", "must hold unique JSON Schema type names", "type")
    return frozenset(str(name) for name in names)


def _check_object(schema: Mapping[str, object], here: Path, is_object: bool) -> None:
    if not is_object:
        return
    closed = schema.get("additionalProperties") is False
    if not closed and ("$ref" not in schema or "additionalProperties" in schema):
        raise BrokenRuleError(
            here, "closed_object", "object schemas require additionalProperties: false"
        )
    names = as_object(schema.get("properties")) or {}
    required = {str(name) for name in as_array(schema.get("required")) or ()}
    for name in names:
        if name not in required:
            raise BrokenRuleError(
                here, "required_property", f"must include the property {_quoted(name)}", "required"
            )
    if not closed or "patternProperties" in schema:
        return
    for name in as_array(schema.get("required")) or ():
        if name not in names:
            raise BrokenRuleError(
                here,
                "unknown_property",
                f"names {_quoted(str(name))}, which a closed object does not declare",
                "required",
            )


def _quoted(name: str) -> str:
    """The name in quotes, cut to what a message can bear."""
    return repr(name if len(name) <= 80 else name[:77] + "...")
