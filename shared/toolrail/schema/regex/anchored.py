"""From a search to a whole match: where an expression may be found, written out.

JSON Schema's `pattern` is searched for anywhere in a text; a grammar matches whole texts. So
`any*` is added on each side that no anchor holds, alternative by alternative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from toolrail.schema.regex.charset import ANY
from toolrail.schema.regex.parse import RegexError
from toolrail.schema.regex.syntax import (
    Alt,
    Chars,
    Edge,
    Node,
    Repeat,
    Seq,
    sequence,
)

ANYTHING: Final = Repeat(Chars(ANY), 0, None)
MAX_ALTERNATIVES: Final = 64


@dataclass(frozen=True, slots=True)
class _Flat:
    """An alternative without anchors, and which of its sides they held."""

    node: Node
    start: bool
    end: bool


def whole(node: Node) -> Node:
    """What matches exactly the texts in which `node` can be found; holds no anchors.

    Raises:
        RegexError: an anchor stands where text may precede or follow it.
    """
    options = [
        sequence(*([] if flat.start else [ANYTHING]), flat.node, *([] if flat.end else [ANYTHING]))
        for flat in _flat(node)
    ]
    return options[0] if len(options) == 1 else Alt(tuple(options))


def _flat(node: Node) -> list[_Flat]:
    if not _has_edge(node):
        return [_Flat(node, start=False, end=False)]
    match node:
        case Edge(start):
            return [_Flat(Seq(()), start=start, end=not start)]
        case Alt(options):
            return _bounded([flat for option in options for flat in _flat(option)])
        case Seq(parts):
            return _flat_sequence(parts)
        case _:
            raise RegexError("a repeated anchor", is_valid=True)


def _flat_sequence(parts: tuple[Node, ...]) -> list[_Flat]:
    rows: list[_Flat] = [_Flat(Seq(()), start=False, end=False)]
    for part in parts:
        rows = _bounded([_joined(row, flat) for row in rows for flat in _flat(part)])
    return rows


def _joined(left: _Flat, right: _Flat) -> _Flat:
    if right.start and not _is_nothing(left.node):
        raise RegexError("^ after other text", is_valid=True)
    if left.end and not _is_nothing(right.node):
        raise RegexError("$ before other text", is_valid=True)
    return _Flat(
        sequence(left.node, right.node),
        start=left.start or right.start,
        end=left.end or right.end,
    )


def _bounded(rows: list[_Flat]) -> list[_Flat]:
    if len(rows) > MAX_ALTERNATIVES:
        raise RegexError("too many alternatives with anchors", is_valid=True)
    return rows


def _is_nothing(node: Node) -> bool:
    return isinstance(node, Seq) and not node.parts


def _has_edge(node: Node) -> bool:
    match node:
        case Edge():
            return True
        case Chars():
            return False
        case Seq(parts):
            return any(map(_has_edge, parts))
        case Alt(options):
            return any(map(_has_edge, options))
        case Repeat(inner, _, _):
            return _has_edge(inner)
