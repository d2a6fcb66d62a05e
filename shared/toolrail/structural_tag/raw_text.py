"""Raw strings of a notation whose characters are counted beside the guard of their end, as EBNF."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from toolrail.schema.counting import MAX_LONGEST, Counting, counting
from toolrail.schema.formats import FORMATS
from toolrail.structural_tag import ebnf
from toolrail.structural_tag.lengths import counted_ways
from toolrail.structural_tag.scalars import Leave, Schema, natural
from toolrail.syntax import Notation


@dataclass(frozen=True, slots=True)
class RawLengths:
    """The lengths of a raw string, and how they are counted."""

    counting: Counting
    low: int
    high: int | None


def raw_lengths(node: Schema, notation: Notation, leave: Leave) -> RawLengths | None:
    """The lengths of a string that is raw text; None: none are counted.

    Beside a pattern or a format they are not.
    """
    low, high = natural(node.get("minLength")) or 0, natural(node.get("maxLength"))
    if notation.escaped or "pattern" in node or node.get("format") in FORMATS:
        return None
    if low == 0 and high is None:
        return None
    high = None if high is None else min(max(low, high), MAX_LONGEST)
    found = counting(notation.guard, low, high)
    if found is not None:
        return RawLengths(found, low, high)
    leave("minLength", "is too long to be counted")
    longest = counting(notation.guard, 0, high)
    return None if high is None or longest is None else RawLengths(longest, 0, high)


def counted_body(
    lengths: RawLengths, guard: str, prefix: str, text: Callable[[int | None], str]
) -> tuple[str, Mapping[str, str]]:
    """What stands between the quotes, and the rules for it, whose names begin with `prefix`.

    `text`: the rule of raw text of a longest length.
    """
    if lengths.counting.way == "longest":
        return text(lengths.high), {}
    rules: dict[str, str] = {}
    options: list[str] = []
    for way in counted_ways(lengths.counting, guard, lengths.low, lengths.high, prefix=prefix):
        rules |= dict(way.rules)
        rest = text(way.most) if way.rest else ebnf.EMPTY
        options.append(ebnf.joined(way.rules[0][0], rest))
    return ebnf.either(options), rules
