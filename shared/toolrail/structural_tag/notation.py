"""Arguments in a family's own notation, held by one grammar that is written from the schema.

The grammar engine knows JSON and some elements only. Here a schema becomes EBNF: one rule a value,
a chain of rules an object, so the grammar is linear in the schema. What a grammar of moderate size
cannot say is left free, and said.

Properties come in declared order; where the family's template sorts keys, in that order as well,
because a model writes what it was shown. A name that is not declared cannot repeat a declared one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from toolrail.arguments.notation import Level, below, key_text, notation_at, value_text
from toolrail.arguments.types import as_list, as_mapping, is_mapping
from toolrail.schema.locations import RefError, parse_ref, resolve
from toolrail.schema.marking import CONSTRAINTS
from toolrail.structural_tag import ebnf
from toolrail.structural_tag.kinds import KINDS, kinds_of, unheld
from toolrail.structural_tag.members import (
    Members,
    chain,
    counted,
    further_member,
    item,
    matching_key,
    member,
    other_key,
    unordered,
)
from toolrail.structural_tag.raw_text import counted_body, raw_lengths
from toolrail.structural_tag.scalars import (
    Schema,
    counts,
    integer,
    matched,
    number,
    string_body,
    writable,
)
from toolrail.syntax import Notation, NotationStyle

MAX_RULES: Final = 20_000
"""Rules of one tool's grammar; a schema that needs more is left free."""
_MAX_CHAIN: Final = 64
"""References that lead to one another without a value between."""
_NOTHING: Final[Schema] = {}


def notation_grammar(
    style: NotationStyle, root: Schema, *, any_order: bool, prefix: str = ""
) -> tuple[str, list[str]]:
    """EBNF of a tool's arguments, and what of the schema it does not hold, each as `path: why`.

    Its first rule is `root`; `prefix` begins the name of every rule. O(schema), of which at most
    `MAX_RULES` rules are written.
    """
    writer = _Writer(style, root, prefix, any_order=any_order)
    if writer.write():
        return writer.text(), writer.free
    anything = _Writer(style, {"type": "object"}, prefix, any_order=any_order)
    anything.write()
    return anything.text(), ["type: the schema makes too large a grammar"]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value is written, and where in the schema it is described."""

    level: Level
    path: str

    def path_of(self, *tokens: str) -> str:
        """The path of something below."""
        return "/".join((*filter(None, [self.path]), *tokens))

    def inside(self, *tokens: str) -> _Place:
        """The place of a member or item."""
        return _Place(below(self.level), self.path_of(*tokens))


class _Writer:
    """Writes the rules of one tool."""

    def __init__(self, style: NotationStyle, root: Schema, prefix: str, *, any_order: bool) -> None:
        self._style: Final = style
        self._prefix: Final = prefix
        self._root: Final = root
        self._any_order: Final = any_order
        self._rules: Final[dict[str, str]] = {f"{prefix}root": ebnf.EMPTY}
        self._attributes: Final[dict[str, str]] = {}
        self._known: Final[dict[tuple[object, ...], str]] = {}
        self._pending: Final[deque[tuple[str, Schema, _Place]]] = deque()
        self._free: Final[dict[str, None]] = {}

    @property
    def free(self) -> list[str]:
        """What is left free, each as `path: why`."""
        return [*self._free]

    def write(self) -> bool:
        """Writes all rules; False when they would be too many."""
        self._rules[f"{self._prefix}root"] = self._value(self._root, _Place("arguments", ""))
        while self._pending and len(self._rules) <= MAX_RULES:
            name, node, place = self._pending.popleft()
            self._rules[name] = self._value(node, place)
        return not self._pending

    def text(self) -> str:
        """The grammar."""
        said = self._attributes
        return "\n".join(f"{n}{said.get(n, '')} ::= {body}" for n, body in self._rules.items())

    def rule(self, body: str) -> str:
        """A rule of its own."""
        name = f"{self._prefix}r{len(self._rules)}"
        self._rules[name] = body
        return name

    def _once(self, key: tuple[object, ...], body: Callable[[], str], said: str = "") -> str:
        """The rule known by `key`; its body may refer to it. `said`: its attributes."""
        if key not in self._known:
            self._known[key] = name = self.rule(ebnf.EMPTY)
            self._rules[name] = body()
            self._attributes[name] = said
        return self._known[key]

    def _leave(self, place: _Place, keyword: str, why: str) -> None:
        self._free[f"{place.path_of(keyword)}: {why}"] = None

    # --- any schema ---

    def _schema(self, node: object, place: _Place) -> str:
        """The rule of what a schema allows at a place."""
        if not is_mapping(node):
            return self._anything(place.level)
        key = (id(node), place.level)
        if key not in self._known:
            self._known[key] = name = self.rule(ebnf.EMPTY)
            self._pending.append((name, node, place))
        return self._known[key]

    def _value(self, node: Schema, place: _Place) -> str:
        said = CONSTRAINTS & node.keys()
        if "$ref" in node:
            return self._reference(node, place)
        if "enum" in node or "const" in node:
            return self._constants(node, place)
        for keyword in ("anyOf", "oneOf", "allOf"):
            branches = as_list(node.get(keyword))
            single = keyword != "allOf" or len(branches) == 1
            if branches and single and said <= {keyword, "type"}:
                places = [
                    _Place(place.level, place.path_of(keyword, str(i)))
                    for i in range(len(branches))
                ]
                return ebnf.either(
                    [self._schema(b, p) for b, p in zip(branches, places, strict=True)]
                )
        return self._typed(node, place)

    def _reference(self, node: Schema, place: _Place) -> str:
        for keyword in sorted((CONSTRAINTS & node.keys()) - {"$ref"}):
            self._leave(place, keyword, "is not held beside a reference")
        target: object = node
        for _ in range(_MAX_CHAIN):
            if not is_mapping(target) or "$ref" not in target:
                return self._schema(target, place)
            tokens = parse_ref(str(target["$ref"]))
            target = None if isinstance(tokens, RefError) else resolve(self._root, tokens)[0]
            if target is None:
                break
        self._leave(place, "$ref", "is not followed")
        return self._anything(place.level)

    def _constants(self, node: Schema, place: _Place) -> str:
        keyword = "const" if "const" in node else "enum"
        for other in sorted((CONSTRAINTS & node.keys()) - {keyword, "type"}):
            self._leave(place, other, "is not held beside constants")
        notation = notation_at(self._style, place.level)
        listed = [node["const"]] if keyword == "const" else as_list(node["enum"])
        if place.level == "arguments":
            listed = [value for value in listed if is_mapping(value)]
        texts = [
            value_text(self._style, value, place.level)
            for value in writable(listed, notation.guard)
        ]
        if not texts:
            self._leave(place, keyword, "no value of it can be written in this format")
            return self._anything(place.level)
        return ebnf.either([ebnf.literal(text) for text in dict.fromkeys(texts)])

    def _typed(self, node: Schema, place: _Place) -> str:
        kinds = {"object"} if place.level == "arguments" else kinds_of(node)
        for keyword in unheld(node, kinds):
            self._leave(place, keyword, "no grammar of this format holds it")
        if not kinds:
            return self._anything(place.level)
        if "number" in kinds:
            kinds -= {"integer"}
        return ebnf.either([self._of_kind(kind, node, place) for kind in KINDS if kind in kinds])

    def _of_kind(self, kind: str, node: Schema, place: _Place) -> str:
        true, false, null = map(ebnf.literal, notation_at(self._style, place.level).constants)
        leave = partial(self._leave, place)
        writers: Mapping[str, Callable[[], str]] = {
            "string": lambda: self._string(node, place),
            "integer": lambda: integer(node, leave),
            "number": lambda: number(node, leave),
            "boolean": lambda: f"({true} | {false})",
            "null": lambda: null,
            "array": lambda: self._container(self._array, node, place),
            "object": lambda: self._container(self._object, node, place),
        }
        return writers[kind]()

    def _container(
        self, write: Callable[[Schema, _Place], str | None], node: Schema, place: _Place
    ) -> str:
        """An array or object, also as `inner` where values may be written that way as well."""
        written = write(node, place)
        if place.level != "values" or self._style.inner is None:
            assert written is not None, "every other notation can say any name"
            return written
        inner = self._once(
            ("inner", write.__name__, id(node)),
            lambda: write(node, _Place("inner", place.path)) or ebnf.EMPTY,
        )
        return inner if written is None else f"({written} | {inner})"

    # --- strings ---

    def _string(self, node: Schema, place: _Place) -> str:
        notation = notation_at(self._style, place.level)
        first = notation.quotes[0]
        text = self._text(notation, first)
        leave = partial(self._leave, place)
        lengths = raw_lengths(node, notation, leave)
        if lengths is not None:
            prefix, limited = (
                f"{self._prefix}n{len(self._rules)}_",
                partial(self._limited, notation),
            )
            body, rules = counted_body(lengths, notation.guard, prefix, limited)
            self._rules.update(rules)
            return ebnf.quoted(first, f"({body})")
        body = string_body(node, notation, text, leave)
        if body is not None:
            return ebnf.quoted(first, f"({body})")
        return ebnf.either([ebnf.quoted(q, self._text(notation, q)) for q in notation.quotes])

    def _limited(self, notation: Notation, most: int | None) -> str:
        """The rule of raw text of a longest length."""
        if most is None:
            return self._text(notation, notation.quotes[0])
        body = partial(ebnf.any_text, notation, "")
        return self._once(("limited", notation, most), body, f"[max_chars={most}]")

    def _text(self, notation: Notation, quote: str) -> str:
        """The rule of any text between two quotes."""
        return self._once(("text", notation, quote), lambda: ebnf.any_text(notation, quote))

    # --- anything ---

    def _anything(self, level: Level) -> str:
        """The rule of any value, as far as a grammar can say it without knowing names."""
        return self._once(("anything", level), lambda: self._any_value(level))

    def _any_value(self, level: Level) -> str:
        notation = notation_at(self._style, level)
        if level == "arguments" and self._style.strays:
            return ebnf.without_any(self._style.strays)
        place = _Place(level, "")
        if level == "arguments":
            return self._object(_NOTHING, place) or ebnf.EMPTY
        if not notation.typed:
            return ebnf.without(notation.guard)
        kinds = ("string", "number", "boolean", "null", "array", "object")
        return ebnf.either([self._of_kind(kind, _NOTHING, place) for kind in kinds])

    # --- arrays ---

    def _array(self, node: Schema, place: _Place) -> str:
        notation = notation_at(self._style, place.level)
        low, high = counts(node, "minItems", "maxItems")
        prefix = as_list(node.get("prefixItems"))
        rest = node.get("items")
        if high is not None:
            prefix = prefix[:high]
        items = [
            item(notation, self._schema(schema, place.inside("prefixItems", str(at))))
            for at, schema in enumerate(prefix)
        ]
        further = None
        if rest is not False and (high is None or high > len(items)):
            further = item(notation, self._schema(rest, place.inside("items")))
        body = counted(self.rule, notation, items, further, low, high)
        opening, closing = map(ebnf.literal, notation.array)
        return ebnf.joined(opening, body, closing)

    # --- objects ---

    def _object(self, node: Schema, place: _Place) -> str | None:
        """An object; None where the notation has no way to write its names."""
        members = self._members(node, place)
        if members is None and place.level == "arguments":
            for keyword in ("additionalProperties", "patternProperties", "propertyNames"):
                if node.get(keyword) not in (None, True):
                    self._leave(place, keyword, "arguments of any name are free text")
            return self._anything(place.level)
        if members is None:
            return None
        opening, closing = map(ebnf.literal, notation_at(self._style, place.level).object)
        return ebnf.joined(opening, self._body(node, members, place), closing)

    def _body(self, node: Schema, members: Members, place: _Place) -> str:
        """What stands between the brackets of an object."""
        notation = notation_at(self._style, place.level)
        if not members.named:
            low, high = counts(node, "minProperties", "maxProperties")
            return counted(self.rule, notation, [], members.further, low, high)
        for keyword in ("minProperties", "maxProperties"):
            if keyword in node:
                self._leave(place, keyword, "declared properties are not counted")
        if self._any_order:
            return unordered(self.rule, notation, members)
        orders = [[*members.named]]
        if self._style.sorts and sorted(orders[0], key=str.lower) != orders[0]:
            orders.append(sorted(orders[0], key=str.lower))
        return ebnf.either([chain(self.rule, notation, members, order) for order in orders])

    def _members(self, node: Schema, place: _Place) -> Members | None:
        """The members of an object; None where none is declared and no other can be written."""
        notation = notation_at(self._style, place.level)
        required = [name for name in as_list(node.get("required")) if isinstance(name, str)]
        declared = {**as_mapping(node.get("properties"))}
        for name in required:
            declared.setdefault(name, True)
        found = Members(required=frozenset(required))
        for name, schema in declared.items():
            key = key_text(notation, name)
            if key is None or schema is False:
                why = "the name cannot be written in this format" if key is None else "is forbidden"
                if key is None or name in found.required:
                    self._leave(place, f"properties/{name}", why)
                continue
            value = self._schema(schema, place.inside("properties", name))
            found.named[name] = self.rule(member(notation, key, value))
        if self._is_open(node):
            found.further = self._further(node, place, found.named)
            if found.further is None and not found.named:
                return None
        return found

    def _is_open(self, node: Schema) -> bool:
        """Whether there may be members that are not declared: where nothing says so, as in JSON."""
        if node.get("patternProperties"):
            return True
        additional = node.get("additionalProperties")
        return additional not in (None, False) or (additional is None and "properties" not in node)

    def _further(self, node: Schema, place: _Place, names: Iterable[str]) -> str | None:
        notation = notation_at(self._style, place.level)
        key = self._other_key(node, place, [*names])
        options: list[str | None] = []
        for pattern, schema in as_mapping(node.get("patternProperties")).items():
            matching = matched(pattern)
            written = matching_key(notation, matching) if matching is not None else None
            if written is None:
                self._leave(place, "patternProperties", "an expression of names is not held")
                continue
            value = self._schema(schema, place.inside("patternProperties", pattern))
            options.append(further_member(notation, written, value))
        additional = node.get("additionalProperties")
        if additional not in (None, False) or not options:
            value = self._schema(additional, place.inside("additionalProperties"))
            options.append(further_member(notation, key, value))
        kept = [option for option in options if option is not None]
        return self.rule(ebnf.either(kept)) if kept else None

    def _other_key(self, node: Schema, place: _Place, names: list[str]) -> str:
        notation = notation_at(self._style, place.level)
        schema = as_mapping(node.get("propertyNames"))
        pattern, listed = schema.get("pattern"), as_list(schema.get("enum"))
        held: str | None = None
        if not names and isinstance(pattern, str) and (node_ := matched(pattern)) is not None:
            held = matching_key(notation, node_)
        elif not names and listed:
            texts = [name for name in listed if isinstance(name, str)]
            held = ebnf.either(
                [ebnf.literal(text) for text in texts if key_text(notation, text)] or [ebnf.EMPTY]
            )
        elif schema.keys() & CONSTRAINTS - {"type"}:
            self._leave(place, "propertyNames", "is not held beside declared names")
        return held or other_key(self.rule, notation, names)
