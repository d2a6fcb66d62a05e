"""Terminals of a Lark grammar as regular expressions: what they refer to is put in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from toolrail.grammars import patterns
from toolrail.grammars.lark_tokens import Token, regex_value, string_value
from toolrail.grammars.lark_tree import Atom, Item, Many, Name, Options, Range, Row
from toolrail.grammars.model import UnheldGrammarError, weight
from toolrail.schema.regex.charset import charset
from toolrail.schema.regex.syntax import Alt, Chars, Node, Repeat, merged, sequence

MAX_PARTS: Final = 4_000
"""Parts of one terminal: terminals made of terminals double with each line."""
_MAX_DEPTH: Final = 150
"""Terminals and brackets inside one another."""


class Terminals:
    """The terminals of one grammar, each resolved once."""

    def __init__(self, defined: Mapping[str, Item], imported: Mapping[str, str]) -> None:
        self._defined = defined
        self._known: dict[str, Node] = {
            name: patterns.pattern(text).node for name, text in imported.items()
        }
        self._open: set[str] = set()
        self._depth = 0

    def node(self, item: Item) -> Node:
        """The texts of a terminal's right-hand side.

        Raises:
            UnheldGrammarError: it is not regular, not defined, or too large.
        """
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UnheldGrammarError(f"its terminals nest more than {_MAX_DEPTH} deep")
        found = self._node(item)
        self._depth -= 1
        return found

    def _node(self, item: Item) -> Node:  # noqa: PLR0911 - one for each kind of item
        match item:
            case Atom(token):
                return _literal(token)
            case Range(first, last):
                low, high = _character(first), _character(last)
                if low > high:
                    raise UnheldGrammarError(f"line {first.line}: a range out of order")
                return Chars(charset([(low, high)]))
            case Name(name, line):
                return self._named(name, line)
            case Row(items):
                return _bounded(sequence(*map(self.node, items)))
            case Options(options):
                return _bounded(Alt(tuple(map(self.node, options))))
            case Many(inner, low, high):
                if high is not None and low > high:
                    raise UnheldGrammarError("the bounds of a repeat are out of order")
                if high == 0:
                    return sequence()
                return _bounded(Repeat(self.node(inner), low, high))

    def any_of(self, items: Sequence[Item]) -> Node:
        """Any number of these, one after the other."""
        nodes = [self.node(item) for item in items]
        # `(x+)*` is `x*`, and has one way to match a text instead of many.
        once = [
            n.node if isinstance(n, Repeat) and n.low == 1 and n.high is None else n for n in nodes
        ]
        return Repeat(merged(Alt(tuple(once))), 0, None)

    def _named(self, name: str, line: int) -> Node:
        if name in self._known:
            return self._known[name]
        if name not in self._defined:
            kind = "terminal" if name.lstrip("_")[:1].isupper() else "rule, which no terminal has,"
            raise UnheldGrammarError(f"line {line}: the {kind} '{name}' is not defined")
        if name in self._open:
            raise UnheldGrammarError(f"line {line}: the terminal '{name}' is part of itself")
        self._open.add(name)
        self._known[name] = self.node(self._defined[name])
        self._open.remove(name)
        return self._known[name]


def _bounded(node: Node) -> Node:
    # Its parts are bounded already, so this looks at few times as many positions at most.
    if weight(node) > MAX_PARTS:
        raise UnheldGrammarError(f"a terminal has more than {MAX_PARTS:,} parts")
    return node


def _literal(token: Token) -> Node:
    if token.kind == "string":
        text, fold = string_value(token)
        return patterns.string(text, fold=fold)
    return _bounded(patterns.terminal(*regex_value(token)))


def _character(token: Token) -> int:
    text, _ = string_value(token)
    if len(text) != 1:
        raise UnheldGrammarError(f"line {token.line}: a range goes from one character to another")
    return ord(text)
