"""The text of a Lark grammar as tokens.

Line ends matter: they end a definition unless a bar follows or a bracket is open.

Source: https://github.com/lark-parser/lark/blob/1.2.2/lark/load_grammar.py, `TERMINALS`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from toolrail.grammars.model import UnheldGrammarError

Kind: TypeAlias = Literal["name", "string", "regex", "number", "directive", "sign", "line", "end"]

_TOKEN: Final = re.compile(
    r"""
    (?P<skip>[ \t]+|//[^\n]*|\#[^\n]*)
    |(?P<line>(?:\r?\n)[\s]*)
    |(?P<directive>%[a-z_]+)
    |(?P<name>[!?]{0,2}[A-Za-z_][A-Za-z0-9_]*)
    |(?P<string>"(?:\\.|[^"\\\n])*"i?)
    |(?P<regex>/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])*/[a-z]*)
    |(?P<number>[+-]?[0-9]+)
    |(?P<sign>\.\.|->|[:|()\[\]?*+~.,{}=<>&])
    """,
    re.VERBOSE,
)
_OPENING: Final = ("(", "[")
_CLOSING: Final = (")", "]")


@dataclass(frozen=True, slots=True)
class Token:
    """A token; `text` as it is written, `line` counted from 1."""

    kind: Kind
    text: str
    line: int


def tokens(text: str) -> list[Token]:
    """All tokens, the last one the end. O(length).

    Raises:
        UnheldGrammarError: something is no token of a grammar.
    """
    found: list[Token] = []
    at, line, depth = 0, 1, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnheldGrammarError(f"line {line} cannot be read at {text[at : at + 20]!r}")
        kind, piece = str(match.lastgroup), match[0]
        if kind == "sign":
            depth += (piece in _OPENING) - (piece in _CLOSING)
        if kind != "skip" and not (kind == "line" and depth > 0):
            found.append(Token(kind, piece, line))  # pyright: ignore[reportArgumentType]: groups are kinds
        line += piece.count("\n")
        at = match.end()
    return [*_joined(found), Token("line", "\n", line), Token("end", "", line)]


def _joined(found: list[Token]) -> list[Token]:
    """Without the line ends before a bar: the alternatives go on there."""
    kept: list[Token] = []
    for token in found:
        if token.text == "|" and token.kind == "sign":
            while kept and kept[-1].kind == "line":
                kept.pop()
        kept.append(token)
    return kept


def string_value(token: Token) -> tuple[str, bool]:
    """What a string token says, and whether case is ignored.

    Raises:
        UnheldGrammarError: it has an escape that does not exist.
    """
    fold = token.text.endswith("i")
    quoted = token.text.removesuffix("i")
    try:
        return str(ast.literal_eval(quoted)), fold
    except (ValueError, SyntaxError):
        raise UnheldGrammarError(f"line {token.line}: {quoted[:40]} is no string") from None


def regex_value(token: Token) -> tuple[str, str]:
    """The expression of a regex token, slashes unescaped, and its flags."""
    body, _, flags = token.text[1:].rpartition("/")
    return body.replace("\\/", "/"), flags
