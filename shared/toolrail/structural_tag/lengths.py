"""Text of bounded length that never contains a given string, both held at once.

The grammar engine holds either: beside an exclusion it drops `minLength` and `maxLength` (0.2.8,
and 0.2.9 still). A longest length is held by free text that counts its characters. A shortest one
needs a grammar over (characters so far, matched prefix of the string); which way is affordable,
`schema.counting` tells.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from toolrail.schema.counting import MAX_EXTRA, MAX_LONGEST, Counting
from toolrail.structural_tag import TagFormat, any_text, either, grammar, sequence

_Ends: TypeAlias = Callable[[int], bool]
"""Whether the text may end after so many characters."""
_Moves: TypeAlias = Callable[[int, int], int | None]
"""From a count and the next matched length to the next count; None: not allowed."""


@dataclass(frozen=True, slots=True)
class Way:
    """Texts that begin as a grammar says.

    Attributes:
        rules: names and bodies (EBNF); the first is where the text begins.
        rest: whether free text without `stop` follows; else the text ends with the grammar.
        most: the longest length of that text, None: any.
    """

    rules: Sequence[tuple[str, str]]
    rest: bool = False
    most: int | None = None


def counted_text(
    counting: Counting, stop: str, shortest: int, longest: int | None, *, not_first: str = ""
) -> TagFormat:
    """Text without `stop`, of that many characters, counted that way.

    `not_first`: where there is a shortest length, no text begins with one of these characters.
    """
    if counting.way == "longest":
        return any_text([stop], None if longest is None else min(longest, MAX_LONGEST))
    formats: list[TagFormat] = []
    for way in counted_ways(counting, stop, shortest, longest, not_first=not_first):
        rules = [("root", way.rules[0][0]), *way.rules]
        held = grammar("\n".join(f"{name} ::= {body}" for name, body in rules))
        formats.append(sequence([held, any_text([stop], way.most)]) if way.rest else held)
    return either(formats)


def counted_ways(  # noqa: PLR0913 - what is counted, and how its rules are called
    counting: Counting,
    stop: str,
    shortest: int,
    longest: int | None,
    *,
    not_first: str = "",
    prefix: str = "c",
) -> list[Way]:
    """The same as grammars, each with what follows it, where there is a shortest length.

    `prefix` begins the name of every rule.
    """
    most = None if longest is None else min(longest, MAX_LONGEST)
    counted = _Counted(stop, shortest, not_first, prefix)
    match counting.way:
        case "least":
            return [counted.up()]
        case "between":
            return [counted.between(shortest if most is None else most)]
        case "both":
            return counted.both(shortest if most is None else most)
        case _:
            return [counted.head(most)]


class _Counted:
    """The ways to count."""

    def __init__(self, stop: str, shortest: int, not_first: str, prefix: str) -> None:
        self._stop: Final = stop
        self._shortest: Final = shortest
        self._not_first: Final = not_first
        self._prefix: Final = prefix
        self._grammars = 0

    def up(self) -> Way:
        """`shortest` characters or more."""
        low = self._shortest
        return Way(self._rules(lambda at: at == low, lambda at, _: min(at + 1, low)))

    def between(self, longest: int) -> Way:
        """Every character counted."""
        low = self._shortest
        return Way(
            self._rules(lambda at: at >= low, lambda at, _: at + 1 if at < longest else None)
        )

    def both(self, longest: int) -> list[Way]:
        """From where nothing of `stop` matches any more, free text counts what is left.

        A text that goes on with starts of `stop` (`<<<`) from `shortest` on must end there.
        """
        rest = longest - self._shortest
        extras = min(len(self._stop), MAX_EXTRA)
        ways = [Way(self._back_after(extra), True, rest - extra) for extra in range(extras)]
        return [*ways, Way(self._not_back(extras))]

    def head(self, longest: int | None) -> Way:
        """`shortest` characters without the first of `stop`, then free text."""
        low, excluded = self._shortest, _in_class(self._stop[0])
        first = f"[^{excluded}{''.join(map(_in_class, self._not_first))}]"
        body = f"{first} [^{excluded}]{{{low - 1}}}" if low > 1 else first
        rules = [(f"{self._prefix}0", body)]
        if longest == low:
            return Way(rules)
        return Way(rules, True, None if longest is None else longest - low)

    def _back_after(self, extra: int) -> Sequence[tuple[str, str]]:
        """`shortest` characters and `extra` more, after the last of which nothing matches.

        After each character from `shortest` on but the last, something of `stop` does.
        """
        low, end = self._shortest, self._shortest + extra

        def moves(at: int, matched: int) -> int | None:
            allowed = at + 1 < low or (at < end and (matched == 0) == (at + 1 == end))
            return at + 1 if allowed else None

        return self._rules(lambda at: at == end, moves)

    def _not_back(self, extras: int) -> Sequence[tuple[str, str]]:
        """The texts that end before any `_back_after` does."""
        low, end = self._shortest, self._shortest + extras - 1

        def moves(at: int, matched: int) -> int | None:
            allowed = at + 1 < low or (at < end and matched > 0)
            return at + 1 if allowed else None

        return self._rules(lambda at: at >= low, moves)

    def _rules(self, ends: _Ends, moves: _Moves) -> Sequence[tuple[str, str]]:
        """One rule for each count and matched length that can be reached."""
        self._grammars += 1
        prefix = f"{self._prefix}{self._grammars}_"
        rules: list[tuple[str, str]] = []
        reached = [(0, 0)]
        for at, matched in reached:
            ways = ['""'] if ends(at) else []
            for characters, following in self._steps(at, matched):
                to = moves(at, following)
                if to is None:
                    continue
                ways.append(f"{characters} {prefix}{to}_{following}")
                if (to, following) not in reached:
                    reached.append((to, following))
            rules.append((f"{prefix}{at}_{matched}", " | ".join(ways)))
        return rules

    def _steps(self, at: int, matched: int) -> Iterator[tuple[str, int]]:
        """What may come after `matched` characters of `stop`, and how many match then."""
        telling = "" if at else self._not_first
        for character in dict.fromkeys(self._stop):
            following = self._matched(self._stop[:matched] + character)
            if 0 < following < len(self._stop):
                yield _quoted(character), following
            telling += character if following else ""
        yield f"[^{''.join(map(_in_class, telling))}]", 0

    def _matched(self, text: str) -> int:
        """How much of the end of `text` is a start of `stop`."""
        starts = (n for n in range(len(text) + 1) if self._stop.startswith(text[n:]))
        return len(text) - next(starts)


def _quoted(character: str) -> str:
    return json.dumps(character, ensure_ascii=False)


def _in_class(character: str) -> str:
    if character in "[]\\^-":
        return "\\" + character
    return character if character.isprintable() else f"\\x{ord(character):02x}"
