"""Texts drawn at random from a compiled tag, over characters and some words of the grammar."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.families.walking import tag_json
from toolrail.grammar import Matcher, Vocabulary, compile_tag
from toolrail.structural_tag import TagFormat

_MAX_TOKENS = 300
_LATE = 30
_CHARACTERS = ["\n", "\t", *map(chr, range(32, 127)), "é", "東", "😀"]
_ESCAPES = ["\\n", '\\"', "\\\\", "\\t"]


class Drawing:
    """Draws texts; `words` come more often than characters, and `ends` once it is late."""

    def __init__(self, words: Sequence[str], ends: Sequence[str] = ()) -> None:
        words = [word for word in words if word]
        letters = sorted({c for word in words for c in word})
        texts = list(dict.fromkeys([*words, *ends, *_ESCAPES, *_CHARACTERS, *letters]))
        self._tokens = [text.encode() for text in texts]
        self._words = frozenset(range(len({*words, *ends}) + len(_ESCAPES)))
        self._ends = frozenset(texts.index(end) for end in ends)
        self._stop = len(texts)
        self._vocabulary = Vocabulary([*self._tokens, b"<end>"], (self._stop,))

    def texts(self, tag: TagFormat, count: int, seed: str) -> list[str]:
        """As many texts of a tag; a draw that wanders too long is made again."""
        compiled = compile_tag(tag_json(tag), self._vocabulary)
        random_ = random.Random(seed)
        found = (self._one(Matcher(compiled), random_) for _ in range(8 * count))
        return [text for text in found if text is not None][:count]

    def _one(self, matcher: Matcher, random_: random.Random) -> str | None:
        out: list[bytes] = []
        for step in range(_MAX_TOKENS):
            allowed = matcher.allowed_ids()
            if self._stop in allowed and (len(allowed) == 1 or random_.random() < 0.3):
                return b"".join(out).decode()
            ends = [token for token in allowed if token in self._ends]
            words = [token for token in allowed if token in self._words]
            others = [token for token in allowed if token != self._stop]
            if ends and step > _LATE and random_.random() < 0.5:
                pool = ends
            else:
                pool = words if words and random_.random() < 0.5 else others
            token = random_.choice(pool)
            assert matcher.accept_token(token)
            out.append(self._tokens[token])
        return None
