"""Pieces of the grammar engine's EBNF: literals, classes, expressions, ranges of numbers.

Every function returns an expression that may stand in a sequence. Tried on xgrammar 0.2.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, assert_never

from toolrail.schema.regex.charset import ANY, CharSet, charset, of
from toolrail.schema.regex.syntax import Alt, Chars, Edge, Node, Repeat, Seq
from toolrail.syntax import Notation

EMPTY: Final = '""'
DIGITS: Final = "[0-9]"
INTEGER: Final = '("0" | "-"? [1-9] [0-9]*)'
NUMBER: Final = '"-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+\\u002d]? [0-9]+)?'
ESCAPED: Final = of('"\\') | charset([(0, 0x1F)])
"""What may not stand as it is in a string with JSON's escapes."""
_SHORT: Final = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_BACKSLASH: Final = "\\"
_NUL: Final = charset([(0, 0)])  # the engine takes none


def literal(text: str) -> str:
    """Exactly `text`."""
    return '"' + "".join(map(_character, text)) + '"'


def _character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return _code(ord(character)) if character < " " or character == "\x7f" else character


def loose(text: str) -> str:
    """`text`, each space of which may be left out."""
    parts = [literal(part) for part in text.split(" ")]
    return joined(parts[0], *(part for after in parts[1:] for part in ('" "?', after)))


def character_class(chars: CharSet) -> str:
    """One character of the set, which is not empty."""
    spans = (
        _code(low) if low == high else f"{_code(low)}-{_code(high)}"
        for low, high in (chars - _NUL).ranges
    )
    return f"[{''.join(spans)}]"


def _code(code: int) -> str:
    # Not `\\x2e`: the engine takes the digits that follow for more of it.
    if code < 0x80 and chr(code).isalnum():
        return chr(code)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def joined(*parts: str) -> str:
    """One after the other; what is empty is left out."""
    return " ".join(part for part in parts if part not in ("", EMPTY)) or EMPTY


def quoted(quote: str, body: str) -> str:
    """`body` between two quotes."""
    return joined(literal(quote), body, literal(quote))


def either(options: Sequence[str]) -> str:
    """One of them."""
    return options[0] if len(options) == 1 else f"({' | '.join(options)})"


def repeated(expression: str, low: int, high: int | None) -> str:
    """`expression` that often."""
    if (low, high) == (1, 1):
        return expression
    counts = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    bounds = f"{{{low},{'' if high is None else high}}}"
    return f"({expression}){counts.get((low, high), bounds)}"


def any_text(notation: Notation, quote: str) -> str:
    """The body of a rule: any text between two quotes of a notation."""
    if not notation.escaped:
        return without(notation.guard)
    guard = notation.guard
    ends = of(quote + _BACKSLASH + guard[:1]) | charset([(0, 0x1F)])
    plain = character_class(ANY - ends)
    if not guard:
        return f"{plain}* ({escape(quote)} {plain}*)*"
    # The guard begins with two different characters: the second never follows the first.
    first = literal(guard[0])
    after = character_class(ANY - ends - of(guard[1]))
    escaped = escape(quote)
    return f"{plain}* (({escaped} | {first}+ ({after} | {escaped})) {plain}*)* {first}*"


def escape(quote: str) -> str:
    """A short escape inside a string."""
    return f"{literal(_BACKSLASH)} {character_class(of('bfnrt' + quote + _BACKSLASH))}"


def without(text: str) -> str:
    """The body of a rule: any text in which `text` does not occur."""
    return without_any((text,))


def without_any(texts: Sequence[str]) -> str:
    """The body of a rule: any text in which none of `texts` occurs."""
    excluded = ", ".join(map(literal, texts))
    return f"TagDispatch(loop_after_dispatch=false, excludes=({excluded}))"


def expression(node: Node, *, escaped: bool) -> str:  # noqa: PLR0911 - one for each kind of node
    """The texts of a regular expression without anchors; `escaped`: as JSON's strings write them.

    Of the characters that need an escape those with a short one are kept, except where a bound
    counts them: an engine pays too much for an alternative that it must count.
    """
    match node:
        case Chars(chars):
            return _one(chars, escaped=escaped)
        case Edge():
            return EMPTY
        case Seq(parts):
            return joined(*(expression(part, escaped=escaped) for part in parts))
        case Alt(options):
            return either([expression(option, escaped=escaped) for option in options])
        case Repeat(_, _, 0):
            return EMPTY
        case Repeat(Chars(chars), low, high) if escaped:
            return _many(chars, low, high)
        case Repeat(inner, low, high):
            return repeated(expression(inner, escaped=escaped), low, high)
        case _:
            assert_never(node)


def _one(chars: CharSet, *, escaped: bool) -> str:
    plain, escapes = _split(chars) if escaped else (character_class(chars), "")
    return either([part for part in (plain, escapes) if part])


def _many(chars: CharSet, low: int, high: int | None) -> str:
    plain, escapes = _split(chars)
    if not escapes or (plain and high is not None):
        return repeated(plain, low, high)
    if not plain:
        return repeated(escapes, low, high)
    anything = f"{plain}* ({escapes} {plain}*)*"
    return f"{repeated(plain, low, low)} {anything}" if low else anything


def _split(chars: CharSet) -> tuple[str, str]:
    """The class of the characters written as they are, and the escapes of others."""
    plain = chars - ESCAPED - _NUL
    short = of("".join(letter for character, letter in _SHORT.items() if character in chars))
    escapes = f'"\\\\" {character_class(short)}' if short else ""
    return character_class(plain) if plain else "", f"({escapes})" if escapes else ""


# --- numbers ---


def integers(low: int | None, high: int | None) -> str | None:
    """The whole numbers of a range, None: without end. None: there is no such number."""
    options: list[str] = []
    if low is None or low < 0:
        top = None if low is None else -low
        options += (f'"-" {part}' for part in _naturals(max(1, -(high or 0)), top))
    if (low is None or low <= 0) and (high is None or high >= 0):
        options.append('"0"')
    if high is None or high > 0:
        options += _naturals(max(1, low or 1), high)
    return either(options) if options else None


def decimals(
    low: int | None, high: int | None, *, low_open: bool = False, high_open: bool = False
) -> str | None:
    """The numbers of a range with whole bounds, without exponents; `open`: less the bound."""
    options: list[str] = []
    if low is None or low < 0:
        top = None if low is None else -low
        least = max(0, -high) if high is not None else 0
        is_open = least == 0 or (high_open and high == -least)
        options += (
            f'"-" {part}'
            for part in _magnitudes(least, top, least_open=is_open, most_open=low_open)
        )
    if high is None or high >= 0:
        least = max(0, low or 0)
        is_open = low_open and low == least
        options += _magnitudes(least, high, least_open=is_open, most_open=high_open)
    return either(options) if options else None


def _magnitudes(
    least: int, most: int | None, *, least_open: bool, most_open: bool
) -> Iterator[str]:
    """Numbers from `least` to `most`, both at least 0, with any digits after the point."""
    if most is not None and (least > most or (least == most and (least_open or most_open))):
        return
    if most == least:
        yield f'"{least}" ("." "0"+)?'
        return
    yield f'"{least}" "." "0"* [1-9] [0-9]*' if least_open else f'"{least}" ("." [0-9]+)?'
    between = list(_naturals(least + 1, None if most is None else most - 1))
    if between:
        yield f'{either(between)} ("." [0-9]+)?'
    if most is not None and not most_open:
        yield f'"{most}" ("." "0"+)?'


def _naturals(low: int, high: int | None) -> Iterator[str]:
    """The whole numbers of a range that begins at 1 or later."""
    if high is not None and low > high:
        return
    first = len(str(low))
    last = len(str(high)) if high is not None else first
    for length in range(first, last + 1):
        start = max(low, 10 ** (length - 1))
        end = 10**length - 1 if high is None else min(high, 10**length - 1)
        yield from _same_length(str(start), str(end))
    if high is None:
        yield f"[1-9] {repeated(DIGITS, last, None)}"


def _same_length(low: str, high: str) -> Iterable[str]:
    """Decimal texts of one length between two."""
    if not low:
        return [EMPTY]
    rest = len(low) - 1
    free = [repeated(DIGITS, rest, rest)] if rest else []
    if low[1:] == "0" * rest and high[1:] == "9" * rest:
        return [" ".join((_digit(low[0], high[0]), *free))]
    if low[0] == high[0]:
        return [f'"{low[0]}" {part}' for part in _same_length(low[1:], high[1:])]
    parts = [f'"{low[0]}" {part}' for part in _same_length(low[1:], "9" * rest)]
    middle = (chr(ord(low[0]) + 1), chr(ord(high[0]) - 1))
    if middle[0] <= middle[1]:
        parts.append(" ".join((_digit(*middle), *free)))
    parts += (f'"{high[0]}" {part}' for part in _same_length("0" * rest, high[1:]))
    return parts


def _digit(low: str, high: str) -> str:
    return f'"{low}"' if low == high else f"[{low}-{high}]"
