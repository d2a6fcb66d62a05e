"""The free part of a walk: readable tokens at random, as the grammar and the request allow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from services.worker.scripted.closing import Closing
from services.worker.scripted.lexicon import Lexicon
from services.worker.scripted.trail import Trail
from toolrail.messages import Sampling

CERTAIN_BIAS: Final = 20.0
"""A `logit_bias` from which a token always comes where it may; below it, that share of the time."""

BANNED_BIAS: Final = -50.0

_END_OF_STRUCTURE: Final = 0.7
_END_OF_TEXT: Final = 0.12
_LEAVE_TEXT: Final = 0.3
_MOST_OF_A_GROUP: Final = 0.8
_WORDS_TRIED: Final = 32
_DIGITS: Final = frozenset(b"0123456789")

# How often a beginning is taken where several may follow; 1 where it is not listed.
_WEIGHTS: Final = {**dict.fromkeys(b"{[", 0.3), **dict.fromkeys(b"-+.eE", 0.1)}
_NEXT_DIGIT_WEIGHT: Final = 0.4


class Pen:
    """Writes at random. `rng` decides everything, so equal seeds write equal texts."""

    def __init__(
        self, closing: Closing, lexicon: Lexicon, rng: random.Random, sampling: Sampling
    ) -> None:
        self._closing = closing
        self._lexicon = lexicon
        self._rng = rng
        self._min_tokens = sampling.min_tokens
        biases = sampling.logit_bias or {}
        self._wanted = sorted(
            ((bias, token_id) for token_id, bias in biases.items() if bias > 0), reverse=True
        )
        self._banned = {token_id for token_id, bias in biases.items() if bias <= BANNED_BIAS}
        self._choices_left = 0
        self._words = 0
        self._sealed = False

    def write(self, trail: Trail, choices: int, limit: int) -> None:
        """Go on with `trail` until it is over, has `limit` ids, or `choices` were made."""
        self._choices_left = choices
        while self._choices_left > 0 and len(trail.ids) < limit and not trail.over:
            if not trail.push(*self._move(trail)):
                return

    def _move(self, trail: Trail) -> Sequence[int]:
        for bias, token_id in self._wanted:
            if trail.allows(token_id) and self._rng.random() * CERTAIN_BIAS < bias:
                self._choices_left -= 1
                return (token_id,)
        wide = trail.wide
        if trail.can_end and len(trail.ids) >= max(self._min_tokens, 1):
            ends = (_END_OF_TEXT if self._words else 0.0) if wide else _END_OF_STRUCTURE
            if self._rng.random() < ends:
                return (self._closing.end_of_text,)
        if wide:
            self._choices_left -= 1
            return self._text(trail)
        self._words, self._sealed = 0, False
        return (self._choice(trail),)

    def _text(self, trail: Trail) -> Sequence[int]:
        """A word, or after some words the way out of this text."""
        if self._words and not self._sealed and self._rng.random() < _LEAVE_TEXT:
            way_out = self._closing.exit(trail)
            if way_out is not None:
                self._words = 0
                return way_out
            self._sealed = True  # the search is costly, and the next word will not open a way
        self._words += 1
        lexicon = self._lexicon
        for _ in range(_WORDS_TRIED):
            word = self._rng.choice(lexicon.first_words if self._words == 1 else lexicon.words)
            if trail.allows(word) and word not in self._banned:
                return (word,)
        return self._closing.exit(trail) or (self._choice(trail),)

    def _choice(self, trail: Trail) -> int:
        """One of the few ids that may follow: first how it begins, then which."""
        tokens, blank = self._lexicon.tokens, self._lexicon.blank
        groups: dict[int, list[int]] = {}
        choices = trail.choices()
        self._choices_left -= len(choices) > 1
        for token_id in choices:
            if token_id not in blank and token_id not in self._banned:
                groups.setdefault(tokens[token_id][0], []).append(token_id)
        if not groups:
            order = self._lexicon.closing.position
            return min(choices, key=order.__getitem__, default=self._closing.end_of_text)
        in_number = bool(trail.ids) and tokens[trail.ids[-1]][-1:].isdigit()
        starts = sorted(groups)
        weights = [self._weight(start, in_number=in_number) for start in starts]
        (start,) = self._rng.choices(starts, weights)
        return self._of_group(groups[start], start)

    def _weight(self, start: int, *, in_number: bool) -> float:
        if in_number and start in _DIGITS:
            return _NEXT_DIGIT_WEIGHT
        return _WEIGHTS.get(start, 1.0)

    def _of_group(self, group: Sequence[int], start: int) -> int:
        tokens = self._lexicon.tokens

        def length(token_id: int) -> int:
            return len(tokens[token_id])

        if start in b'">':
            return min(group, key=length)  # a longer one is an empty string, or text
        plain = [
            token_id
            for token_id in group
            if token_id not in self._lexicon.opening and b'"' not in tokens[token_id][:-1]
        ]
        if self._rng.random() < _MOST_OF_A_GROUP:
            return max(plain or group, key=length)
        return self._rng.choice(plain or group)
