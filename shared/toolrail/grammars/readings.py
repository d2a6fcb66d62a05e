"""Grammars in which a text has few readings: what an engine pays for a text grows with them.

The engine reads a text in all ways at once. Where a part that may be empty is repeated, or a rule
both begins and ends with itself, their number grows with the length of the text, and every token
costs more than the one before: seconds, after some hundred. The first is written in another way
here, the second is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Final, TypeAlias, assert_never

from toolrail.grammars.model import (
    Expr,
    Grammar,
    Join,
    Leaf,
    Loop,
    Pick,
    Ref,
    UnheldGrammarError,
    can_match,
    reachable,
    rules_that,
)
from toolrail.schema.regex.charset import NONE
from toolrail.schema.regex.syntax import (
    EMPTY,
    Alt,
    Chars,
    Edge,
    Node,
    Repeat,
    Seq,
    is_empty,
    lengths,
    sequence,
)

MAX_COUNTED: Final = 1_000
"""Bounds of repeats inside one another, multiplied."""
_NOTHING: Final = Chars(NONE)

_Nullable: TypeAlias = Set[str]


def few_readings(grammar: Grammar) -> Grammar:
    """The same texts, with nothing repeated that may be empty.

    Raises:
        UnheldGrammarError: a rule may begin and end with itself, a rule that may be empty is
            repeated without end, or bounds multiply beyond `MAX_COUNTED`.
    """
    nullable = rules_that(grammar, _may_be_empty)
    rules = {name: _plain(expr, nullable) for name, expr in grammar.rules.items()}
    found = Grammar(rules, grammar.start)
    _refuse_double_recursion(found, nullable)
    _refuse_large_counts(found)
    return found


# --- what may be empty ---


def _may_be_empty(expr: Expr, nullable: _Nullable) -> bool:
    return can_match(expr, nullable, lambda node: lengths(node)[0] == 0 and not is_empty(node))


# --- expressions of rules ---


def _plain(expr: Expr, nullable: _Nullable) -> Expr:
    match expr:
        case Leaf(node):
            return Leaf(plain(node))
        case Ref():
            return expr
        case Join(parts):
            return Join(tuple(_plain(part, nullable) for part in parts))
        case Pick(options):
            return Pick(tuple(_plain(option, nullable) for option in options))
        case Loop(item, low, high):
            inner = _plain(item, nullable)
            if _may_be_empty(inner, nullable):
                # As many as there may be, none of them empty: the empty ones change no text.
                inner, low = _filled(inner, nullable), 0
            return _loop(inner, low, high)
        case _:
            assert_never(expr)


def _loop(item: Expr, low: int, high: int | None) -> Expr:
    """A loop over what is not empty; `(x+)*` and `(x+ | y)*` have one reading as `(x | y)*`."""
    if isinstance(item, Loop) and item.low == 1 and None in (item.high, high):
        return _loop(item.item, low, None)
    if high is None and isinstance(item, Pick):
        return Loop(Pick(tuple(map(_once, item.options))), low, high)
    return Loop(item, low, high)


def _once(option: Expr) -> Expr:
    return option.item if isinstance(option, Loop) and option.low == 1 else option


def _filled(expr: Expr, nullable: _Nullable) -> Expr:
    """The texts of a plain expression but the empty one."""
    match expr:
        case Leaf(node):
            return Leaf(filled(node))
        case Ref(name):
            if name in nullable:
                raise UnheldGrammarError(
                    f"the rule '{name}' may be empty and is repeated: a text would have any number "
                    "of readings"
                )
            return expr
        case Join(parts):
            return _filled_join(parts, nullable)
        case Pick(options):
            return Pick(tuple(_filled(option, nullable) for option in options))
        case Loop(item, _, high):
            # Of a plain loop no item is empty, so one of them is enough.
            return Loop(item, max(expr.low, 1), high)
        case _:
            assert_never(expr)


def _filled_join(parts: tuple[Expr, ...], nullable: _Nullable) -> Expr:
    """Some part is not empty: the first of these, those before it being so."""
    if not all(_may_be_empty(part, nullable) for part in parts):
        return Join(parts)
    return Pick(
        tuple(Join((_filled(part, nullable), *parts[at + 1 :])) for at, part in enumerate(parts))
    )


# --- regular expressions ---


def plain(node: Node) -> Node:
    """The same texts, with nothing repeated that may be empty."""
    match node:
        case Chars() | Edge():
            return node
        case Seq(parts):
            return sequence(*map(plain, parts))
        case Alt(options):
            return Alt(tuple(map(plain, options)))
        case Repeat(inner, low, high):
            item = plain(inner)
            if lengths(item)[0] > 0 or is_empty(item):
                return _repeat(item, low, high)
            item = filled(item)
            return EMPTY if is_empty(item) else _repeat(item, 0, high)
        case _:
            assert_never(node)


def _repeat(item: Node, low: int, high: int | None) -> Node:
    """A repeat of what is not empty, with one reading as in `_loop`."""
    if isinstance(item, Repeat) and item.low == 1 and None in (item.high, high):
        return _repeat(item.node, low, None)
    if high is None and isinstance(item, Alt):
        options = (o.node if isinstance(o, Repeat) and o.low == 1 else o for o in item.options)
        return Repeat(Alt(tuple(options)), low, None)
    return Repeat(item, low, high)


def filled(node: Node) -> Node:
    """The texts of a plain expression but the empty one; without any it holds the empty set."""
    match node:
        case Chars():
            return node
        case Edge():
            return _NOTHING
        case Seq(parts):
            if any(lengths(part)[0] > 0 for part in parts):
                return node
            ways = (sequence(filled(part), *parts[at + 1 :]) for at, part in enumerate(parts))
            return _one_of([way for way in ways if not is_empty(way)])
        case Alt(options):
            ways = map(filled, options)
            return _one_of([way for way in ways if not is_empty(way)])
        case Repeat(inner, low, high):
            return Repeat(inner, max(low, 1), high)
        case _:
            assert_never(node)


def _one_of(ways: list[Node]) -> Node:
    return (ways[0] if len(ways) == 1 else Alt(tuple(ways))) if ways else _NOTHING


# --- rules that lead to themselves ---


def _refuse_double_recursion(grammar: Grammar, nullable: _Nullable) -> None:
    begins = {name: _edges(expr, nullable, _firsts) for name, expr in grammar.rules.items()}
    ends = {name: _edges(expr, nullable, _lasts) for name, expr in grammar.rules.items()}
    for name in sorted(_circular(begins) & _circular(ends)):
        if _leads_to(name, begins) and _leads_to(name, ends):
            raise UnheldGrammarError(
                f"the rule '{name}' may begin and end with itself, so that a text has many "
                "readings: write a list instead, such as  item (separator item)*"
            )


def _firsts(parts: tuple[Expr, ...]) -> Iterator[Expr]:
    return iter(parts)


def _lasts(parts: tuple[Expr, ...]) -> Iterator[Expr]:
    return reversed(parts)


def _edges(
    expr: Expr, nullable: _Nullable, order: Callable[[tuple[Expr, ...]], Iterator[Expr]]
) -> set[str]:
    """The rules that may stand at one end of a text of the expression."""
    match expr:
        case Leaf():
            return set()
        case Ref(name):
            return {name}
        case Pick(options):
            return set[str]().union(*(_edges(option, nullable, order) for option in options))
        case Loop(item):
            return _edges(item, nullable, order)
        case Join(parts):
            found: set[str] = set()
            for part in order(parts):
                found |= _edges(part, nullable, order)
                if not _may_be_empty(part, nullable):
                    break
            return found
        case _:
            assert_never(expr)


def _circular(edges: Mapping[str, set[str]]) -> set[str]:
    """The rules that may lead to themselves: those left when all are gone that cannot."""
    users: dict[str, list[str]] = {}
    for name, targets in edges.items():
        for target in targets:
            users.setdefault(target, []).append(name)
    left = {name: len(targets) for name, targets in edges.items()}
    pending = [name for name, count in left.items() if not count]
    while pending:
        name = pending.pop()
        del left[name]
        for user in users.get(name, ()):
            left[user] -= 1
            if not left[user]:
                pending.append(user)
    return set(left)


def _leads_to(name: str, edges: Mapping[str, set[str]]) -> bool:
    """Whether a rule leads to itself."""
    seen: set[str] = set()
    pending = [*edges[name]]
    while pending:
        at = pending.pop()
        if at == name:
            return True
        if at not in seen:
            seen.add(at)
            pending += edges[at]
    return False


def _refuse_large_counts(grammar: Grammar) -> None:
    """Rules are looked at once: a count around one that leads to itself counts no more."""
    known: dict[str, int] = {}

    def counted(expr: Expr) -> int:
        match expr:
            case Leaf():
                return 1
            case Ref(name):
                return known.get(name, 1)
            case Join(parts) | Pick(parts):
                return max(map(counted, parts), default=1)
            case Loop(item, low, high):
                return counted(item) * max(low, 1 if high is None else high, 1)
            case _:
                assert_never(expr)

    for name in reversed(reachable(grammar)):
        known[name] = counted(grammar.rules[name])
    if max(known.values()) > MAX_COUNTED:
        raise UnheldGrammarError(f"its counts multiply beyond {MAX_COUNTED:,}")
