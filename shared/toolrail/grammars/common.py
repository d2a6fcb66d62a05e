r"""The terminals of Lark's library `common`, by their usual names.

Each matches what Lark's matches, less what only a lexer can say: a string ends at its first quote
that is not escaped.

Source: https://github.com/lark-parser/lark/blob/1.2.2/lark/grammars/common.lark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_NATURAL: Final = "[0-9]+"
_SIGN: Final = "[+-]?"
_DECIMAL: Final = r"(?:[0-9]+\.[0-9]*|\.[0-9]+)"
_FLOAT: Final = rf"(?:[0-9]+[eE]{_SIGN}[0-9]+|{_DECIMAL}(?:[eE]{_SIGN}[0-9]+)?)"
_NUMBER: Final = f"(?:{_FLOAT}|{_NATURAL})"

COMMON: Final[Mapping[str, str]] = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9a-fA-F]",
    "INT": _NATURAL,
    "SIGNED_INT": _SIGN + _NATURAL,
    "DECIMAL": _DECIMAL,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": _SIGN + _FLOAT,
    "NUMBER": _NUMBER,
    "SIGNED_NUMBER": _SIGN + _NUMBER,
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[A-Za-z_][A-Za-z0-9_]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*(?:[^*]|\*+[^*/])*\*+/",
    "SQL_COMMENT": r"--[^\n]*",
}
"""Regular expressions."""
