"""What a grammar is made of, once read: rules over regular expressions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from toolrail.errors import ToolrailError
from toolrail.schema.regex.syntax import Alt, Chars, Edge, Node, Repeat, Seq, is_empty


class UnheldGrammarError(ToolrailError):
    """A grammar that cannot be held.

    Attributes:
        reason: why, as the end of a sentence.
        tool: the custom tool that declares it, "" while that is unknown.
    """

    def __init__(self, reason: str, tool: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.tool = tool


class CrossingError(UnheldGrammarError):
    """Parts of a text may together make what no text may hold."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """Text of a regular expression without anchors."""

    node: Node


@dataclass(frozen=True, slots=True)
class Ref:
    """Text of a rule."""

    name: str


@dataclass(frozen=True, slots=True)
class Join:
    """One after the other."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Pick:
    """One of several."""

    options: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """Again and again: `low` to `high` times, None: without end."""

    item: Expr
    low: int
    high: int | None


Expr: TypeAlias = Leaf | Ref | Join | Pick | Loop


@dataclass(frozen=True, slots=True)
class Grammar:
    """Rules by name, all of them defined, and the one that a text must match."""

    rules: Mapping[str, Expr]
    start: str


def parts_of(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly below."""
    match expr:
        case Leaf() | Ref():
            return ()
        case Join(parts):
            return parts
        case Pick(options):
            return options
        case Loop(item):
            return (item,)
        case _:
            assert_never(expr)


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all below it."""
    pending = [expr]
    while pending:
        found = pending.pop()
        yield found
        pending += parts_of(found)


def reachable(grammar: Grammar) -> tuple[str, ...]:
    """The rules that a text of the grammar may need, the start first."""
    order = [grammar.start]
    seen = {grammar.start}
    for name in order:
        for expr in walk(grammar.rules[name]):
            if isinstance(expr, Ref) and expr.name not in seen:
                seen.add(expr.name)
                order.append(expr.name)
    return tuple(order)


def exact_text(node: Node) -> str | None:
    """The one text that an expression matches; None: there are others."""
    match node:
        case Chars(chars):
            low, high = chars.ranges[0] if len(chars.ranges) == 1 else (0, 1)
            return chr(low) if low == high else None
        case Seq(parts):
            texts = [exact_text(part) for part in parts]
            known = [text for text in texts if text is not None]
            return "".join(known) if len(known) == len(texts) else None
        case _:
            return None


def weight(node: Node) -> int:
    """How many parts an expression has, the bounds of repeats written out."""
    match node:
        case Chars() | Edge():
            return 1
        case Seq(parts) | Alt(parts):
            return 1 + sum(map(weight, parts))
        case Repeat(inner, low, high):
            return 1 + weight(inner) * max(low, 1 if high is None else high)
        case _:
            assert_never(node)


def total_weight(grammar: Grammar) -> int:
    """How many parts all rules have; those of rules that are repeated count once."""
    return sum(
        weight(expr.node) if isinstance(expr, Leaf) else 1
        for rule in grammar.rules.values()
        for expr in walk(rule)
    )


def without_dead_ends(grammar: Grammar) -> Grammar | None:
    """The grammar without alternatives that no text matches; None: no text matches it at all.

    A rule that only leads to itself never ends, and a model in it would write to the limit.
    """
    alive = rules_that(grammar, _ends)
    if grammar.start not in alive:
        return None
    return Grammar({name: _cut(grammar.rules[name], alive) for name in alive}, grammar.start)


def rules_that(grammar: Grammar, holds: Callable[[Expr, Set[str]], bool]) -> frozenset[str]:
    """The rules of which something holds, given the rules of which it is known to hold.

    Each rule is looked at again when it becomes known of one that it refers to.
    """
    users: dict[str, list[str]] = {}
    for name, rule in grammar.rules.items():
        for expr in walk(rule):
            if isinstance(expr, Ref):
                users.setdefault(expr.name, []).append(name)
    found: set[str] = set()
    pending = deque(grammar.rules)
    while pending:
        name = pending.popleft()
        if name not in found and holds(grammar.rules[name], found):
            found.add(name)
            pending += users.get(name, ())
    return frozenset(found)


def can_match(expr: Expr, rules: Set[str], leaf: Callable[[Node], bool]) -> bool:
    """Whether `expr` has a text that is made only of leaves that pass `leaf` and of `rules`."""
    match expr:
        case Leaf(node):
            return leaf(node)
        case Ref(name):
            return name in rules
        case Join(parts):
            return all(can_match(part, rules, leaf) for part in parts)
        case Pick(options):
            return any(can_match(option, rules, leaf) for option in options)
        case Loop(item, low):
            return low == 0 or can_match(item, rules, leaf)
        case _:
            assert_never(expr)


def _ends(expr: Expr, alive: Set[str]) -> bool:
    return can_match(expr, alive, lambda node: not is_empty(node))


def _cut(expr: Expr, alive: Set[str]) -> Expr:
    match expr:
        case Leaf() | Ref():
            return expr
        case Join(parts):
            return Join(tuple(_cut(part, alive) for part in parts))
        case Pick(options):
            return Pick(tuple(_cut(option, alive) for option in options if _ends(option, alive)))
        case Loop(item, low, high):
            return Loop(_cut(item, alive), low, high) if _ends(item, alive) else Join(())
        case _:
            assert_never(expr)
