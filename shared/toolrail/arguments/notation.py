"""How values are written in a family's own notation: the one spelling of renderer and tag."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

from toolrail.arguments.types import json_string
from toolrail.syntax import Notation, NotationStyle

Level: TypeAlias = Literal["arguments", "values", "inner"]
"""Where a value stands: the arguments themselves, below them, or in what is always `inner`."""


def notation_at(style: NotationStyle, level: Level) -> Notation:
    """How values are written there."""
    if level == "inner":
        return style.inner or style.values
    return style.arguments if level == "arguments" else style.values


def below(level: Level) -> Level:
    """Where the members of a value stand."""
    return "inner" if level == "inner" else "values"


def arguments_text(style: NotationStyle, arguments: Mapping[str, object]) -> str:
    """The arguments of a call, in the order given. O(length)."""
    return _object(style, arguments, "arguments")


def value_text(style: NotationStyle, value: object, level: Level) -> str:
    """A value as it is written there. Recursion is as deep as the value.

    Where the text does not tell a string from another value, objects and arrays are written as
    `inner`, which can be read back without knowing their types.
    """
    notation = notation_at(style, level)
    if isinstance(value, str):
        return string_text(notation, value)
    true, false, null = notation.constants
    if isinstance(value, bool):
        return true if value else false
    if value is None:
        return null
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        return _object(style, members, level if notation.typed else "inner")
    if isinstance(value, list):
        items = cast("list[object]", value)
        return _array(style, items, level if notation.typed else "inner")
    return json.dumps(value)


def string_text(notation: Notation, value: str) -> str:
    """A string as it is written in a notation."""
    quote = notation.quotes[0]
    body = json_string(value)[1:-1] if notation.escaped else value
    return quote + body + quote


def key_text(notation: Notation, key: str) -> str | None:
    """A key as it is written in a notation; None: it cannot be."""
    bare = notation.bare
    if bare is not None and key and key == key.strip():
        forbidden = any(character in bare or character < " " for character in key)
        if not forbidden:
            return key
    guarded = notation.guard and not notation.escaped and notation.guard in key
    return string_text(notation, key) if notation.quoted and not guarded else None


def _object(style: NotationStyle, members: Mapping[str, object], level: Level) -> str:
    notation = notation_at(style, level)
    before, between, after = notation.member
    written: list[str] = []
    for key, value in members.items():
        name = key_text(notation, key)
        if name is None:
            name = key  # no reader takes it; a renderer has nothing better
        text = value_text(style, value, below(level))
        written.append(f"{before}{name}{between}{text}{after.replace('{key}', name)}")
    opening, closing = notation.object
    return opening + notation.separator.join(written) + closing


def _array(style: NotationStyle, items: list[object], level: Level) -> str:
    notation = notation_at(style, level)
    before, after = notation.item
    written = (before + value_text(style, item, below(level)) + after for item in items)
    opening, closing = notation.array
    return opening + notation.separator.join(written) + closing
