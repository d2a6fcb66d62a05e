"""Twenty tools whose schemas ask for different things, and helpers to offer them."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]

SHORT: Final[Schema] = {"type": "string", "maxLength": 12}
WORD: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 8}
SMALL: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 99}


def closed(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def array(items: Schema, low: int, high: int) -> Schema:
    return {"type": "array", "items": items, "minItems": low, "maxItems": high}


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


SCHEMAS: Final[dict[str, Schema]] = {
    "no_arguments": closed(),
    "one_enum": closed(unit={"type": "string", "enum": ["celsius", "fahrenheit"]}),
    "mixed_enum": closed(level={"enum": [1, "two", None, True, 2.5]}),
    "one_const": closed(kind={"const": 'exact value, with "quotes" and \\'}),
    "short_string": closed(city=SHORT),
    "string_or_null": closed(note=either(SHORT, {"type": "null"})),
    "type_list": closed(value={"type": ["integer", "null"]}),
    "bounded_integer": closed(hour={"type": "integer", "minimum": -3, "maximum": 12}),
    "number": closed(ratio={"type": "number", "minimum": 0, "maximum": 1}),
    "booleans": closed(on={"type": "boolean"}, deep={"type": "boolean"}),
    "pattern": closed(code={"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}),
    "date": closed(day={"type": "string", "format": "date"}),
    "bounded_array": closed(words=array(WORD, 1, 3)),
    "array_of_enums": closed(days=array({"enum": ["mon", "tue", "wed"]}, 2, 2)),
    "nested_object": closed(a=closed(b=closed(c=closed(deep=SMALL)))),
    "array_of_objects": closed(points=array(closed(x=SMALL, y=SMALL), 1, 2)),
    "unicode_names": closed(größe=SMALL, 都市={"enum": ["東京", "大阪", "Zürich", "🚀"]}),
    "union_of_objects": closed(
        shape=either(
            closed(kind={"const": "circle"}, radius=SMALL),
            closed(kind={"const": "square"}, side=SMALL),
        )
    ),
    "definitions": {
        **closed(start={"$ref": "#/$defs/point"}, end={"$ref": "#/$defs/point"}),
        "$defs": {"point": closed(x=SMALL, y=SMALL)},
    },
    "nested_arrays": closed(grid=array(array(SMALL, 1, 2), 1, 2)),
}


def tool(name: str, schema: Schema, *, strict: bool | None = True) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name, "parameters": schema}
    if strict is not None:
        function["strict"] = strict
    return {"type": "function", "function": function}


def all_tools() -> list[dict[str, Any]]:
    """Every second one strict, the others as if nobody had thought of it."""
    return [
        tool(name, schema, strict=True if number % 2 else None)
        for number, (name, schema) in enumerate(SCHEMAS.items())
    ]


def ask(text: str = "Do it.", **more: Any) -> dict[str, Any]:
    """A chat request."""
    return {"model": "demo", "messages": [{"role": "user", "content": text}], **more}
