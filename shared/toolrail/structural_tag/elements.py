"""Parameters spelled out one by one, where the grammar engine's own style is not safe or not there.

The engine's XML styles copy names raw; a `pattern`, a length or an unknown `format` takes the guard
of the closing tag away, strings inside JSON values may contain that tag. Values with such schemas
are framed here as the template frames them; what cannot be held safely is left free, and said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from toolrail.arguments.types import as_list, as_mapping, is_mapping, value_kind
from toolrail.arguments.writing import parameter_opening, parameter_text
from toolrail.schema.counting import MAX_LONGEST, counting
from toolrail.structural_tag import (
    TagFormat,
    any_text,
    at_least,
    const,
    either,
    optional,
    regex,
    sequence,
    star,
    tag,
)
from toolrail.structural_tag.lengths import counted_text
from toolrail.structural_tag.patterns import (
    TEXT_BREAKERS,
    any_name_but,
    beginning_as_text,
    begins_or_ends_with,
    without_opening_angle,
)
from toolrail.syntax import XmlStyle

MAX_WHITESPACE: Final = 16
"""Whitespace characters between two tokens of JSON; without a bound a model can write for ever."""
_MAX_MIN_LENGTH: Final = 512
"""Longest `minLength` that is held beside the closing tag's guard."""
_MAX_DEPTH: Final = 8
"""References and unions followed to spell out one parameter."""
UNSAFE_NAME: Final = re.compile(r"[\"<>\r\n]|\A\s|\s\Z|\A\Z")
_FORMATS: Final = frozenset(
    {"date", "date-time", "time", "duration", "ipv4", "ipv6", "uuid", "uri", "hostname"}
)
"""Formats that the engine holds and whose values contain no markup and no outer whitespace."""
_ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
    | {"$comment", "nullable"}
)
_ROOT: Final = frozenset(
    {"type", "properties", "required", "additionalProperties", "$defs", "definitions", "$schema"}
    | {"$id", "strict"}
)
_SCALARS: Final = frozenset({"integer", "number", "boolean", "null"})


def json_schema(
    style: str, schema: Mapping[str, object], *, any_order: bool, excludes: Sequence[str] = ()
) -> TagFormat:
    """JSON (or the engine's `style`) of a schema, with bounded whitespace."""
    found: TagFormat = {
        "type": "json_schema",
        "json_schema": {**schema},
        "style": style,
        "max_whitespace_cnt": MAX_WHITESPACE,
    }
    if any_order:
        found["any_order"] = True
    if excludes:
        found["excludes"] = [*excludes]
    return found


def is_plain(root: Mapping[str, object]) -> bool:
    """Whether the root is a closed list of properties and nothing else."""
    return root.get("additionalProperties") in (None, False) and is_listed(root)


def is_listed(root: Mapping[str, object]) -> bool:
    """Whether the root is a list of properties, and perhaps a schema for others."""
    return root.keys() <= _ROOT | _ANNOTATIONS and "properties" in root


def properties_of(root: Mapping[str, object]) -> Mapping[str, object]:
    """The declared parameters."""
    return as_mapping(root.get("properties"))


class Elements:
    """Spells out the parameters of one tool. Collects what it leaves free."""

    def __init__(self, style: XmlStyle, root: Mapping[str, object], stop: str = "") -> None:
        self._style: Final = style
        self._root: Final = root
        self._stop: Final = stop
        # What no value may contain, because the parser would end it there.
        self._ends: Final = (style.close, *((style.open,) if style.next_ends else ()))
        # The same for free text, in which the start of a closer is excluded before the closer.
        self._guard: Final = (stop,) if stop else self._ends
        self._required: Final = {r for r in as_list(root.get("required")) if isinstance(r, str)}
        self.free: Final[list[str]] = []

    def is_native(self, value: object, depth: int = 0) -> bool:
        """Whether the engine's style keeps the guard of the closing tag for such a value."""
        if not self._style.engine or not is_mapping(value):
            return self._style.engine and value is not False
        schema = value
        keys = schema.keys() - _ANNOTATIONS
        if "format" in keys:
            return keys == {"type", "format"} and schema["format"] in _FORMATS
        if "$ref" in keys or depth > _MAX_DEPTH:
            target = self._target(schema)
            return depth <= _MAX_DEPTH and target is not None and self.is_native(target, depth + 1)
        if keys and keys <= {"anyOf", "oneOf"}:
            branches = [b for key in keys for b in as_list(schema[key])]
            return all(self.is_native(branch, depth + 1) for branch in branches)
        constants = [schema["const"]] if "const" in keys else as_list(schema.get("enum"))
        if constants:
            return keys <= {"type", "const", "enum"} and all(map(_is_tame, constants))
        return self._is_native_type(schema, keys, depth)

    def _is_native_type(self, schema: Mapping[str, object], keys: set[str], depth: int) -> bool:
        kind = schema.get("type")
        kinds = as_list(kind) or ([] if kind is None else [kind])
        if not keys <= {"type"}:
            if set(kinds) == {"array"} and keys <= {"type", "items", "minItems", "maxItems"}:
                items = as_mapping(schema.get("items"))
                return items.get("type") in _SCALARS and self.is_native(items, depth + 1)
            return bool(kinds) and set(kinds) <= _SCALARS
        return not {"object", "array"} & {k for k in kinds if isinstance(k, str)}

    def _target(self, schema: Mapping[str, object]) -> Mapping[str, object] | None:
        """What a reference without siblings names, among the root's definitions."""
        reference = schema.get("$ref")
        if schema.keys() - _ANNOTATIONS != {"$ref"} or not isinstance(reference, str):
            return None
        for place in ("$defs", "definitions"):
            name = reference.removeprefix(f"#/{place}/")
            if name != reference and re.fullmatch(r"[\w.-]+", name):
                found = as_mapping(self._root.get(place)).get(name)
                return found if is_mapping(found) else None
        return None

    def parameters(self) -> TagFormat:
        """The properties in declared order, the optional ones optional."""
        names = properties_of(self._root)
        found = sequence([self._ordered(name) for name in names])
        empty = self._style.empty and not self._required & names.keys()
        return either([found, const(self._style.empty)]) if empty else found

    def spelled_out(self, *, any_order: bool) -> TagFormat:
        """All parameters, where the engine does not know the style."""
        names = [name for name in properties_of(self._root) if not UNSAFE_NAME.search(name)]
        for name in properties_of(self._root).keys() - set(names):
            self.free.append(f"properties/{name}: the name cannot be written in this format")
        for key in self._root.keys() - _ROOT - _ANNOTATIONS:
            self.free.append(f"{key}: not held beside parameters that are spelled out")
        elements = self._declared(names, any_order=any_order)
        if not is_plain(self._root):
            elements.append(self._others(names))
        return sequence(elements) if elements else const("")

    def with_others(self, excludes: Sequence[str], *, any_order: bool) -> TagFormat:
        """All parameters, then those that are not declared, as the engine's style writes them."""
        elements = self._declared([*properties_of(self._root)], any_order=any_order)
        others = self._root.get("additionalProperties")
        if others not in (None, False):
            rest = {"type": "object", "additionalProperties": others, **self._definitions()}
            kept = as_mapping(self.guarded(rest, ""))
            elements.append(
                json_schema(self._style.style, kept, any_order=False, excludes=excludes)
            )
        return sequence(elements)

    def _declared(self, names: Sequence[str], *, any_order: bool) -> list[TagFormat]:
        if not any_order or not names:
            return [self._ordered(name) for name in names]
        member = either([self._followed(name) for name in names])
        # As the engine holds any order: no fewer members than are required.
        return [at_least(len(self._required & set(names)), member)]

    def _ordered(self, name: str) -> TagFormat:
        one = self._followed(name)
        return one if name in self._required else optional(one)

    def _followed(self, name: str) -> TagFormat:
        one = self._parameter(name, properties_of(self._root)[name])
        return sequence([one, optional(const(self._style.after))]) if self._style.after else one

    def _others(self, names: Sequence[str]) -> TagFormat:
        """Any number of parameters that the schema does not name."""
        if is_mapping(others := self._root.get("additionalProperties")) and others:
            self.free.append("additionalProperties: held to no schema in this format")
        if self._root.get("additionalProperties") is False:
            return const("")
        style = self._style
        after = [optional(const(style.after))] if style.after else []
        kinds = {word: kind for kind, word in _kinds_told(style)}.values()
        ways = [self._other(names, "string", any_text(self._guard))]
        ways += [self._other(names, kind, self._json({"type": kind})) for kind in kinds]
        return star(sequence([either(ways), *after]))

    def _other(self, names: Sequence[str], kind: str, content: TagFormat) -> TagFormat:
        """A parameter that the schema does not name, with a value of a JSON type."""
        opening, ending = parameter_opening(self._style, "\0", kind).split("\0")
        name = regex(any_name_but(names))
        return sequence([const(opening), name, const(ending), content, const(self._style.close)])

    def _parameter(self, name: str, value: object) -> TagFormat:
        if self.is_native(value):
            only = {
                "type": "object",
                "properties": {name: value},
                "required": [name],
                "additionalProperties": False,
                **self._definitions(),
            }
            excludes = [self._stop] if self._stop else []
            return json_schema(self._style.style, only, any_order=False, excludes=excludes)
        found = self._value(name, as_mapping(value), 0)
        if found is None:
            self.free.append(f"properties/{name}: held to no schema in this format")
            found = [self._text(name, any_text(self._guard))]
        return either(found)

    def _definitions(self) -> Mapping[str, object]:
        return {key: self._root[key] for key in ("$defs", "definitions") if key in self._root}

    def _value(self, name: str, schema: Mapping[str, object], depth: int) -> list[TagFormat] | None:
        """The spellings of one parameter; None when its schema cannot be written out."""
        if depth > _MAX_DEPTH:
            return None
        if "$ref" in schema and (target := self._target(schema)) is not None:
            return self._value(name, target, depth + 1)
        keys = schema.keys() - _ANNOTATIONS
        if "enum" in keys or "const" in keys:
            constants = as_list(schema.get("enum")) or [schema.get("const")]
            return [self._constant(name, c) for c in constants if self._can_write(c)] or None
        if keys in ({"anyOf"}, {"oneOf"}):
            branches = [
                self._value(name, as_mapping(b), depth + 1)
                for b in as_list(schema[next(iter(keys))])
            ]
            found = [f for branch in branches for f in branch or ()]
            return None if None in branches else found or None
        kind = schema.get("type")
        kinds = [k for k in (as_list(kind) or [kind]) if isinstance(k, str)]
        if not kinds or self._has_odd_references(schema):
            return None
        texts = [self._string(name, schema)] if "string" in kinds else []
        others = [k for k in kinds if k != "string"]
        groups = [[kind] for kind in others] if _kinds_told(self._style) else [others]
        return texts + [self._typed(name, {**schema, "type": group}) for group in groups if group]

    def _has_odd_references(self, schema: object) -> bool:
        """Whether a reference in a nested value points outside the definitions."""
        text = json.dumps(schema, default=str)
        return any(
            not target.startswith(("#/$defs/", "#/definitions/"))
            for target in re.findall(r'"\$ref": "((?:[^"\\]|\\.)*)"', text)
        )

    def _can_write(self, constant: object) -> bool:
        return not any(end in parameter_text(self._style, constant) for end in self._ends)

    def _constant(self, name: str, constant: object) -> TagFormat:
        opening = self._opening(name, value_kind(constant), framed=False)
        return const(opening + parameter_text(self._style, constant) + self._style.close)

    def _string(self, name: str, schema: Mapping[str, object]) -> TagFormat:
        style = self._style
        if "pattern" in schema:
            if schema.keys() & {"minLength", "maxLength"}:
                self.free.append(f"properties/{name}: lengths beside a pattern")
            reduced = without_opening_angle(str(schema["pattern"]))
            if style.values == "json_or_text" and reduced is not None:
                reduced = beginning_as_text(reduced)
            if reduced is not None:
                return self._pattern(name, str(schema["pattern"]), regex(reduced))
            self.free.append(f"properties/{name}/pattern: may write what is read otherwise")
            return self._text(name, any_text(self._guard))
        if schema.get("format") in _FORMATS and not style.engine:
            return self._format(name, str(schema["format"]))
        if schema.get("format") in _FORMATS:
            kept = {key: schema[key] for key in ("type", "format")} | {"type": "string"}
            return self._parameter(name, kept)
        least, most = schema.get("minLength"), schema.get("maxLength")
        framed = least is not None or most is not None
        return self._text(name, self._of_length(name, least, most), framed=framed)

    def _pattern(self, name: str, pattern: str, content: TagFormat) -> TagFormat:
        """With the frame; also without, where no text of the pattern could be taken for framed."""
        framed = self._text(name, content, framed=True)
        style = self._style
        if style.framed or not style.frame or begins_or_ends_with(pattern, style.frame):
            return framed
        return either([framed, self._text(name, content)])

    def _format(self, name: str, format_: str) -> TagFormat:
        """A string of a format, whose JSON spelling holds nothing that needs an escape."""
        found = json_schema("json", {"type": "string", "format": format_}, any_order=False)
        if self._style.values == "json_or_text":
            return sequence([const(self._opening(name, "string")), found, const(self._closing())])
        self.free.append(f"properties/{name}/format: not held in this format")
        return self._text(name, any_text(self._guard))

    def _of_length(self, name: str, least: object, most: object) -> TagFormat:
        low = least if isinstance(least, int) and least > 0 else 0
        high = most if isinstance(most, int) and most >= low else None
        if self._style.counted:
            return self._counted(name, low, high)
        if low > _MAX_MIN_LENGTH:
            self.free.append(f"properties/{name}/minLength: too long to be counted")
            low = 0
        head = [regex(f"[^<]{{{low}}}")] if low else []
        if high is not None and high == low:
            return sequence(head or [const("")])
        return sequence([*head, any_text(self._guard, None if high is None else high - low)])

    def _counted(self, name: str, low: int, high: int | None) -> TagFormat:
        style = self._style
        found = counting(style.counted, low, high)
        if found is None:
            self.free.append(f"properties/{name}/minLength: too long to be counted")
        if found is None or low == 0:
            return any_text(self._guard, None if high is None else min(high, MAX_LONGEST))
        stop = self._stop or (style.close if style.reserved else style.counted)
        # Text that begins like a JSON string might be one, and shorter.
        not_first = TEXT_BREAKERS if style.values == "json_or_text" else ""
        return counted_text(found, stop, low, high, not_first=not_first)

    def _typed(self, name: str, schema: Mapping[str, object]) -> TagFormat:
        """A JSON value; strings inside it cannot contain the closing tag."""
        kept = {key: value for key, value in schema.items() if key != "nullable"}
        held = {
            **as_mapping(self.guarded(kept, f"properties/{name}")),
            **as_mapping(self.guarded(self._definitions(), "")),
        }
        kind = str((as_list(kept.get("type")) or ["object"])[0])
        opening = self._opening(name, kind)
        return sequence([const(opening), self._json(held), const(self._closing())])

    def _json(self, schema: Mapping[str, object]) -> TagFormat:
        return json_schema("json", schema, any_order=False, excludes=self._guard)

    def _text(self, name: str, content: TagFormat, *, framed: bool = False) -> TagFormat:
        """`framed`: the frame is written where it is optional: the text may look like one."""
        if framed and not self._style.framed:
            frame = self._style.frame
            opening = self._opening(name, "string") + frame
            return tag(opening, content, frame + self._style.close)
        return tag(self._opening(name, "string"), content, self._closing())

    def _opening(self, name: str, kind: str, *, framed: bool = True) -> str:
        style = self._style
        frame = style.frame if framed and style.framed else ""
        return parameter_opening(style, name, kind) + frame

    def _closing(self) -> str:
        return (self._style.frame if self._style.framed else "") + self._style.close

    def guarded(self, node: object, path: str) -> object:
        """`node` less what the engine drops beside an exclusion, or forgets the exclusion for."""
        if items := as_list(node):
            return [self.guarded(item, f"{path}/{at}") for at, item in enumerate(items)]
        return self._guarded_object(node, path) if is_mapping(node) else node

    def _guarded_object(self, node: Mapping[str, object], path: str) -> Mapping[str, object]:
        kept: dict[str, object] = {}
        for key, value in node.items():
            where = f"{path}/{key}".lstrip("/")
            pattern = without_opening_angle(value) if isinstance(value, str) else None
            if key == "pattern" and pattern is not None:
                kept[key] = pattern
            elif _loosens_guard(key, value):
                if where not in self.free:
                    self.free.append(where)
            elif key in ("enum", "const", "default", "examples", "required"):
                kept[key] = value
            else:
                kept[key] = self.guarded(value, where)
        return kept


def _kinds_told(style: XmlStyle) -> tuple[tuple[str, str], ...]:
    """The words for JSON types, where the wire tells them."""
    return style.attribute.kinds if style.attribute else ()


def _loosens_guard(key: str, value: object) -> bool:
    """By the value as well as the key, because a property may bear one of these names."""
    if isinstance(value, str):
        return key == "pattern" or (key == "format" and value not in _FORMATS)
    return type(value) is int and key in ("minLength", "maxLength")


def _is_tame(constant: object) -> bool:
    """Whether a constant survives the whitespace that the engine allows around it."""
    if isinstance(constant, (Mapping, list)):
        return False
    return not isinstance(constant, str) or (
        constant == constant.strip() and "<" not in constant and bool(constant)
    )
