"""Random values for a schema: some that should satisfy it, and damaged ones.

Whether a value does satisfy the schema is asked of `jsonschema` afterwards, so a generator that
misses only wastes a try.
"""

from __future__ import annotations

import random
import string
from typing import Any

from toolrail.schema.locations import parse_ref, resolve

_WORDS = (
    "a",
    "Zürich",
    "two words",
    "x" * 40,
    'say "hi"',
    "back\\slash",
    "line\nbreak",
    "<b>",
    "😀",
)
_FORMATS = {
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "uri": "https://example.test/a?b=c%20d#e",
    "date": "2026-11-29",
    "date-time": "2026-11-29T22:02:00Z",
    "email": "someone@example.test",
}
_MAX_DEPTH = 6


class Instances:
    """Values for one schema."""

    def __init__(self, root: Any, seed: int) -> None:
        self._root = root
        self._random = random.Random(seed)

    def some(self) -> Any:
        """A value that was made to satisfy the schema."""
        return self._value(self._root, 0)

    def damaged(self, value: Any) -> Any:
        """The value with one change somewhere."""
        chance = self._random
        if isinstance(value, dict) and value and chance.random() < 0.7:
            name = chance.choice(list(value))
            changed = dict(value)
            if chance.random() < 0.3:
                del changed[name]
            elif chance.random() < 0.15:
                changed["surplus"] = 1
            else:
                changed[name] = self.damaged(value[name])
            return changed
        if isinstance(value, list) and value and chance.random() < 0.6:
            index = chance.randrange(len(value))
            return [*value[:index], self.damaged(value[index]), *value[index + 1 :]]
        if isinstance(value, str) and chance.random() < 0.4:
            return value + chance.choice(["!", " ", "x" * 300, "é"])
        if isinstance(value, int | float) and not isinstance(value, bool) and chance.random() < 0.4:
            return value + chance.choice([1, -1000, 0.5, 10**6])
        return chance.choice([None, True, 7, -1, 2.5, "text", "", [], [1], {}, {"k": "v"}])

    def _value(self, schema: Any, depth: int) -> Any:
        if schema is True or schema == {} or depth > _MAX_DEPTH:
            return self._random.choice([1, "text", None, [1, "a"], {"k": 1}])
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else self._random.choice(schema["enum"])
        inner = self._inner(schema)
        return self._typed(schema, depth) if inner is None else self._value(inner, depth + 1)

    def _inner(self, schema: Any) -> Any:
        """The schema that stands for this one: a reference's target, a branch of a union."""
        if "$ref" in schema:
            return resolve(self._root, parse_ref(schema["$ref"]))[0]  # type: ignore[arg-type]
        for union in ("anyOf", "oneOf", "allOf"):
            if union in schema:
                return self._random.choice(schema[union])
        return None

    def _typed(self, schema: Any, depth: int) -> Any:
        kind = schema.get("type", "object" if "properties" in schema else "string")
        if isinstance(kind, list):
            kind = self._random.choice(kind)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            low = schema.get("minItems", 0)
            count = self._random.randint(low, low + 2)
            return [self._value(schema.get("items", True), depth + 1) for _ in range(count)]
        whole = self._integer(schema)
        simple = {
            "integer": whole,
            "number": self._random.choice([whole, whole + 0.5]),
            "boolean": self._random.random() < 0.5,
            "null": None,
        }
        return simple[kind] if kind in simple else self._string(schema)

    def _object(self, schema: Any, depth: int) -> Any:
        required = schema.get("required", [])
        return {
            name: self._value(inner, depth + 1)
            for name, inner in schema.get("properties", {}).items()
            if name in required or self._random.random() < 0.6
        }

    def _integer(self, schema: Any) -> int:
        low = schema.get("minimum", schema.get("exclusiveMinimum", -5))
        high = schema.get("maximum", schema.get("exclusiveMaximum", low + 20))
        return self._random.randint(max(int(low), -(10**6)), min(int(max(low, high)), 10**6))

    def _string(self, schema: Any) -> str:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        low = schema.get("minLength", 0)
        word = self._random.choice(_WORDS)
        while len(word) < low:
            word += self._random.choice(string.ascii_letters)
        return word[: schema.get("maxLength", len(word))]
