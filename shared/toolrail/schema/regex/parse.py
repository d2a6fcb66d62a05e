"""ECMA-262 regular expressions (with the `u` flag's view of characters) to `syntax.Regex`.

JSON Schema's `pattern` is such an expression. What no automaton of moderate size can match
(back references, look-behind, look-ahead inside an expression, word boundaries, Unicode properties)
is refused with its name, and so is what is not a regular expression. Groups' names and laziness
mean nothing to whether a text matches.

Source: ECMA-262, *Patterns* and annex B.1.2, as far as JSON Schema's users write them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from toolrail.schema.regex.charset import (
    ANY,
    DIGIT,
    LINE_END,
    NONE,
    SPACE,
    WORD,
    CharSet,
    charset,
    of,
)
from toolrail.schema.regex.syntax import (
    EMPTY,
    END,
    START,
    Alt,
    Chars,
    Look,
    Node,
    Regex,
    Repeat,
    sequence,
)

MAX_GROUP_DEPTH: Final = 20
MAX_REPEAT: Final = 100_000
_CLASSES: Final = {
    "d": DIGIT,
    "D": ~DIGIT,
    "w": WORD,
    "W": ~WORD,
    "s": SPACE,
    "S": ~SPACE,
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "0": "\0"}
_UNHELD: Final = {
    **dict.fromkeys("bB", "word boundary"),
    **dict.fromkeys("pP", "Unicode property"),
    **dict.fromkeys("123456789k", "back reference"),
}


@dataclass(frozen=True, slots=True)
class Dialect:
    r"""What of expressions differs between languages.

    Attributes:
        classes: the characters of `\d`, `\w` and so on.
        dot: those of a dot.
        lenient: whether what means nothing is read as characters (annex B), as a browser does.
        fold: what a set of characters is when case is ignored; None: it counts.
    """

    classes: Mapping[str, CharSet]
    dot: CharSet
    lenient: bool = False
    fold: Callable[[CharSet], CharSet] | None = None

    def folded(self, chars: CharSet) -> CharSet:
        """The set, with the other cases of its characters where case is ignored."""
        return self.fold(chars) if self.fold is not None else chars


ECMA: Final = Dialect(_CLASSES, ANY - LINE_END, lenient=True)
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_REFUSED_GROUPS: Final = {
    "?<=": "look-behind",
    "?<!": "look-behind",
    "?=": "look-ahead inside the expression",
    "?!": "look-ahead inside the expression",
}


class RegexError(Exception):
    """The expression is not one, or needs more than an automaton.

    Attributes:
        feature: what it uses (`back reference`), or what is wrong with it.
        is_valid: whether it is a regular expression all the same.
    """

    def __init__(self, feature: str, *, is_valid: bool) -> None:
        super().__init__(feature)
        self.feature = feature
        self.is_valid = is_valid


def parse(pattern: str, dialect: Dialect = ECMA) -> Regex:
    """The expression. O(length). Raises RegexError."""
    return _Parser(pattern, dialect).regex()


def _broken(what: str) -> RegexError:
    return RegexError(what, is_valid=False)


def _unheld(what: str) -> RegexError:
    return RegexError(what, is_valid=True)


class _Parser:
    def __init__(self, pattern: str, dialect: Dialect) -> None:
        self._text = pattern
        self._dialect = dialect
        self._at = 0
        self._depth = 0

    def regex(self) -> Regex:
        leading_start = self._eat("^")
        looks: list[Look] = []
        while self._text.startswith(("(?=", "(?!"), self._at):
            negative = self._text[self._at + 2] == "!"
            self._at += 3
            looks.append(Look(self._group_body(), negative))
            if self._peek() in "*+?{":
                raise _unheld("repeated look-ahead")
        if looks and not leading_start:
            # It would have to be met wherever the rest is found.
            raise _unheld("look-ahead of an expression without ^")
        node = self._alternatives()
        if self._at < len(self._text):
            raise _broken("unmatched )")
        if leading_start and isinstance(node, Alt):
            if looks:
                raise _unheld("look-ahead in one of several alternatives")
            first, *others = node.options
            return Regex(Alt((sequence(START, first), *others)))
        return Regex(sequence(START, node) if leading_start else node, tuple(looks))

    def _peek(self) -> str:
        # "\0" at the end: no operator.
        return self._text[self._at] if self._at < len(self._text) else "\0"

    def _eat(self, literal: str) -> bool:
        if not self._text.startswith(literal, self._at):
            return False
        self._at += len(literal)
        return True

    def _alternatives(self) -> Node:
        options = [self._sequence()]
        while self._eat("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Alt(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._peek() not in "|)":
            part = self._atom()
            parts.append(self._repeated(part))
        return sequence(*parts) if parts else EMPTY

    def _atom(self) -> Node:
        character = self._text[self._at]
        self._at += 1
        if character in "^$":
            return START if character == "^" else END
        if character == "(":
            return self._group()
        if character in "*+?":
            raise _broken(f"nothing to repeat before {character}")
        if character == "[":
            return Chars(self._class())
        if character == "\\":
            return Chars(self._escape(in_class=False))
        dialect = self._dialect
        return Chars(dialect.dot if character == "." else dialect.folded(of(character)))

    def _group(self) -> Node:
        for opener, feature in _REFUSED_GROUPS.items():
            if self._text.startswith(opener, self._at):
                raise _unheld(feature)
        if not self._eat("?:") and self._eat("?"):
            if not self._eat("<") and (self._dialect.lenient or not self._eat("P<")):
                raise _broken("unknown group")
            name_end = self._text.find(">", self._at)
            if name_end <= self._at:
                raise _broken("group without a name")
            self._at = name_end + 1
        return self._group_body()

    def _group_body(self) -> Node:
        self._depth += 1
        if self._depth > MAX_GROUP_DEPTH:
            raise _unheld(f"groups nested more than {MAX_GROUP_DEPTH} deep")
        node = self._alternatives()
        if not self._eat(")"):
            raise _broken("missing )")
        self._depth -= 1
        return node

    def _repeated(self, node: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        if node in (START, END):
            raise _broken("nothing to repeat after an anchor")
        self._eat("?")  # laziness does not change what matches
        if self._peek() in "*+?" or self._looks_like_bounds():
            raise _broken("nothing to repeat")
        low, high = bounds
        if high is not None and low > high:
            raise _broken("bounds of a repeat out of order")
        if max(low, high or 0) > MAX_REPEAT:
            raise _unheld(f"a repeat of more than {MAX_REPEAT}")
        return EMPTY if high == 0 else Repeat(node, low, high)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._eat("*"):
            return 0, None
        if self._eat("+"):
            return 1, None
        if self._eat("?"):
            return 0, 1
        if not self._looks_like_bounds():
            return None
        end = self._text.index("}", self._at)
        first, comma, second = self._text[self._at + 1 : end].partition(",")
        self._at = end + 1
        low = int(first[:9])
        return (low, int(second[:9]) if second else None) if comma else (low, low)

    def _looks_like_bounds(self) -> bool:
        """`{` opens bounds only in the forms {n} {n,} {n,m}; else it is a character (annex B)."""
        if self._peek() != "{":
            return False
        end = self._text.find("}", self._at)
        first, comma, second = self._text[self._at + 1 : end].partition(",")
        if end < 0 or not _is_number(first):
            if end > 0 and not self._dialect.lenient and not first and _is_number(second):
                raise _unheld("bounds without the lower one")
            return False
        return not comma or second == "" or _is_number(second)

    def _class(self) -> CharSet:
        negated = self._eat("^")
        members = NONE
        if not self._dialect.lenient and self._eat("]"):
            members = of("]")  # at its beginning it ends nothing
        while not self._eat("]"):
            if not self._dialect.lenient and self._text.startswith(("[:", "&&"), self._at):
                raise _unheld("class inside a class")
            low = self._class_member(negated=negated)
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                members |= _range(low, self._class_member(negated=negated))
            else:
                members |= low
        members = self._dialect.folded(members)
        return ~members if negated else members

    def _class_member(self, *, negated: bool) -> CharSet:
        if self._at >= len(self._text):
            raise _broken("missing ]")
        character = self._text[self._at]
        self._at += 1
        if character != "\\":
            return of(character)
        letter = self._text[self._at : self._at + 1]
        if negated and letter in self._dialect.classes:
            # Where a class is a lower bound, its complement is made of the bound of the other.
            self._at += 1
            return ~self._dialect.classes[letter.swapcase()]
        return self._escape(in_class=True)

    def _escape(self, *, in_class: bool) -> CharSet:
        if self._at >= len(self._text):
            raise _broken("\\ at the end")
        character = self._text[self._at]
        self._at += 1
        if character in ("xuc" if self._dialect.lenient else "xu"):
            return self._dialect.folded(self._coded(character))
        if character == "0" and self._peek().isdigit():
            raise _unheld("octal escape")
        if character in _UNHELD and not (in_class and character in "bk"):
            raise _unheld(_UNHELD[character])
        if in_class and character == "b":
            return of("\b")
        found = self._dialect.classes.get(character)
        if found is not None:
            return found
        if character not in _CONTROLS and not self._dialect.lenient and character.isalnum():
            raise _unheld(f"escape \\{character}")
        return self._dialect.folded(of(_CONTROLS.get(character, character)))

    def _coded(self, kind: str) -> CharSet:
        if kind == "c":
            letter = self._peek()
            if not (letter.isascii() and letter.isalpha()):
                return of("\\c")
            self._at += 1
            return of(chr(ord(letter) % 32))
        if kind == "u" and self._peek() == "{":
            end = self._text.find("}", self._at)
            digits = self._text[self._at + 1 : end]
            code = _code(digits) if end > 0 and digits else None
            if code is None or code > 0x10FFFF:
                raise _broken("bad \\u{...}")
            self._at = end + 1
            return charset([(code, code)])
        width = 2 if kind == "x" else 4
        code = _code(self._text[self._at : self._at + width])
        if code is None or self._at + width > len(self._text):
            if not self._dialect.lenient:
                raise _broken(f"bad \\{kind}")
            return of(kind)  # annex B: an incomplete escape is the letter
        self._at += width
        if 0xD800 <= code <= 0xDBFF:
            code = self._low_surrogate(code)
        return charset([(code, code)])

    def _low_surrogate(self, high: int) -> int:
        """The character that two escapes make, the first of them `high`; else that half alone."""
        if not self._text.startswith("\\u", self._at):
            return high
        low = _code(self._text[self._at + 2 : self._at + 6])
        if low is None or not 0xDC00 <= low <= 0xDFFF:
            return high
        self._at += 6
        return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)


def _range(low: CharSet, high: CharSet) -> CharSet:
    if len(low.ranges) != 1 or len(high.ranges) != 1 or _is_wide(low) or _is_wide(high):
        return low | high | of("-")  # annex B: `[\w-x]`
    first, last = low.ranges[0][0], high.ranges[0][0]
    if first > last:
        raise _broken("range out of order in a class")
    return charset([(first, last)])


def _is_wide(chars: CharSet) -> bool:
    return chars.ranges[0][0] != chars.ranges[0][1]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _code(digits: str) -> int | None:
    return int(digits, 16) if digits and _HEX.issuperset(digits) and len(digits) <= 8 else None
