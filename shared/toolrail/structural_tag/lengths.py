"""Text of bounded length that never contains a given string, both held at once.

The grammar engine holds either: beside an exclusion it drops `minLength` and `maxLength` (0.2.8,
and 0.2.9 still). A longest length is held by free text that counts its characters. A shortest one
needs a grammar over (characters so far, matched prefix of the string); a rule of such a grammar
costs the engine about 20 ms with a vocabulary of 129,000 tokens, hence the bounds below.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from toolrail.structural_tag import TagFormat, any_text, either, grammar, sequence

_MAX_SHORTEST: Final = 32
"""Greatest shortest length that is held where there is no longest one."""
_MAX_SHORTEST_OF_BOTH: Final = 8
"""The same beside a longest length: several grammars count up to it."""
_MAX_COUNTED: Final = 12
"""Greatest longest length up to which one grammar counts every character."""
_MAX_EXTRA: Final = 3
"""Characters of a run over `shortest` that are counted."""

_Ends: TypeAlias = Callable[[int], bool]
"""Whether the text may end after so many characters."""
_Moves: TypeAlias = Callable[[int, int], int | None]
"""From a count and the next matched length to the next count; None: not allowed."""


def text_of_length(stop: str, shortest: int, longest: int | None) -> TagFormat | None:
    """Text without `stop`, of that many characters; None when it would cost too much.

    The first character of `stop` does not come again in it. With both bounds, one kind of text may
    be longer: where the character at `shortest` stands in a run that goes on to look like starts
    of `stop` (`<<<`). To refuse it would ban legal values, so that is left to the check of the
    arguments.
    """
    if shortest == 0:
        return any_text([stop], longest)
    if longest is None:
        return _up(stop, shortest) if shortest <= _MAX_SHORTEST else None
    if longest <= _MAX_COUNTED:
        return _between(stop, shortest, longest)
    if shortest > _MAX_SHORTEST_OF_BOTH:
        return None
    rest = longest - shortest
    ways = [
        sequence([_back_after(stop, shortest, extra), any_text([stop], rest - extra)])
        for extra in range(min(len(stop), _MAX_EXTRA))
    ]
    return either([*ways, _not_back(stop, shortest)])


def _up(stop: str, shortest: int) -> TagFormat:
    """`shortest` characters or more."""
    return _counting(stop, lambda at: at == shortest, lambda at, _: min(at + 1, shortest))


def _between(stop: str, shortest: int, longest: int) -> TagFormat:
    return _counting(
        stop, lambda at: at >= shortest, lambda at, _: at + 1 if at < longest else None
    )


def _back_after(stop: str, shortest: int, extra: int) -> TagFormat:
    """`shortest` characters and `extra` more, after the last of which nothing of `stop` matches.

    After each character from `shortest` on but the last, something of it does.
    """
    end = shortest + extra

    def moves(at: int, matched: int) -> int | None:
        allowed = at + 1 < shortest or (at < end and (matched == 0) == (at + 1 == end))
        return at + 1 if allowed else None

    return _counting(stop, lambda at: at == end, moves)


def _not_back(stop: str, shortest: int) -> TagFormat:
    """The texts of `shortest` characters or more that no `_back_after` begins."""
    free = shortest + min(len(stop), _MAX_EXTRA)

    def moves(at: int, matched: int) -> int | None:
        allowed = at + 1 < shortest or at + 1 >= free or matched > 0
        return min(at + 1, free) if allowed else None

    return _counting(stop, lambda at: at >= shortest, moves)


def _counting(stop: str, ends: _Ends, moves: _Moves) -> TagFormat:
    """The grammar with one rule for each count and matched length that can be reached."""
    rules = ["root ::= c0_0"]
    reached = [(0, 0)]
    for at, matched in reached:
        ways = ['""'] if ends(at) else []
        for characters, following in _steps(stop, matched):
            to = moves(at, following)
            if to is None:
                continue
            ways.append(f"{characters} c{to}_{following}")
            if (to, following) not in reached:
                reached.append((to, following))
        rules.append(f"c{at}_{matched} ::= {' | '.join(ways)}")
    return grammar("\n".join(rules))


def _steps(stop: str, matched: int) -> Iterator[tuple[str, int]]:
    """What may come after `matched` characters of `stop`, and how many match then."""
    first, awaited = stop[0], stop[matched]
    if matched + 1 < len(stop):
        yield _quoted(awaited), matched + 1
    if awaited != first:
        yield _quoted(first), 1
    yield f"[^{_in_class(first)}{_in_class(awaited) if awaited != first else ''}]", 0


def _quoted(character: str) -> str:
    return json.dumps(character, ensure_ascii=False)


def _in_class(character: str) -> str:
    return "\\" + character if character in "]\\^-" else character
