"""Lark grammars, read: rules, terminals, their operators, `%ignore` and `%import common`.

Aliases, `?`, `!` and priorities shape a tree that nobody builds here and are read over. Templates,
`%declare`, `%extend`, `%override` and imports of other files are refused.

Source: https://lark-parser.readthedocs.io/en/stable/grammar.html, Lark 1.2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from toolrail.grammars.common import COMMON
from toolrail.grammars.lark_terminals import Terminals
from toolrail.grammars.lark_tokens import Token, tokens
from toolrail.grammars.lark_tree import Atom, Item, Many, Name, Options, Range, Row
from toolrail.grammars.model import (
    Expr,
    Grammar,
    Join,
    Leaf,
    Loop,
    Pick,
    Ref,
    UnheldGrammarError,
    without_dead_ends,
)

MAX_DEFINITIONS: Final = 1_000
MAX_REPEAT: Final = 1_000
_MAX_DEPTH: Final = 32
_START: Final = "start"
_WHOLE: Final = "whole"
"""The rule over the start where something is ignored before it; no rule of Lark's can be it."""
_REFUSED: Final = {
    "%declare": "terminals that only a lexer's code knows",
    "%extend": "definitions of other files",
    "%override": "definitions of other files",
}


def read_lark(text: str) -> Grammar:
    """The grammar, from its rule `start`. O(length).

    Raises:
        UnheldGrammarError: it is none, or needs what is refused.
    """
    definitions = _Reader(tokens(text)).read()
    return _Builder(definitions).grammar()


@dataclass(slots=True)
class _Definitions:
    """What a grammar's text defines."""

    rules: dict[str, Item]
    terminals: dict[str, Item]
    imported: dict[str, str]
    ignored: list[Item]


class _Reader:
    """Reads statements by recursive descent."""

    def __init__(self, found: Sequence[Token]) -> None:
        self._tokens = found
        self._at = 0
        self._depth = 0
        self._found = _Definitions({}, {}, {}, [])

    def read(self) -> _Definitions:
        while self._peek.kind != "end":
            if self._peek.kind == "line":
                self._at += 1
            elif self._peek.kind == "directive":
                self._directive()
            else:
                self._definition()
        return self._found

    @property
    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += token.kind != "end"
        return token

    def _eat(self, sign: str) -> bool:
        if self._peek.kind != "sign" or self._peek.text != sign:
            return False
        self._at += 1
        return True

    def _need(self, sign: str) -> None:
        if not self._eat(sign):
            raise _unread(self._peek, f"'{sign}' is missing")

    def _end_line(self) -> None:
        if self._next().kind not in ("line", "end"):
            self._at -= 1
            raise _unread(self._peek)

    # --- statements ---

    def _directive(self) -> None:
        token = self._next()
        match token.text:
            case "%ignore":
                self._found.ignored.append(self._options())
            case "%import":
                self._import()
            case name:
                reason = _REFUSED.get(name, "a directive that is not known here")
                raise UnheldGrammarError(f"line {token.line}: '{name}' is not supported: {reason}")
        self._end_line()

    def _import(self) -> None:
        module = self._next()
        if module.text != "common":
            raise UnheldGrammarError(
                f"line {module.line}: only 'common' can be imported, not '{module.text[:40]}'"
            )
        if self._eat("("):
            names = [self._next()]
            while self._eat(","):
                names.append(self._next())
            self._need(")")
            for name in names:
                self._imported(name, name.text)
            return
        self._need(".")
        name = self._next()
        self._imported(name, self._next().text if self._eat("->") else name.text)

    def _imported(self, name: Token, known_as: str) -> None:
        if name.text not in COMMON:
            raise UnheldGrammarError(f"line {name.line}: 'common' has no '{name.text[:40]}' here")
        self._found.imported[known_as] = COMMON[name.text]

    def _definition(self) -> None:
        token = self._next()
        if token.kind != "name":
            raise _unread(token)
        name = token.text.lstrip("!?")
        if self._peek.text in ("{", "["):
            raise UnheldGrammarError(
                f"line {token.line}: '{name}' has parameters or attributes, which are not supported"
            )
        if self._eat("."):
            self._next()  # a priority
        self._need(":")
        known = self._found.terminals if is_terminal(name) else self._found.rules
        if name in known or name in self._found.imported:
            raise UnheldGrammarError(f"line {token.line}: '{name}' is defined twice")
        if len(self._found.rules) + len(self._found.terminals) >= MAX_DEFINITIONS:
            raise UnheldGrammarError(f"it has more than {MAX_DEFINITIONS:,} definitions")
        known[name] = self._options()
        self._end_line()

    # --- expressions ---

    def _options(self) -> Item:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UnheldGrammarError(f"its brackets nest more than {_MAX_DEPTH} deep")
        options = [self._row()]
        while self._eat("|"):
            options.append(self._row())
        self._depth -= 1
        return options[0] if len(options) == 1 else Options(tuple(options))

    def _row(self) -> Item:
        items: list[Item] = []
        while self._peek.kind in ("name", "string", "regex") or self._peek.text in ("(", "["):
            items.append(self._repeated(self._atom()))
        if self._eat("->"):
            self._next()  # a name for the tree
        return items[0] if len(items) == 1 else Row(tuple(items))

    def _atom(self) -> Item:
        token = self._next()
        if token.kind == "sign":
            inner = self._options()
            self._need(")" if token.text == "(" else "]")
            return inner if token.text == "(" else Many(inner, 0, 1)
        if token.kind == "string" and self._eat(".."):
            last = self._next()
            if last.kind != "string":
                raise _unread(last, "a range ends with a string")
            return Range(token, last)
        if token.kind == "name":
            if self._peek.text == "{":
                raise UnheldGrammarError(f"line {token.line}: templates are not supported")
            return Name(token.text.lstrip("!?"), token.line)
        return Atom(token)

    def _repeated(self, item: Item) -> Item:
        operators = {"?": (0, 1), "*": (0, None), "+": (1, None)}
        if self._peek.kind == "sign" and self._peek.text in operators:
            low, high = operators[self._next().text]
            return Many(item, low, high)
        if not self._eat("~"):
            return item
        low = self._count()
        return Many(item, low, self._count() if self._eat("..") else low)

    def _count(self) -> int:
        token = self._next()
        if token.kind != "number" or not 0 <= int(token.text[:9]) <= MAX_REPEAT:
            raise _unread(token, f"a count is a number up to {MAX_REPEAT:,}")
        return int(token.text)


class _Builder:
    """Makes a grammar of definitions."""

    def __init__(self, found: _Definitions) -> None:
        self._found = found
        self._terminals = Terminals(found.terminals, found.imported)
        self._between: Expr | None = None

    def grammar(self) -> Grammar:
        if _START not in self._found.rules:
            raise UnheldGrammarError(f"it has no rule '{_START}'")
        if self._found.ignored:
            self._between = Leaf(self._terminals.any_of(self._found.ignored))
        rules = {name: self._expr(item) for name, item in self._found.rules.items()}
        start = _START
        if self._between is not None:
            rules[_WHOLE.upper()] = Join((self._between, Ref(_START)))
            start = _WHOLE.upper()
        grammar = without_dead_ends(Grammar(rules, start))
        if grammar is None:
            raise UnheldGrammarError("no text matches it")
        return grammar

    def _expr(self, item: Item) -> Expr:
        match item:
            case Row(items):
                return Join(tuple(map(self._expr, items)))
            case Options(options):
                return Pick(tuple(map(self._expr, options)))
            case Many(inner, low, high):
                if high is not None and low > high:
                    raise UnheldGrammarError("the bounds of a repeat are out of order")
                return Loop(self._expr(inner), low, high)
            case Name(name, line):
                if is_terminal(name):
                    return self._leaf(item)
                if name not in self._found.rules:
                    raise UnheldGrammarError(f"line {line}: the rule '{name}' is not defined")
                return Ref(name)
            case Atom() | Range():
                return self._leaf(item)

    def _leaf(self, item: Item) -> Expr:
        """A token of the text, and what may be ignored after it."""
        leaf = Leaf(self._terminals.node(item))
        return leaf if self._between is None else Join((leaf, self._between))


def is_terminal(name: str) -> bool:
    """Whether a name is a terminal's: its first letter is a capital."""
    return name.lstrip("_")[:1].isupper()


def _unread(token: Token, why: str = "") -> UnheldGrammarError:
    shown = "the end" if token.kind in ("end", "line") else f"'{token.text[:40]}'"
    return UnheldGrammarError(
        f"line {token.line} cannot be read at {shown}" + (f": {why}" if why else "")
    )
