"""Where schemas sit inside a schema, and how a local reference finds them.

Two facts that preflight, normaliser and validation share: which keywords hold subschemas (drafts 4
to 2020-12), and what a `$ref` of the form `#/...` points at. Nothing here recurses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, Literal, TypeAlias, cast
from urllib.parse import unquote_to_bytes

Tokens: TypeAlias = tuple[str, ...]
"""Reference tokens of a JSON Pointer, unescaped."""

ONE: Final = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""Keywords whose value is one schema. `items` is too, unless its value is an array."""

MAP: Final = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
"""Keywords whose value maps names to schemas. Of `dependencies`, those members that are one."""

LIST: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Keywords whose value is an array of schemas. `items` is too, if its value is an array."""

KEYWORDS: Final = ONE | MAP | LIST | {"items", "dependencies"}


def as_object(value: object) -> Mapping[str, object] | None:
    """The value if it is a JSON object, else None."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else None


def as_array(value: object) -> list[object] | None:
    """The value if it is a JSON array, else None."""
    return cast("list[object]", value) if isinstance(value, list) else None


def children(schema: Mapping[str, object]) -> Iterator[tuple[Tokens, object]]:
    """The values at the schema locations directly below, in document order.

    Values of the wrong JSON type come too (a property schema that is a number), except where the
    container itself has it (`properties` that is an array): such a keyword has no children.
    """
    for keyword, value in schema.items():
        if keyword in KEYWORDS:
            yield from _children_of(keyword, value)


def _children_of(keyword: str, value: object) -> Iterator[tuple[Tokens, object]]:
    array = as_array(value)
    if keyword in ONE or (keyword == "items" and array is None):
        yield (keyword,), value
    elif keyword in LIST or keyword == "items":
        for index, member in enumerate(array or ()):
            yield (keyword, str(index)), member
    else:
        for name, member in (as_object(value) or {}).items():
            if keyword != "dependencies" or not isinstance(member, list):
                yield (keyword, name), member


def has_nested_id(root: object) -> bool:
    """True when a schema below the root starts a scope of its own. O(size)."""
    pending = [child for _, child in children(as_object(root) or {})]
    while pending:
        schema = as_object(pending.pop())
        if schema is None:
            continue
        if isinstance(schema.get("$id"), str):
            return True
        pending.extend(child for _, child in children(schema))
    return False


class RefError(Enum):
    """Why a `$ref` cannot be followed inside its document."""

    REMOTE = "remote"
    ANCHOR = "anchor"
    URI_ESCAPE = "uri_escape"
    POINTER_ESCAPE = "pointer_escape"
    MISSING = "missing"
    NOT_A_SCHEMA = "not_a_schema"


def parse_ref(ref: str) -> Tokens | RefError:
    """The JSON Pointer of a document-local reference. O(len(ref))."""
    if not ref.startswith("#"):
        return RefError.REMOTE
    fragment = _percent_decoded(ref[1:])
    if fragment is None:
        return RefError.URI_ESCAPE
    if not fragment:
        return ()
    if not fragment.startswith("/"):
        return RefError.ANCHOR
    tokens: list[str] = []
    for token in fragment[1:].split("/"):
        plain = token.replace("~0", "").replace("~1", "")
        if "~" in plain:
            return RefError.POINTER_ESCAPE
        tokens.append(token.replace("~1", "/").replace("~0", "~"))
    return tuple(tokens)


def _percent_decoded(fragment: str) -> str | None:
    if "%" not in fragment:
        return fragment
    pieces = fragment.split("%")
    if not all(len(p) >= 2 and all(c in _HEX for c in p[:2]) for p in pieces[1:]):
        return None
    try:
        return unquote_to_bytes(fragment.encode("utf-8", "surrogatepass")).decode()
    except UnicodeDecodeError:
        return None


_HEX: Final = frozenset("0123456789abcdefABCDEF")


def resolve(
    root: object, tokens: Tokens
) -> tuple[object, Literal[None]] | tuple[None, Literal[RefError.MISSING, RefError.NOT_A_SCHEMA]]:
    """The schema at a pointer, or why there is none. O(length of the pointer).

    A value counts as a schema where `children` would yield it: a member of `enum` or `default` that
    looks like one is not.
    """
    value = root
    is_schema = True
    container: str | None = None  # the keyword that opened a map or an array of schemas
    for token in tokens:
        below = _step(value, token)
        opens_array = isinstance(below, list)
        if below is _NOTHING:
            return None, RefError.MISSING
        if container is not None:
            is_schema = container != "dependencies" or not opens_array
            container = None
        elif is_schema and token in KEYWORDS:
            is_schema = token in ONE or (token == "items" and not opens_array)
            container = None if is_schema else token
        else:
            is_schema = False
        value = below
    if not is_schema or not (isinstance(value, bool) or as_object(value) is not None):
        return None, RefError.NOT_A_SCHEMA
    return value, None


_NOTHING: Final = object()


def _step(value: object, token: str) -> object:
    members = as_object(value)
    if members is not None:
        return members.get(token, _NOTHING)
    array = as_array(value)
    if array is None or not token.isascii() or not token.isdigit():
        return _NOTHING
    # No leading zeros (RFC 6901, section 4), and no index longer than any array's.
    if (token[0] == "0" and token != "0") or len(token) > len(str(len(array))):
        return _NOTHING
    return array[int(token)] if int(token) < len(array) else _NOTHING


def pointer(tokens: Tokens) -> str:
    """The tokens as a JSON Pointer in the form `#/properties/a`."""
    return "#" + "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)
