"""Strings and numbers of a schema as EBNF, and what of their keywords a grammar does not hold.

Functions take the schema and `leave(keyword, why)`, which collects what is left free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from toolrail.arguments.types import as_list, is_mapping
from toolrail.schema.formats import FORMATS
from toolrail.schema.regex.anchored import whole
from toolrail.schema.regex.charset import ANY, CharSet, charset, of
from toolrail.schema.regex.parse import RegexError, parse
from toolrail.schema.regex.syntax import Chars, Node, Repeat, can_match, is_empty, restricted
from toolrail.structural_tag import ebnf
from toolrail.syntax import Notation

Schema: TypeAlias = Mapping[str, object]
Leave: TypeAlias = Callable[[str, str], None]

_MAX_LENGTH: Final = 256
"""The longest string that is counted."""


def allowed(notation: Notation) -> CharSet:
    """The characters that can never begin what ends a string of the notation."""
    return ANY - of(notation.guard[:1]) - charset([(0, 0)])


def string_body(node: Schema, notation: Notation, text: str, leave: Leave) -> str | None:
    """What stands between the quotes of a string; None: any text. `text`: the rule of any text."""
    low, high = natural(node.get("minLength")) or 0, natural(node.get("maxLength"))
    held = _patterned(node, notation, leave) or _formatted(node, notation, leave)
    if held is not None:
        for keyword in ("minLength",) * (low > 0) + ("maxLength",) * (high is not None):
            leave(keyword, "lengths are not counted beside a pattern or format")
        return ebnf.expression(held, escaped=notation.escaped)
    if high is not None and high > _MAX_LENGTH:
        leave("maxLength", f"lengths are counted up to {_MAX_LENGTH} characters")
        high = None
    if low > _MAX_LENGTH:
        leave("minLength", f"lengths are counted up to {_MAX_LENGTH} characters")
        low = 0
    if high is not None:
        counted = Repeat(Chars(allowed(notation)), low, max(low, high))
        return ebnf.expression(counted, escaped=notation.escaped)
    if not low:
        return None
    one = ebnf.expression(Chars(allowed(notation)), escaped=notation.escaped)
    return ebnf.joined(ebnf.repeated(one, low, low), text)


def _patterned(node: Schema, notation: Notation, leave: Leave) -> Node | None:
    pattern = node.get("pattern")
    return _writable(pattern, "pattern", notation, leave) if isinstance(pattern, str) else None


def _formatted(node: Schema, notation: Notation, leave: Leave) -> Node | None:
    name = node.get("format")
    if not isinstance(name, str):
        return None
    if name not in FORMATS:
        leave("format", "no grammar is known for it")
        return None
    return _writable(FORMATS[name], "format", notation, leave)


def _writable(pattern: str, keyword: str, notation: Notation, leave: Leave) -> Node | None:
    """The expression without what cannot be written inside a string of the notation."""
    node = matched(pattern)
    if node is None:
        leave(keyword, "is no expression that a grammar holds")
        return None
    if can_match(node, ANY - allowed(notation)):
        node = restricted(node, allowed(notation))
    if is_empty(node):
        leave(keyword, "needs what ends the value")
        return None
    return node


def matched(pattern: str) -> Node | None:
    """The texts in which an expression is found; None: a grammar cannot tell."""
    try:
        regex = parse(pattern)
        return None if regex.looks else whole(regex.node)
    except RegexError:
        return None


def integer(node: Schema, leave: Leave) -> str:
    """Whole numbers."""
    low = _tightest(node, "minimum", "exclusiveMinimum", leave)
    high = _tightest(node, "maximum", "exclusiveMaximum", leave)
    least = None if low is None else math.floor(low[0]) + 1 if low[1] else math.ceil(low[0])
    most = None if high is None else math.ceil(high[0]) - 1 if high[1] else math.floor(high[0])
    if node.get("multipleOf") not in (None, 1):
        leave("multipleOf", "multiples are not counted in this format")
    if least is None and most is None:
        return ebnf.INTEGER
    found = ebnf.integers(least, most)
    if found is None:
        leave("minimum", "no whole number is in the range")
    return found or ebnf.INTEGER


def number(node: Schema, leave: Leave) -> str:
    """Numbers. Bounds that are not whole are held to the next whole ones outside."""
    low = _tightest(node, "minimum", "exclusiveMinimum", leave)
    high = _tightest(node, "maximum", "exclusiveMaximum", leave)
    if "multipleOf" in node:
        leave("multipleOf", "multiples are not counted in this format")
    if low is None and high is None:
        return ebnf.NUMBER
    least = None if low is None else math.floor(low[0])
    most = None if high is None else math.ceil(high[0])
    for bound, whole_one, words in (
        (low, least, ("minimum", "exclusiveMinimum")),
        (high, most, ("maximum", "exclusiveMaximum")),
    ):
        if bound is not None and bound[0] != whole_one:
            leave(words[bound[1]], "only whole bounds are held")
    found = ebnf.decimals(
        least,
        most,
        low_open=low is not None and low[1] and low[0] == least,
        high_open=high is not None and high[1] and high[0] == most,
    )
    if found is None:
        leave("minimum", "no number is in the range")
    return found or ebnf.NUMBER


def _tightest(
    node: Schema, closed: str, opened: str, leave: Leave
) -> tuple[int | float, bool] | None:
    """The bound that counts and whether it is left out itself; None: there is none."""
    found: list[tuple[int | float, bool]] = []
    for keyword in (closed, opened):
        value = node.get(keyword)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if math.isfinite(value) and abs(value) < 10**15:
            found.append((value, keyword == opened))
        else:
            leave(keyword, "the bound is too large to be held")
    sign = 1 if closed == "minimum" else -1
    return max(found, key=lambda bound: (sign * bound[0], bound[1]), default=None)


def natural(value: object) -> int | None:
    """A length or count, None if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def counts(node: Schema, least: str, most: str) -> tuple[int, int | None]:
    """The lowest and highest count that two keywords allow."""
    low, high = natural(node.get(least)) or 0, natural(node.get(most))
    return low, None if high is None else max(low, high)


def writable(values: Sequence[object], guard: str) -> list[object]:
    """Those of the constants in which no string holds what ends a string."""
    return [value for value in values if not guard or not _holds(value, guard)]


def _holds(value: object, text: str) -> bool:
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str) and text in part:
            return True
        if is_mapping(part):
            pending += (*part.keys(), *part.values())
        pending += as_list(part)
    return False
