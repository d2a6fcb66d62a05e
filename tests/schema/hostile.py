"""Schemas that cost a grammar engine seconds, gigabytes or its life, or that try it with us."""

from __future__ import annotations

import json
from typing import Any

STRING = {"type": "string"}


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def one(schema: Any) -> dict[str, Any]:
    return closed({"e": schema}, required=["e"])


def pattern(expression: str) -> dict[str, Any]:
    return one({"type": "string", "pattern": expression})


def nested(depth: int, wrap: Any) -> Any:
    schema: Any = STRING
    for _ in range(depth):
        schema = wrap(schema)
    return schema


def strings(count: int, **more: Any) -> dict[str, Any]:
    return {f"p{i}": STRING | more for i in range(count)}


def references(count: int, target: Any) -> dict[str, Any]:
    return {"$ref": "#/$defs/d0", "$defs": {f"d{i}": target(i) for i in range(count)}}


def schemas() -> dict[str, Any]:
    def chained(i: int) -> Any:
        return {"$ref": f"#/$defs/d{i + 1}"} if i < 4_999 else closed({"a": STRING})

    def chained_objects(i: int) -> Any:
        return closed({"x": {"$ref": f"#/$defs/d{min(i + 1, 2_999)}"}})

    def tree(i: int) -> Any:
        return closed({f"x{n}": {"$ref": f"#/$defs/d{(2 * i + n) % 3_000}"} for n in (1, 2)})

    def crossed(i: int) -> Any:
        refs = [{"$ref": f"#/$defs/d{(i * 7 + n) % 40}"} for n in (1, 3)]
        return {"properties": {"n": {"allOf": refs}}}

    def doubled(i: int) -> Any:
        next_one = {"$ref": f"#/$defs/d{(i + 1) % 300}"}
        return {"anyOf": [next_one, next_one, {"type": "object"}]}

    def doubled_beside(i: int) -> Any:
        next_one = {"$ref": f"#/$defs/d{(i + 1) % 300}"}
        return {"anyOf": [next_one, next_one | {"minProperties": i}], "maxProperties": 500}

    return {
        "bounded repeat": pattern("^[^x]{1,1000}$"),
        "larger bounded repeat": pattern("^\\w{1,9999}$"),
        "optional atoms": pattern("^" + "[a-z]?" * 80 + "$"),
        "nested groups": pattern("(" * 50_000 + ")" * 50_000),
        "short nested groups": pattern("(" * 200 + "a" + ")" * 200),
        "nested repeats": pattern("^((([a-z]{1,9}){1,9}){1,9}){1,9}$"),
        "wide loop": pattern('^([^"é]|xy){0,250}$'),
        "many bounds": closed(strings(200, maxLength=200)),
        "many formats": closed(strings(200, format="ipv6")),
        "many patterns": closed(strings(200, pattern="^[A-Z]{2}[0-9]{4,20}-\\w+$")),
        "deep arrays": one(nested(100_000, lambda s: {"type": "array", "items": s})),
        "deep unions": one(nested(5_000, lambda s: {"anyOf": [s, {"type": "null"}]})),
        "deep objects": nested(5_000, lambda s: closed({"c": s})),
        "deep intersections": one(nested(5_000, lambda s: {"allOf": [s]})),
        "products of unions": one(
            {"allOf": [{"anyOf": [{"maxLength": i + j} for i in range(10)]} for j in range(30)]}
        ),
        "products by reference": references(300, doubled) | {"type": "object"},
        "products of arguments": one({"$ref": "#/$defs/d0"}) | references(300, doubled_beside),
        "chain of references": references(5_000, chained),
        "chain of objects": references(3_000, chained_objects),
        "tree of references": references(3_000, tree),
        "crossed intersections": references(40, crossed) | {"type": "object"},
        "count among optional": closed(strings(200), minProperties=100, maxProperties=150),
        "many optional": closed(strings(5_000)),
        "many optional, open": {"type": "object", "properties": strings(2_000)},
        "many patterns of names": closed(
            {}, patternProperties={f"^x{i}$": STRING for i in range(5_000)}
        ),
        "long constant": one({"const": "ab c" * 250_000}),
        "many constants": one({"enum": [f"v{i}" * 20 for i in range(20_000)]}),
        "deep constant": one({"const": json.loads("[" * 400 + "]" * 400)}),
        "large multiples": closed(
            {f"p{i}": {"type": "integer", "multipleOf": 1_000 + i} for i in range(24)}
        ),
        "many ranges": closed(
            {f"p{i}": {"type": "integer", "minimum": -(10**15) + i} for i in range(200)}
        ),
        "many positions": one({"type": "array", "prefixItems": [STRING] * 5_000}),
        "many branches": one({"anyOf": [closed({f"p{i}": STRING}) for i in range(2_000)]}),
        "wide intersection": one({"allOf": [{"maxLength": i} for i in range(5_000)]}),
    }
