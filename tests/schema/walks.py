"""Random texts that a grammar takes, found by walking it."""

from __future__ import annotations

import json
import random

from toolrail.grammar import GrammarError, Matcher, Vocabulary

_WORDS = (b'"a"', b'"b"', b'"ab"', b'":', b"null", b"true")
_TOKENS = [b"<end>", *(bytes((byte,)) for byte in range(256)), *_WORDS]
VOCABULARY = Vocabulary([b"", *_TOKENS[1:]], ())
_QUIET = frozenset(b'}]",')
"""Bytes that lead to an end: preferred when a text grows long."""


def walk(schema: object, seed: int, steps: int = 120) -> str | None:
    """A text that the grammar of a schema takes; None if the walk does not end in time."""
    content = {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": 1}
    compiled = VOCABULARY.compile(json.dumps({"type": "structural_tag", "format": content}))
    matcher = Matcher(compiled)
    chance = random.Random(seed)
    text = bytearray()
    for step in range(steps):
        if matcher.can_end and (chance.random() < 0.5 or step > steps // 2):
            return text.decode(errors="replace")
        allowed = matcher.allowed_ids()
        if not allowed:
            break
        closing = [t for t in allowed if len(_TOKENS[t]) == 1 and _TOKENS[t][0] in _QUIET]
        plain = [t for t in allowed if len(_TOKENS[t]) > 1 or 0x20 <= _TOKENS[t][0] < 0x7F]
        if closing and step > steps // 3:
            pool = closing
        else:
            pool = plain if plain and chance.random() < 0.9 else allowed
        token = chance.choice(pool)
        if not matcher.accept_token(token):
            raise GrammarError(f"an allowed token is refused: {_TOKENS[token]!r}")
        text += _TOKENS[token]
    return text.decode(errors="replace") if matcher.can_end else None
