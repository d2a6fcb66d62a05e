"""Grammars that requests declare for text (Lark, regular expressions), read into one form.

The form (`model`) is context-free over regular expressions, character by character: there is no
lexer, so priorities of terminals mean nothing and a terminal need not take the longest match. What
a grammar of that kind cannot say is refused with the reason. How it is written for the engine, in
each family's notation, is `toolrail.structural_tag.inputs`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from toolrail.grammars.lark import read_lark
from toolrail.grammars.model import Grammar, Leaf, UnheldGrammarError, total_weight
from toolrail.grammars.patterns import whole_match
from toolrail.grammars.readings import few_readings
from toolrail.tools import InputGrammar

MAX_PARTS: Final = 20_000
"""Parts of a grammar: characters, sets, groups, bounds of repeats written out."""

__all__ = ["MAX_PARTS", "UnheldGrammarError", "read"]


@lru_cache(maxsize=64)
def read(declared: InputGrammar) -> Grammar:
    """The grammar that a tool declares. O(length).

    Raises:
        UnheldGrammarError: it is none, too large, or says what no such grammar can.
    """
    if declared.syntax == "lark":
        grammar = read_lark(declared.definition)
    else:
        grammar = Grammar({"start": Leaf(whole_match(declared.definition))}, "start")
    if total_weight(grammar) > MAX_PARTS:
        raise UnheldGrammarError(f"it has more than {MAX_PARTS:,} parts")
    return few_readings(grammar)
