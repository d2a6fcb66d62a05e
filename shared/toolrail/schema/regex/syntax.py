"""What a regular expression is made of, once parsed, and what can be said of it by looking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from toolrail.schema.regex.charset import CharSet, charset


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set; the empty set matches nothing."""

    set: CharSet


@dataclass(frozen=True, slots=True)
class Seq:
    """One after the other; an empty sequence matches the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of several."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Again and again: `low` to `high` times, None: without end."""

    node: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Edge:
    """`^` (start) or `$` (end): a place, no text."""

    start: bool


Node: TypeAlias = Chars | Seq | Alt | Repeat | Edge

EMPTY: Final = Seq(())
START: Final = Edge(start=True)
END: Final = Edge(start=False)


@dataclass(frozen=True, slots=True)
class Look:
    """A lookahead at the start of an expression: what the rest must (not) begin with."""

    node: Node
    negative: bool


@dataclass(frozen=True, slots=True)
class Regex:
    """A parsed expression.

    Attributes:
        node: the expression without its leading lookaheads.
        looks: the lookaheads at its start, to be met at the same place.
    """

    node: Node
    looks: tuple[Look, ...] = ()


def sequence(*parts: Node) -> Node:
    """The parts in order, flattened."""
    flat: list[Node] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Seq) else (part,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def size(node: Node) -> int:
    """How many character positions an automaton of the node has, bounds written out."""
    match node:
        case Chars():
            return 1
        case Edge():
            return 0
        case Seq(parts):
            return sum(map(size, parts))
        case Alt(options):
            return sum(map(size, options))
        case Repeat(inner, low, high):
            return size(inner) * max(low, 1 if high is None else high)
        case _:
            assert_never(node)


def optionals(node: Node) -> int:
    """How many parts may be left out or not, one by one: each doubles what a mask must look at."""
    match node:
        case Chars() | Edge():
            return 0
        case Seq(parts):
            return sum(map(optionals, parts))
        case Alt(options):
            return sum(map(optionals, options))
        case Repeat(inner, low, high):
            own = 1 if low == 0 and high == 1 else 0
            return own + optionals(inner) * max(low, 1 if high is None else high)
        case _:
            assert_never(node)


def lengths(node: Node) -> tuple[int, int | None]:
    """The shortest and the longest text that the node can match, None: no bound."""
    match node:
        case Chars():
            return 1, 1
        case Edge():
            return 0, 0
        case Seq(parts):
            pairs = [lengths(part) for part in parts]
            return sum(low for low, _ in pairs), _sum([high for _, high in pairs])
        case Alt(options):
            pairs = [lengths(option) for option in options]
            highs = [high for _, high in pairs]
            bounded = [high for high in highs if high is not None]
            longest = max(bounded, default=0) if len(bounded) == len(highs) else None
            return min((low for low, _ in pairs), default=0), longest
        case Repeat(inner, low, high):
            least, most = lengths(inner)
            bounded = 0 if most == 0 else None if high is None or most is None else most * high
            return least * low, bounded
        case _:
            assert_never(node)


def _sum(values: list[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def beginnings(node: Node) -> CharSet:
    """The characters with which what the node matches may begin."""
    match node:
        case Chars(chars):
            return chars
        case Edge():
            return charset(())
        case Alt(options):
            return charset(piece for option in options for piece in beginnings(option).ranges)
        case Repeat(inner, _, high):
            return charset(()) if high == 0 else beginnings(inner)
        case Seq(parts):
            found = charset(())
            for part in parts:
                found |= beginnings(part)
                if lengths(part)[0]:
                    break
            return found
        case _:
            assert_never(node)


def is_empty(node: Node) -> bool:
    """True when the node matches nothing at all."""
    match node:
        case Chars(chars):
            return not chars
        case Edge():
            return False
        case Seq(parts):
            return any(map(is_empty, parts))
        case Alt(options):
            return all(map(is_empty, options))
        case Repeat(inner, low, _):
            return low > 0 and is_empty(inner)
        case _:
            assert_never(node)


def merged(node: Node) -> Node:
    """The node with alternatives of single characters as one set: `(a|[0-9])` is `[0-9a]`."""
    match node:
        case Chars() | Edge():
            return node
        case Seq(parts):
            return sequence(*map(merged, parts))
        case Repeat(inner, low, high):
            return Repeat(merged(inner), low, high)
        case Alt(options):
            flat: list[Node] = []
            for option in map(merged, options):
                flat.extend(option.options if isinstance(option, Alt) else (option,))
            singles = [option for option in flat if isinstance(option, Chars)]
            others = [option for option in flat if not isinstance(option, Chars)]
            union = [Chars(_union(singles))] if singles else []
            return union[0] if union and not others else Alt((*union, *others))
        case _:
            assert_never(node)


def _union(singles: list[Chars]) -> CharSet:
    return charset(piece for single in singles for piece in single.set.ranges)


def has_wide_loop(node: Node, *, looped: bool = False) -> bool:
    """True when a group that is repeated holds one character of a wide set by itself.

    Then any token of a vocabulary may run over the group's end, and an engine looks at every one of
    them at every step: hundreds of milliseconds a token.
    """
    match node:
        case Chars(chars):
            return looped and _count(chars) > _WIDE
        case Edge():
            return False
        case Seq(parts):
            return any(has_wide_loop(part, looped=looped) for part in parts)
        case Alt(options):
            return any(has_wide_loop(option, looped=looped) for option in options)
        case Repeat(Chars() as inner, _, high):
            return looped and high is not None and has_wide_loop(inner, looped=True)
        case Repeat(inner, _, high):
            return has_wide_loop(inner, looped=looped or high is None or high > _FEW)
        case _:
            assert_never(node)


def counted(node: Node) -> int:
    """Characters of wide sets that bounds count, of each bound 128 at most."""
    match node:
        case Chars() | Edge():
            return 0
        case Seq(parts):
            return sum(map(counted, parts))
        case Alt(options):
            return sum(map(counted, options))
        case Repeat(Chars(chars), _, high):
            return min(high, 128) if high is not None and _count(chars) > _WIDE else 0
        case Repeat(inner, _, high):
            return counted(inner) * (high or 1)
        case _:
            assert_never(node)


_WIDE: Final = 1_000
_FEW: Final = 4


def _count(chars: CharSet) -> int:
    return sum(high - low + 1 for low, high in chars.ranges)


def restricted(node: Node, allowed: CharSet) -> Node:
    """The node with every set cut down to `allowed`: it matches those of its texts made of it."""
    match node:
        case Chars(chars):
            return Chars(chars & allowed)
        case Edge():
            return node
        case Seq(parts):
            return Seq(tuple(restricted(part, allowed) for part in parts))
        case Alt(options):
            kept = tuple(restricted(option, allowed) for option in options)
            return Alt(tuple(option for option in kept if not is_empty(option)))
        case Repeat(inner, low, high):
            cut = restricted(inner, allowed)
            return EMPTY if low == 0 and is_empty(cut) else Repeat(cut, low, high)
        case _:
            assert_never(node)


def can_match(node: Node, chars: CharSet) -> bool:
    """True when some text of the node may hold a character of the set."""
    match node:
        case Chars(own):
            return bool(own & chars)
        case Edge():
            return False
        case Seq(parts):
            return any(can_match(part, chars) for part in parts)
        case Alt(options):
            return any(can_match(option, chars) for option in options)
        case Repeat(inner, _, high):
            return high != 0 and can_match(inner, chars)
        case _:
            assert_never(node)
