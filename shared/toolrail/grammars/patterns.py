r"""Regular expressions as Python and Rust read them, in the part that both read alike.

Where the two differ, or a class depends on the version of Unicode, the set is the smaller one: what
the grammar lets through, either of them matches. `\d` is ASCII; `\w` has the letters of the scripts
below; `\W`, `\D` and `\S` leave out what one of them might count otherwise.
"""

from __future__ import annotations

from typing import Final

from toolrail.grammars.model import UnheldGrammarError
from toolrail.schema.regex.anchored import whole
from toolrail.schema.regex.charset import ANY, DIGIT, WORD, CharSet, charset, of
from toolrail.schema.regex.parse import Dialect, RegexError, parse
from toolrail.schema.regex.syntax import (
    END,
    START,
    Alt,
    Chars,
    Edge,
    Node,
    Regex,
    Repeat,
    Seq,
    sequence,
)

_ASCII: Final = charset([(0, 0x7F)])
_LETTERS: Final = charset(
    [
        (0xC0, 0xD6),
        (0xD8, 0xF6),
        (0xF8, 0x2C1),
        (0x400, 0x481),
        (0x48A, 0x52F),
        (0x5D0, 0x5EA),
        (0x620, 0x64A),
        (0x3041, 0x3096),
        (0x30A1, 0x30FA),
        (0x4E00, 0x9FFF),
        (0xAC00, 0xD7A3),
    ]
)
"""Letters in blocks without gaps, in every version of Unicode."""
_MARKS: Final = charset([(0x2010, 0x2027), (0x3001, 0x3003)]) | of("×÷«»¡¿§©®°±")
"""Some characters that are neither letters, digits nor space."""
_SPACE: Final = of("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | charset(
    [(0x2000, 0x200A)]
)
_PERHAPS_SPACE: Final = _SPACE | charset([(0x1C, 0x1F)])
_CLASSES: Final = {
    "d": DIGIT,
    "D": (_ASCII - DIGIT) | _LETTERS | _MARKS | _SPACE,
    "w": WORD | _LETTERS,
    "W": (_ASCII - WORD) | _MARKS | _SPACE,
    "s": _SPACE,
    "S": ~_PERHAPS_SPACE,
}
_MAX_FOLDED: Final = 1_024
_OF_ASCII_LETTERS: Final = {"k": "\u212a", "s": "\u017f"}
"""The characters beyond ASCII that are letters of it when case is ignored."""
_LAZY: Final = ("*?", "+?", "??", "}?")


def folded(chars: CharSet) -> CharSet:
    """The characters and their other cases; of sets too large to look at, those of ASCII."""
    size = sum(high - low + 1 for low, high in chars.ranges)
    small = chars if size <= _MAX_FOLDED else chars & _ASCII
    others: list[str] = []
    for low, high in small.ranges:
        for character in map(chr, range(low, high + 1)):
            cases = (
                character.lower(),
                character.upper(),
                _OF_ASCII_LETTERS.get(character.lower(), ""),
            )
            others += [case for case in cases if len(case) == 1]
    return chars | of("".join(others))


def pattern(text: str, *, fold: bool = False, dots_all: bool = False) -> Regex:
    """The expression. Raises UnheldGrammarError."""
    dot = ANY if dots_all else ANY - of("\n")
    try:
        return parse(text, Dialect(_CLASSES, dot, fold=folded if fold else None))
    except RegexError as error:
        kind = "needs more than a grammar" if error.is_valid else "is not valid"
        raise UnheldGrammarError(f"the expression /{text[:80]}/ {kind}: {error.feature}") from None


def whole_match(text: str) -> Node:
    """The texts that an expression matches as a whole, whether it has anchors or not.

    Raises UnheldGrammarError.
    """
    found = pattern(text)
    if found.looks:
        raise UnheldGrammarError(
            f"the expression /{text[:80]}/ needs more than a grammar: look-ahead"
        )
    try:
        return whole(sequence(START, found.node, END))
    except RegexError as error:
        raise UnheldGrammarError(
            f"the expression /{text[:80]}/ needs more than a grammar: {error.feature}"
        ) from None


def terminal(text: str, flags: str) -> Node:
    """The texts of a terminal's expression: no anchors, no laziness, of which a lexer makes sense.

    Raises UnheldGrammarError.
    """
    for flag in flags:
        if flag not in "isu":
            raise UnheldGrammarError(f"the flag '{flag}' of /{text[:80]}/ is not supported")
    if _is_lazy(text):
        raise UnheldGrammarError(
            f"the expression /{text[:80]}/ has a lazy repeat: say what may not follow instead"
        )
    found = pattern(text, fold="i" in flags, dots_all="s" in flags)
    if found.looks or _has_edge(found.node):
        raise UnheldGrammarError(
            f"the expression /{text[:80]}/ has an anchor or a look-around, which a grammar lacks"
        )
    return found.node


def string(text: str, *, fold: bool) -> Node:
    """Exactly this text, or any case of it."""
    sets = (folded(of(c)) if fold else of(c) for c in text)
    return sequence(*(Chars(chars) for chars in sets)) if text else Seq(())


def _is_lazy(text: str) -> bool:
    at = 0
    in_class = False
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == "[":
            in_class = True
        elif text[at] == "]":
            in_class = False
        elif not in_class and text.startswith(_LAZY, at):
            return True
        at += 1
    return False


def _has_edge(node: Node) -> bool:
    match node:
        case Edge():
            return True
        case Chars():
            return False
        case Seq(parts) | Alt(parts):
            return any(map(_has_edge, parts))
        case Repeat(inner):
            return _has_edge(inner)
