"""The right-hand sides of Lark definitions, as they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from toolrail.grammars.lark_tokens import Token


@dataclass(frozen=True, slots=True)
class Atom:
    """A string or an expression."""

    token: Token


@dataclass(frozen=True, slots=True)
class Range:
    """A range of characters."""

    first: Token
    last: Token


@dataclass(frozen=True, slots=True)
class Name:
    """A rule or terminal."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Row:
    """One after the other."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Options:
    """One of several."""

    options: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Many:
    """Again and again."""

    item: Item
    low: int
    high: int | None


Item: TypeAlias = Atom | Range | Name | Row | Options | Many
