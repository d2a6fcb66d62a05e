"""Parts of a grammar that need no rule, as one regular expression each.

What is said of an expression character by character (`structural_tag.excluding`) is exact inside
it, and not across two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from toolrail.grammars.model import (
    Expr,
    Grammar,
    Join,
    Leaf,
    Loop,
    Pick,
    Ref,
    reachable,
    weight,
)
from toolrail.schema.regex.syntax import Alt, Node, Repeat, merged, sequence

_MAX_PARTS: Final = 400
_PASSES: Final = 4
"""Rules that refer to others are looked at again, as far as people nest them."""


def collapsed(grammar: Grammar) -> Grammar:
    """The same texts, with as few and as large expressions as `_MAX_PARTS` allows."""
    rules = dict(grammar.rules)
    known: dict[str, Node] = {}
    for _ in range(_PASSES):
        for name in reversed(reachable(Grammar(rules, grammar.start))):
            rules[name] = expr = _collapsed(rules[name], known)
            if isinstance(expr, Leaf):
                known[name] = expr.node
    return Grammar(rules, grammar.start)


def _collapsed(expr: Expr, known: Mapping[str, Node]) -> Expr:
    match expr:
        case Leaf():
            return expr
        case Ref(name):
            return Leaf(known[name]) if name in known else expr
        case Join(parts):
            return _joined([_collapsed(part, known) for part in parts])
        case Pick(options):
            return _picked([_collapsed(option, known) for option in options])
        case Loop(item, low, high):
            inner = _collapsed(item, known)
            if isinstance(inner, Leaf) and _fits(again := Repeat(inner.node, low, high)):
                return Leaf(again)
            return Loop(inner, low, high)
        case _:
            assert_never(expr)


def _joined(parts: list[Expr]) -> Expr:
    out: list[Expr] = []
    for part in parts:
        last = out[-1] if out else None
        if isinstance(part, Leaf) and isinstance(last, Leaf):
            both = sequence(last.node, part.node)
            if _fits(both):
                out[-1] = Leaf(both)
                continue
        out.append(part)
    return out[0] if len(out) == 1 else Join(tuple(out))


def _picked(options: list[Expr]) -> Expr:
    nodes = [option.node for option in options if isinstance(option, Leaf)]
    if len(nodes) == len(options) and _fits(one := Alt(tuple(nodes))):
        return Leaf(merged(one))
    return Pick(tuple(options))


def _fits(node: Node) -> bool:
    return weight(node) <= _MAX_PARTS
