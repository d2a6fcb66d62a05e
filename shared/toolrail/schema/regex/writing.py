"""A node as a regular expression that the grammar engine reads, over the bytes of the wire.

On the wire a text is either raw, or inside a JSON string, where quotes, backslashes and control
characters are written as escapes. The engine applies an expression to the wire's text and knows no
escapes, so they are spelt out here.

Its dialect is used sparingly: literals, positive classes, groups, bars, `*`, `+`, `?` and bounds.
Two habits of xgrammar 0.2.8 shape the result:

- An expression of printable ASCII inside a JSON string goes through an automaton that cannot
  write an escape and that multiplies by bounds. Any other character in it, here a DEL repeated zero
  times, sends it through the grammar, where classes and bounds are cheap.
- The masks of a token that crosses a group's end are computed at each step. A class under `*`, with
  the rare escapes in a loop around it, costs microseconds a token where the plain alternative
  `(class|escape)*` costs tens of milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, assert_never

from toolrail.schema.regex.charset import ANY, CharSet, charset, of
from toolrail.schema.regex.syntax import Alt, Chars, Edge, Node, Repeat, Seq

_THROUGH_GRAMMAR: Final = "\x7f{0}"
_ESCAPED: Final = of('"\\') | charset([(0, 0x1F)])
"""What JSON may not hold as it is."""
_SHORT: Final = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_OPERATORS: Final = frozenset("\\^$.*+?()[]{}|/-")
_RAW: Final = ANY - charset([(0, 0)])  # the engine takes no NUL


@dataclass(frozen=True, slots=True)
class Written:
    """An expression for the engine.

    Attributes:
        pattern: it matches whole texts of the wire.
        narrowed: it leaves out texts that need an escape, where keeping them would be too costly.
    """

    pattern: str
    narrowed: bool


def written(node: Node, *, json_string: bool) -> Written:
    """The node (without anchors) as the value of the engine's `pattern`."""
    writer = _Writer(json_string=json_string)
    body = writer.node(node)
    return Written(f"^{body}{_THROUGH_GRAMMAR}$", writer.narrowed)


class _Writer:
    def __init__(self, *, json_string: bool) -> None:
        self._json_string = json_string
        self._repeated = 0
        self.narrowed = False

    def node(self, node: Node) -> str:
        """The node as something that may stand in a sequence."""
        match node:
            case Chars(chars):
                return self._one(chars)
            case Edge():
                return ""
            case Seq(parts):
                return "".join(map(self.node, parts))
            case Alt(options):
                return "(" + "|".join(map(self.node, options)) + ")"
            case Repeat(Chars(chars), low, high):
                return self._many(chars, low, high)
            case Repeat(inner, low, high):
                self._repeated += 1
                body = self.node(inner)
                self._repeated -= 1
                return f"({body}){_bounds(low, high)}"
            case _:
                assert_never(node)

    def _one(self, chars: CharSet) -> str:
        plain, escapes = self._split(chars)
        return f"({plain}|{escapes})" if plain and escapes else plain or escapes

    def _many(self, chars: CharSet, low: int, high: int | None) -> str:
        plain, escapes = self._split(chars)
        if not escapes:
            return plain + _bounds(low, high)
        if not plain:
            return f"({escapes}){_bounds(low, high)}"
        anything = f"{plain}*({escapes}{plain}*)*"
        if high is None and low <= 1:
            return anything if low == 0 else f"({plain}|{escapes}){anything}"
        self.narrowed = True
        if high is None:
            return plain + _bounds(low, low) + anything
        return plain + _bounds(low, high)

    def _split(self, chars: CharSet) -> tuple[str, str]:
        """The class of the characters written as they are, and the escapes of the others."""
        if not self._json_string:
            return _class(chars & _RAW), ""
        plain = _class(chars - _ESCAPED)
        if plain and self._repeated and chars & _ESCAPED:
            # An escape in a loop in a loop is paid for at every step.
            self.narrowed = True
            return plain, ""
        short = [letter for character, letter in _SHORT.items() if character in chars]
        escapes = [_class(of("".join(short)))] if short else []
        for low, high in (chars & charset([(0, 0x1F)]) - of("\b\f\n\r\t")).ranges:
            escapes.extend(f"u00{code:02x}" for code in range(low, high + 1))
        if len(escapes) > 1:
            # Control characters other than these are too rare to pay for.
            escapes, self.narrowed = escapes[:1] if short else escapes, self.narrowed or not short
        if not escapes:
            return plain, ""
        body = escapes[0] if len(escapes) == 1 else f"({'|'.join(escapes)})"
        return plain, f"\\\\{body}"


def _bounds(low: int, high: int | None) -> str:
    if (low, high) == (1, 1):
        return ""
    if high is None and low <= 1:
        return "*" if low == 0 else "+"
    if (low, high) == (0, 1):
        return "?"
    return f"{{{low},{'' if high is None else high}}}" if low != high else f"{{{low}}}"


def _class(chars: CharSet) -> str:
    """The set as a class, or as one literal; "" for the empty set."""
    if not chars:
        return ""
    if len(chars.ranges) == 1 and chars.ranges[0][0] == chars.ranges[0][1]:
        return _literal(chars.ranges[0][0])
    return "[" + "".join(_span(low, high) for low, high in chars.ranges) + "]"


def _span(low: int, high: int) -> str:
    if low == high:
        return _literal(low)
    return f"{_literal(low)}-{_literal(high)}"


def _literal(code: int) -> str:
    character = chr(code)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if code >= 0x80:
        return f"\\u{{{code:x}}}"
    return "\\" + character if character in _OPERATORS else character
