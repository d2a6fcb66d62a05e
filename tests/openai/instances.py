"""Values that a schema admits, and the same values with one thing wrong, for real tools' schemas.

A small generator for the JSON Schema that tool servers write; what it makes is checked with
`jsonschema` before it is used, so it need not be right for schemas it does not know.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema

_FORMATS = {
    "date": "2026-11-29",
    "date-time": "2026-11-29T10:00:00Z",
    "time": "10:00:00Z",
    "email": "a@b.org",
    "uri": "https://example.org/a",
    "url": "https://example.org/a",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


def is_valid(schema: Mapping[str, Any], value: Any) -> bool:
    validator = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    return validator.is_valid(value)


def instance(schema: Any, chooser: random.Random, root: Any = None, depth: int = 0) -> Any:
    """A value for `schema`; properties in declared order, as grammars write them."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > 8:
        return "x"
    if "$ref" in schema:
        return instance(_target(root, schema["$ref"]), chooser, root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return chooser.choice(schema["enum"])
    for union in ("anyOf", "oneOf"):
        if union in schema:
            branch = chooser.choice(schema[union])
            rest = {key: value for key, value in schema.items() if key != union}
            merged = {**rest, **branch} if isinstance(branch, dict) else branch
            return instance(merged, chooser, root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = chooser.choice(kind)
    return _of_kind(kind, schema, chooser, root, depth)


def _of_kind(kind: str, schema: Any, chooser: random.Random, root: Any, depth: int) -> Any:
    if kind == "object":
        required = schema.get("required", [])
        return {
            name: instance(below, chooser, root, depth + 1)
            for name, below in schema.get("properties", {}).items()
            if name in required or (depth < 3 and chooser.random() < 0.5)
        }
    if kind == "array":
        least = schema.get("minItems", 0)
        count = max(least, min(schema.get("maxItems", 2), chooser.randint(0, 2)))
        return [instance(schema.get("items", {}), chooser, root, depth + 1) for _ in range(count)]
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        return min(low, schema.get("maximum", low))
    if kind == "boolean":
        return chooser.random() < 0.5
    if kind == "null":
        return None
    text = _FORMATS.get(schema.get("format", ""), "words & more")
    return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength", 1000)]


def _target(root: Any, reference: str) -> Any:
    value = root
    for token in reference.removeprefix("#/").split("/"):
        value = value[token] if token else value
    return value


def wrong(schema: Mapping[str, Any], value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Variants of `value` that `schema` refuses: one argument of a wrong type, one missing."""
    for name in value:
        for other in (7, "seven", [7], {"seven": 7}, None):
            changed = {**value, name: other}
            if not is_valid(schema, changed):
                yield changed
        less = {key: below for key, below in value.items() if key != name}
        if not is_valid(schema, less):
            yield less
