r"""The grammar that a custom tool declares for its input, in a family's spelling of arguments.

What the model writes is a function's arguments with the input as their one string: inside a JSON
string each character stands as JSON writes it, in an element or between delimiters it stands as it
is, and what would end the value is kept out.

    root ::= "{" s "\"input\":" s "\"" g0 "\"" s "}"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, assert_never

from toolrail.arguments.notation import arguments_text
from toolrail.arguments.types import json_string
from toolrail.arguments.writing import parameter_opening
from toolrail.grammars import read
from toolrail.grammars.collapsing import collapsed
from toolrail.grammars.guard import Guard
from toolrail.grammars.model import (
    CrossingError,
    Expr,
    Grammar,
    Join,
    Leaf,
    Loop,
    Pick,
    Ref,
    UnheldGrammarError,
    exact_text,
    parts_of,
    reachable,
    without_dead_ends,
)
from toolrail.schema.regex.charset import ANY, CharSet, charset, of
from toolrail.schema.regex.syntax import Node, restricted
from toolrail.structural_tag import ebnf
from toolrail.structural_tag.excluding import Excluding
from toolrail.syntax import ArgumentStyle, JsonStyle, NotationStyle, XmlStyle
from toolrail.tools import INPUT, InputGrammar

_SPACE: Final = "[ \\u000a\\u0009]{0,4}"
_QUOTE: Final = ebnf.literal('"')
_NUL: Final = charset([(0, 0)])
_UNWRITABLE: Final = charset([(0, 0x1F)]) - of("\b\f\n\r\t")
"""Control characters without a short escape: too rare to be paid for in every string."""
_PLACE_TEXT: Final = "placeholder"


@dataclass(frozen=True, slots=True)
class _Spelling:
    """How a style writes the one string.

    Attributes:
        before, after: what stands around it, as EBNF.
        escaped: whether it has JSON's escapes.
        ends: what it may not contain.
    """

    before: str
    after: str
    escaped: bool
    ends: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def input_rules(
    style: ArgumentStyle, declared: InputGrammar, *, guarded: bool, prefix: str = ""
) -> str:
    """EBNF of the arguments of a call whose input is text of a grammar; begins with `root`.

    `guarded`: what a style reserves is kept out as well. `prefix` begins the name of every rule.

    Raises:
        UnheldGrammarError: it cannot be held in this style, or at all.
    """
    return _rules(declared, _spelling(style, guarded=guarded), prefix)


@lru_cache(maxsize=64)
def text_rules(declared: InputGrammar) -> str:
    """EBNF of the texts of a grammar and of little around them, to be tried alone.

    Something comes after them, as in a call: an engine pays for the ways in which a text may end.

    Raises:
        UnheldGrammarError: it cannot be held at all.
    """
    return _rules(declared, _Spelling("", ebnf.literal("\x01"), escaped=False), "")


def _rules(declared: InputGrammar, spelling: _Spelling, prefix: str) -> str:
    grammar = _writable(read(declared), spelling)
    try:
        writer = _Writer(grammar, spelling, prefix)
        body = writer.write()
    except CrossingError:
        writer = _Writer(collapsed(grammar), spelling, prefix)
        body = writer.write()
    root = ebnf.joined(spelling.before, body, spelling.after)
    return "\n".join([f"{prefix}root ::= {root}", *writer.lines()])


class _Writer:
    """Writes the rules of one grammar."""

    def __init__(self, grammar: Grammar, spelling: _Spelling, prefix: str) -> None:
        self._grammar = grammar
        self._escaped = spelling.escaped
        self._prefix = prefix
        self._names = {name: f"{prefix}g{at}" for at, name in enumerate(reachable(grammar))}
        self._rules: dict[str, str] = {}
        self._made = 0
        self._known: dict[Node, str] = {}
        self._excluding: Excluding | None = None
        if spelling.ends:
            shown = " or ".join(f"'{end}'" for end in spelling.ends)
            self._excluding = Excluding(Guard(spelling.ends), shown, spelling.escaped)

    def write(self) -> str:
        """The start's rule, once all rules are written."""
        if self._excluding is not None:
            self._excluding.check(self._grammar)
        for name, rule in self._names.items():
            self._rules[rule] = self._expr(self._grammar.rules[name])
        return self._names[self._grammar.start]

    def lines(self) -> list[str]:
        """All rules."""
        return [f"{name} ::= {body}" for name, body in self._rules.items()]

    def _expr(self, expr: Expr) -> str:
        match expr:
            case Leaf(node):
                return self._leaf(node)
            case Ref(name):
                return self._names[name]
            case Join(parts):
                return ebnf.joined(*map(self._expr, parts))
            case Pick(options):
                return ebnf.either([self._expr(option) for option in options])
            case Loop(_, _, 0):
                return ebnf.EMPTY
            case Loop(item, low, high):
                return ebnf.repeated(self._expr(item), low, high)
            case _:
                assert_never(expr)

    def _leaf(self, node: Node) -> str:
        if self._excluding is None or not self._excluding.may_hold(node):
            text = exact_text(node)
            if text is None:
                return ebnf.expression(node, escaped=self._escaped)
            return ebnf.literal(json_string(text)[1:-1] if self._escaped else text)
        if node not in self._known:
            self._known[node], rules = self._excluding.rules(node, self._new_rule)
            self._rules.update(rules)
        return self._known[node]

    def _new_rule(self) -> str:
        self._made += 1
        return f"{self._prefix}x{self._made}"


def _writable(grammar: Grammar, spelling: _Spelling) -> Grammar:
    """The grammar without the characters that cannot be written."""
    allowed = ANY - (_UNWRITABLE if spelling.escaped else _NUL)
    rules: Mapping[str, Expr] = {
        name: _cut_down(expr, allowed) for name, expr in grammar.rules.items()
    }
    found = without_dead_ends(Grammar(rules, grammar.start))
    if found is None:
        raise UnheldGrammarError("no text of it can be written in this model's format")
    return found


def _cut_down(expr: Expr, allowed: CharSet) -> Expr:
    match expr:
        case Leaf(node):
            return Leaf(restricted(node, allowed))
        case Ref():
            return expr
        case Join():
            return Join(tuple(_cut_down(part, allowed) for part in parts_of(expr)))
        case Pick():
            return Pick(tuple(_cut_down(option, allowed) for option in parts_of(expr)))
        case Loop(item, low, high):
            return Loop(_cut_down(item, allowed), low, high)
        case _:
            assert_never(expr)


def _spelling(style: ArgumentStyle, *, guarded: bool) -> _Spelling:
    match style:
        case JsonStyle():
            key = ebnf.literal(f'"{INPUT}":')
            opening = ebnf.joined('"{"', _SPACE, key, _SPACE, _QUOTE)
            return _Spelling(opening, ebnf.joined(_QUOTE, _SPACE, '"}"'), escaped=True)
        case XmlStyle():
            return _element(style, guarded=guarded)
        case NotationStyle():
            return _notation(style)


def _element(style: XmlStyle, *, guarded: bool) -> _Spelling:
    opening = parameter_opening(style, INPUT, "string") + style.frame
    closing = ebnf.literal(style.frame + style.close)
    if style.after:
        closing = ebnf.joined(closing, f"({ebnf.literal(style.after)})?")
    ends = (style.close, *((style.open,) if style.next_ends else ()))
    if guarded and style.reserved:
        ends = (style.reserved,)
    if style.values != "json_or_text":
        return _Spelling(ebnf.literal(opening), closing, escaped=False, ends=ends)
    # Text that is JSON is read as such, so the input is written as a JSON string.
    before = ebnf.joined(ebnf.literal(opening), _QUOTE)
    return _Spelling(before, ebnf.joined(_QUOTE, closing), escaped=True, ends=ends)


def _notation(style: NotationStyle) -> _Spelling:
    notation = style.values
    before, _, after = arguments_text(style, {INPUT: _PLACE_TEXT}).partition(_PLACE_TEXT)
    ends = (notation.guard,) if notation.guard else ()
    return _Spelling(ebnf.literal(before), ebnf.literal(after), escaped=notation.escaped, ends=ends)
