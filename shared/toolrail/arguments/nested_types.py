"""The types of values at any depth of a tool's arguments, for wires whose leaves carry none.

A view of a schema at one place: everything that the schema may say of the value there, through
references, unions and intersections, found when asked for and remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from toolrail.arguments.types import ParameterTypes, Types, as_list, as_mapping, is_mapping

_MAX_VISITS: Final = 500
"""Schema nodes looked at for one step down; a schema that needs more is taken as unknown."""


class NestedTypes:
    """What a tool's schema says of the value at one place.

    `nodes`: the schemas that may describe it; none: nothing is known. `argument`: its name, where
    the value is an argument itself.
    """

    __slots__ = ("_argument", "_document", "_items", "_members", "_nodes", "_types")

    def __init__(
        self, document: ParameterTypes, nodes: tuple[object, ...], argument: str | None = None
    ) -> None:
        self._document: Final = document
        self._nodes: Final = nodes
        self._argument: Final = argument
        self._types: Types | None = None
        self._members: dict[str, NestedTypes] = {}
        self._items: NestedTypes | None = None

    @property
    def types(self) -> Types:
        """The JSON types that the value may have."""
        if self._types is None and self._argument is not None:
            self._types = self._document.of(self._argument)
        elif self._types is None:
            self._types = self._document.of_schema({"anyOf": [*self._nodes]} if self._nodes else {})
        return self._types

    def member(self, name: str) -> NestedTypes:
        """What is said of a member of the object that stands here."""
        if name not in self._members:
            argument = name if self._nodes == (self._document.root,) else None
            self._members[name] = self._below(lambda schema: _member(schema, name), argument)
        return self._members[name]

    def items(self) -> NestedTypes:
        """What is said of the items of the array that stands here."""
        if self._items is None:
            self._items = self._below(_items)
        return self._items

    def _below(
        self,
        pick: Callable[[Mapping[str, object]], Iterator[object]],
        argument: str | None = None,
    ) -> NestedTypes:
        found: list[object] = []
        pending, followed = [*self._nodes], set[str]()
        for _ in range(_MAX_VISITS):
            if not pending:
                return NestedTypes(self._document, tuple(found), argument)
            node = pending.pop()
            if not is_mapping(node):
                continue
            found += pick(node)
            for keyword in ("allOf", "anyOf", "oneOf"):
                pending += as_list(node.get(keyword))
            reference = node.get("$ref")
            if isinstance(reference, str) and reference not in followed:
                followed.add(reference)
                pending.append(self._document.target(reference))
        return NestedTypes(self._document, (), argument)


def _member(schema: Mapping[str, object], name: str) -> Iterator[object]:
    properties = as_mapping(schema.get("properties"))
    if name in properties:
        yield properties[name]
    elif is_mapping(schema.get("additionalProperties")):
        yield schema["additionalProperties"]


def _items(schema: Mapping[str, object]) -> Iterator[object]:
    yield from as_list(schema.get("prefixItems"))
    if is_mapping(schema.get("items")):
        yield schema["items"]
