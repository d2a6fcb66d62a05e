"""Which JSON types a parameter's schema allows, and raw text as JSON text by those types.

For the families whose wire carries no types. One resolver for all of them: types hide in `type`,
`nullable`, `const`, `enum`, unions, intersections and local references, and a parser that looks at
one key alone turns "42" into 42 or null into "null". It decides nothing about validity: a value
that no type allows is kept as text, and checking is the business of a policy above.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeGuard, cast
from urllib.parse import unquote

from toolrail.arguments.json_value import JsonValue, Read
from toolrail.scan import Buffer
from toolrail.tools import JsonSchema, Tool

_KINDS: Final = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_STRING: Final = frozenset({"string"})
_MAX_VISITS: Final = 2_000
"""Schema nodes looked at for one parameter; a schema that needs more is taken as unknown."""
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_PYTHON_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    str: "string",
    list: "array",
}
_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True, slots=True)
class Types:
    """What a schema allows.

    `kinds` None: anything (nothing is known). `strings`: the string constants, when only those
    are allowed. `closed`: every allowed value is a constant.
    """

    kinds: frozenset[str] | None = None
    strings: frozenset[str] | None = None
    closed: bool = False

    @property
    def text_only(self) -> bool:
        """True when raw text is the value, whatever it is: such a value may be streamed."""
        return self.kinds is None or (self.kinds == _STRING and self.strings is None)

    def allows(self, kind: str) -> bool:
        """Whether the schema provably allows values of `kind`."""
        return self.kinds is not None and kind in self.kinds


ANYTHING: Final = Types()


def _union(left: Types, right: Types) -> Types:
    if left.kinds is None or right.kinds is None:
        return ANYTHING
    sets = [t.strings for t in (left, right) if t.kinds is not None and "string" in t.kinds]
    closed = [s for s in sets if s is not None]
    strings = frozenset[str]().union(*closed) if sets and len(closed) == len(sets) else None
    return Types(left.kinds | right.kinds, strings, left.closed and right.closed)


def _intersection(left: Types, right: Types) -> Types:
    if left.kinds is None:
        return right
    if right.kinds is None:
        return left
    kinds = left.kinds & right.kinds
    if "integer" in left.kinds | right.kinds and "number" in left.kinds | right.kinds:
        narrow = left.kinds if "integer" in left.kinds else right.kinds
        kinds = kinds if "number" in narrow else kinds | {"integer"}
    if left.strings is None or right.strings is None:
        strings = left.strings if right.strings is None else right.strings
    else:
        strings = left.strings & right.strings
    return Types(kinds, strings, left.closed or right.closed)


def _constants(values: Iterable[object]) -> Types:
    found = list(values)
    strings = frozenset(v for v in found if isinstance(v, str))
    return Types(frozenset(value_kind(v) for v in found), strings, closed=True)


def value_kind(value: object) -> str:
    """The JSON type of a value as `json.loads` makes them; `integer` where it is one."""
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return _PYTHON_KINDS.get(type(value), "object")


class ParameterTypes:
    """The types of one tool's parameters, resolved when asked for and remembered."""

    def __init__(self, parameters: JsonSchema | None) -> None:
        self._root: Final = parameters
        self._known: dict[str, Types] = {}
        self._visits = 0

    def of(self, key: str) -> Types:
        """The types of parameter `key`; anything when the schema does not say."""
        if key not in self._known:
            self._visits = 0
            self._known[key] = self._property(self._root, key, frozenset()) or ANYTHING
        return self._known[key]

    @property
    def root(self) -> JsonSchema | None:
        """The schema of the arguments."""
        return self._root

    def of_schema(self, schema: object) -> Types:
        """The types that a schema somewhere in the document allows."""
        self._visits = 0
        return self._types(schema, frozenset())

    def declares(self, key: str) -> bool:
        """Whether the schema itself names the parameter."""
        return key in as_mapping(as_mapping(self._root).get("properties"))

    def _property(self, node: object, key: str, trail: frozenset[str]) -> Types | None:
        """Types of a property of an object schema; None when that schema does not name it."""
        if not is_mapping(node) or self._spent():
            return None
        schema = node
        found: Types | None = None
        properties = as_mapping(schema.get("properties"))
        if key in properties:
            found = self._types(properties[key], trail)
        elif isinstance(schema.get("additionalProperties"), Mapping):
            found = self._types(schema["additionalProperties"], trail)
        parts = [self._property(part, key, trail) for part in as_list(schema.get("allOf"))]
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in trail:
            parts.append(self._property(self.target(reference), key, trail | {reference}))
        for part in parts:
            if part is not None:
                found = part if found is None else _intersection(found, part)
        for keyword in ("anyOf", "oneOf"):
            branches = [self._property(b, key, trail) for b in as_list(schema.get(keyword))]
            named = [b for b in branches if b is not None]
            if named:
                union = named[0]
                for branch in named[1:]:
                    union = _union(union, branch)
                found = union if found is None else _intersection(found, union)
        return found

    def _types(self, node: object, trail: frozenset[str]) -> Types:
        if not is_mapping(node) or self._spent():
            return ANYTHING
        schema = node
        result = _declared(schema)
        reference = schema.get("$ref")
        # A nested `$id` would change what the pointer is relative to: not followed.
        if isinstance(reference, str) and reference not in trail and "$id" not in schema:
            target = self._types(self.target(reference), trail | {reference})
            if schema.get("nullable") is True and target.kinds is not None and not target.closed:
                target = Types(target.kinds | {"null"}, target.strings)
            result = _intersection(result, target)
        for part in as_list(schema.get("allOf")):
            result = _intersection(result, self._types(part, trail))
        for keyword in ("anyOf", "oneOf"):
            branches = [self._types(branch, trail) for branch in as_list(schema.get(keyword))]
            if branches:
                union = branches[0]
                for branch in branches[1:]:
                    union = _union(union, branch)
                result = _intersection(result, union)
        return result

    def target(self, reference: str) -> object:
        """What a local JSON Pointer names; None for a foreign or nested-scope one."""
        if not reference.startswith("#"):
            return None
        node: object = cast("object", self._root)
        pointer = unquote(reference[1:])
        if pointer and not pointer.startswith("/"):
            return None
        for token in pointer.split("/")[1:]:
            name = token.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list):
                items = as_list(cast("object", node))
                index = int(name) if name.isdecimal() and name.isascii() else len(items)
                node = items[index] if index < len(items) else None
            else:
                node = as_mapping(node).get(name)
            if "$id" in as_mapping(node):
                return None
        return node

    def _spent(self) -> bool:
        self._visits += 1
        return self._visits > _MAX_VISITS


class ToolTypes:
    """The parameter types of the offered tools, resolved when asked for."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._parameters: Final = {tool.name: tool.parameters for tool in tools}
        self._resolved: dict[str, ParameterTypes] = {}

    def __contains__(self, name: object) -> bool:
        """Whether a tool of that name is offered."""
        return name in self._parameters

    def of(self, tool: str) -> ParameterTypes:
        """The types of one tool's parameters; anything for a tool that is not offered."""
        if tool not in self._resolved:
            self._resolved[tool] = ParameterTypes(self._parameters.get(tool))
        return self._resolved[tool]


def _declared(schema: Mapping[str, object]) -> Types:
    """What the schema itself says, its references and branches aside."""
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else as_list(declared)
    kinds = frozenset(n for n in names if isinstance(n, str))
    result = Types(kinds) if kinds and kinds <= _KINDS else ANYTHING
    if schema.get("nullable") is True and result.kinds is not None:
        result = Types(result.kinds | {"null"})
    if "const" in schema:
        result = _intersection(result, _constants([schema["const"]]))
    if values := as_list(schema.get("enum")):
        result = _intersection(result, _constants(values))
    return result


def is_mapping(value: object) -> TypeGuard[Mapping[str, object]]:
    """Whether `value` is a JSON object."""
    return isinstance(value, Mapping)


def as_list(value: object) -> list[object]:
    """`value` if it is a JSON array, else nothing."""
    return cast("list[object]", value) if isinstance(value, list) else []


def as_mapping(value: object) -> Mapping[str, object]:
    """`value` if it is a JSON object, else nothing."""
    return value if is_mapping(value) else {}


def json_string(text: str) -> str:
    """`text` as a JSON string, quotes included; nothing but what JSON demands is escaped."""
    return json.dumps(text, ensure_ascii=False)


def json_kind(text: str) -> str | None:
    """The type of the one JSON value that `text` is, whitespace around it aside; None: no JSON."""
    buffer = Buffer()
    buffer.push(text.strip(" \t\n\r"))
    value = JsonValue()
    value.read(buffer, final=True)
    if value.status is not Read.DONE or len(buffer):
        return None
    first = value.first
    if first in '{["':
        return {"{": "object", "[": "array", '"': "string"}[first]
    if first in "tf":
        return "boolean"
    if first == "n":
        return "null"
    stripped = text.strip(" \t\n\r")
    return "integer" if _INTEGER.match(stripped) or _integral(stripped) else "number"


def _integral(number: str) -> bool:
    return float(number).is_integer()  # 1.0 and 1e3 are integers to JSON Schema


def json_text(raw: str, types: Types, prefer: Literal["typed", "string"] = "typed") -> str:
    """`raw` as JSON text by its parameter's types: the exact text, or the typed value's own bytes.

    `prefer` decides where both a string and a typed reading are allowed. O(len(raw)).
    """
    if types.text_only:
        return json_string(raw)
    text = raw.strip(" \t\n\r")
    string = types.allows("string")
    if string and prefer == "string" and text != "null" and _is_string_first(raw, text, types):
        return json_string(raw)
    typed = _typed(text, types, python=not string)
    if typed is not None:
        return typed
    if types.strings and raw not in types.strings and text in types.strings:
        return json_string(text)  # a grammar lets a constant have whitespace around it
    return json_string(raw)


def json_or_text(raw: str, types: Types) -> str:
    """`raw` as JSON text where what is JSON counts as that, if its type may be. O(len(raw)).

    JSON means strict JSON, unless the schema allows no string at all.
    """
    text = raw.strip(" \t\n\r")
    textual = types.kinds is None or types.allows("string")
    kind = json_kind(text)
    if kind is not None and textual and not is_json(text):
        kind = None
    if kind is None:
        return _PYTHON.get(text, json_string(raw)) if not textual else json_string(raw)
    number = kind == "integer" and types.allows("number")
    if kind == "string" or types.kinds is None or not textual or types.allows(kind) or number:
        return without_raw_controls(text)
    return json_string(raw)


def is_json(text: str) -> bool:
    """Whether `text` is one JSON value by the letter, whitespace around it aside."""
    text = text.strip(" \t\n\r")
    return json_kind(text) is not None and without_raw_controls(text) == text


def _is_string_first(raw: str, text: str, types: Types) -> bool:
    if types.strings is not None:
        return raw in types.strings
    return not text.startswith(("{", "["))


def _typed(text: str, types: Types, *, python: bool) -> str | None:
    """The bytes of the typed reading, if `text` is a value of an allowed type."""
    if python and text in _PYTHON:
        text = _PYTHON[text]
    kind = json_kind(text)
    if kind is None or kind == "string":
        return None
    if types.allows(kind) or (kind == "integer" and types.allows("number")):
        return without_raw_controls(text)
    return None


def without_raw_controls(text: str) -> str:
    """JSON text with the raw control characters inside its strings escaped."""
    buffer = Buffer()
    buffer.push(text)
    return JsonValue().read(buffer, final=True)
