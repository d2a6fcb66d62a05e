"""Members of objects and items of arrays as EBNF: chains, counts, and names that are not declared.

Functions that need rules of their own take `rule(body) -> name`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from toolrail.schema.regex.charset import ANY, WORD, CharSet, charset, of
from toolrail.schema.regex.syntax import Node, is_empty, restricted
from toolrail.structural_tag import ebnf
from toolrail.syntax import Notation

NewRule: TypeAlias = Callable[[str], str]

_MAX_NAMES: Final = 2_000
"""Characters of declared names that other names are kept from repeating."""
_SIMPLE: Final = WORD | of("-.$")


@dataclass(slots=True)
class Members:
    """What an object is made of: expressions of members by name, and of any further one."""

    named: dict[str, str] = field(default_factory=dict[str, str])
    required: frozenset[str] = frozenset()
    further: str | None = None


def member(notation: Notation, key: str, value: str) -> str:
    """A member whose key is written as `key`; `value` is an expression."""
    before, between, after = notation.member
    return ebnf.joined(
        ebnf.literal(before + key),
        _framing(notation, between),
        value,
        ebnf.literal(after.replace("{key}", key)),
        gap(notation),
    )


def item(notation: Notation, value: str) -> str:
    """An item of an array; `value` is an expression."""
    before, after = map(ebnf.literal, notation.item)
    return ebnf.joined(before, value, after, gap(notation))


def further_member(notation: Notation, key: str, value: str) -> str | None:
    """A member whose key is an expression; None where its name comes twice."""
    before, between, after = notation.member
    if "{key}" in after:
        return None
    written = key if notation.bare is not None else f"{_QUOTE} {key} {_QUOTE}"
    return ebnf.joined(ebnf.literal(before), written, _framing(notation, between), value)


_QUOTE: Final = ebnf.literal('"')


def chain(rule: NewRule, notation: Notation, members: Members, order: Sequence[str]) -> str:
    """The members in an order, those that are not required optional. O(members) rules."""
    between = _separator(notation)
    further = members.further
    head = tail = ebnf.EMPTY
    if further:
        tail = rule(ebnf.repeated(ebnf.joined(between, further), 0, None))
        head = rule(ebnf.repeated(ebnf.joined(further, tail), 0, 1))
    for name in reversed(order):
        one = members.named[name]
        alone, led = ebnf.joined(one, tail), ebnf.joined(between, one, tail)
        if name not in members.required:
            alone, led = f"{alone} | {head}", f"{led} | {tail}"
        head, tail = rule(alone), rule(led)
    return head


def unordered(rule: NewRule, notation: Notation, members: Members) -> str:
    """The members in any order: which are there is not told, only that enough are."""
    options = [*members.named.values(), *filter(None, [members.further])]
    one = rule(ebnf.either(options))
    least = len(members.required)
    return counted(rule, notation, [], one, least, None)


def counted(  # noqa: PLR0913, PLR0917 - what an array is made of
    rule: NewRule,
    notation: Notation,
    items: Sequence[str],
    further: str | None,
    low: int,
    high: int | None,
) -> str:
    """Items by position, then further ones, `low` to `high` together."""
    between = _separator(notation)
    if not items:
        if further is None or high == 0:
            return ebnf.EMPTY
        one = rule(further)
        most = None if high is None else high - 1
        more = ebnf.repeated(ebnf.joined(between, one), max(0, low - 1), most)
        return ebnf.joined(one, more) if low else f"({ebnf.joined(one, more)})?"
    rest = None if high is None else high - len(items)
    tail = rule(
        ebnf.repeated(ebnf.joined(between, further), max(0, low - len(items)), rest)
        if further and rest != 0
        else ebnf.EMPTY
    )
    for at in range(len(items) - 1, 0, -1):
        following = ebnf.joined(between, items[at], tail)
        tail = rule(following if at < low else f"({following})?")
    alone = ebnf.joined(items[0], tail)
    return alone if low else f"({alone})?"


def _separator(notation: Notation) -> str:
    return _framing(notation, notation.separator) if notation.separator else ""


def _framing(notation: Notation, text: str) -> str:
    return ebnf.loose(text) if notation.loose else ebnf.literal(text)


def gap(notation: Notation) -> str:
    """Framing that may follow a member or an item."""
    return f"{ebnf.literal(notation.gap)}?" if notation.gap else ""


# --- names that are not declared ---


def matching_key(notation: Notation, node: Node) -> str | None:
    """The names that an expression matches, as far as they can be written as they are."""
    quoted = notation.bare is None
    chars = ANY - of(notation.guard[:1]) if quoted else _characters(notation)
    kept = restricted(node, chars)
    return None if is_empty(kept) else ebnf.expression(kept, escaped=quoted)


def other_key(rule: NewRule, notation: Notation, names: Collection[str]) -> str:
    """Any name but `names`. One rule for each character of them."""
    chars = _characters(notation)
    rest = ebnf.character_class(chars) + "*"
    escape = ""
    if notation.bare is None:
        rest = rule(ebnf.any_text(notation, notation.quotes[0]))
        escape = ebnf.escape(notation.quotes[0])
    known = {name for name in names if all(character in chars for character in name)}
    empty = notation.bare is None
    if sum(map(len, known)) > _MAX_NAMES or not known:
        return rest if empty else ebnf.character_class(chars) + "+"
    prefixes = {name[:end] for name in known for end in range(len(name) + 1)}
    children: dict[str, list[str]] = {}
    for prefix in sorted(filter(None, prefixes)):
        children.setdefault(prefix[:-1], []).append(prefix[-1])
    rules: dict[str, str] = {}
    for prefix in sorted(prefixes, key=len, reverse=True):
        following = children.get(prefix, [])
        options = [f"{ebnf.literal(c)} {rules[prefix + c]}" for c in following]
        others = chars - of("".join(following))
        if others:
            options.append(f"{ebnf.character_class(others)} {rest}")
        if escape:
            options.append(f"{escape} {rest}")
        if prefix not in known and (prefix or empty):
            options.append(ebnf.EMPTY)
        rules[prefix] = rule(" | ".join(options))
    return rules[""]


def _characters(notation: Notation) -> CharSet:
    """What a name that is not declared may be made of."""
    if notation.bare is not None:
        return _SIMPLE - of(notation.bare)
    return ANY - ebnf.ESCAPED - of(notation.guard[:1]) - charset([(0, 0x1F), (0x7F, 0x7F)])
