"""A vocabulary as a walk sees it: which tokens are words, which close things, which to avoid."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

_WORD: Final = re.compile(rb" [a-z]{3,9}")
_FIRST_WORD: Final = re.compile(rb"[A-Z][a-z]{2,8}")
_CLOSERS_ONLY: Final = re.compile(rb"[\"'}\])>\s]+")
_LETTERS: Final = re.compile(rb" ?[A-Za-z]+")
_CLOSER: Final = re.compile(rb"[\"'}\])>]{1,4}")
# The grammar engine lets some of these into strings, where JSON forbids them (xgrammar 0.2.8).
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
# After its first byte: something that opens more, or a string that is begun and not ended at once.
_OPENS_MORE: Final = re.compile(rb".+?(?:[,{\[<]|[\"'][^\"}\]:,])", re.DOTALL)

# What a token's first byte says of the way to the end: lower is nearer.
_RANKS: Final = {
    **dict.fromkeys(b"}])", 0),
    **dict.fromkeys(b"<", 1),
    **dict.fromkeys(b"0123456789", 2),
    **dict.fromkeys(b"tfnTFN", 3),
    **dict.fromkeys(b"\"'", 4),
    **dict.fromkeys(b"[{", 6),
    **dict.fromkeys(b",", 7),
    **dict.fromkeys(b"-+.", 9),
    **dict.fromkeys(b" \t\r\n", 10),
}
_OTHER_RANK: Final = 5
_DIGIT_RANK: Final = 2
_NEXT_DIGIT_RANK: Final = 8
_BLANK_RANK: Final = 11


class Order:
    """All tokens, those first that are likely to lead to the end of a structure soonest.

    Attributes:
        ids: the tokens in that order.
        position: where each token stands in it, by id.
    """

    def __init__(self, ranks: Sequence[tuple[int, bool, int]]) -> None:
        self.ids = sorted(range(len(ranks)), key=ranks.__getitem__)
        self.position = [0] * len(ranks)
        for position, token_id in enumerate(self.ids):
            self.position[token_id] = position


class Lexicon:
    """Token ids by what they are good for. Built once for a vocabulary, in O(its size).

    Attributes:
        tokens: bytes of every id.
        words: ids of ` word`, readable in running text.
        first_words: ids of `Word`.
        closers: ids of one to four closing quotes or brackets, shortest first.
        blank: ids with nothing to read: whitespace, control characters, half characters.
        opening: ids that open something beside what they begin with, as `:"(` does.
        closing: the order in which a structure is closed.
        going_on: orders for text that must go on, to be taken in turn: long words first, words
            with a capital, digits; then anything long.
        closing_number: the same after a digit, where more of the number leads nowhere.
    """

    def __init__(self, tokens: Sequence[bytes], special: Collection[int]) -> None:
        self.tokens = tokens
        hidden = frozenset(special)
        plain = [(token_id, data) for token_id, data in enumerate(tokens) if token_id not in hidden]
        letters = [token_id for token_id, data in plain if _LETTERS.fullmatch(data)]
        self.words = [i for i, data in plain if _WORD.fullmatch(data)] or letters
        self.first_words = [i for i, data in plain if _FIRST_WORD.fullmatch(data)] or letters
        self.closers = sorted(
            (token_id for token_id, data in plain if _CLOSER.fullmatch(data)),
            key=lambda token_id: (len(tokens[token_id]), tokens[token_id]),
        )
        self.blank = frozenset(
            token_id
            for token_id, data in plain
            if not data.strip() or not data.isascii() or _CONTROL.search(data)
        )
        self.opening = frozenset(
            token_id for token_id, data in plain if _OPENS_MORE.match(data) is not None
        )
        digits = [token_id for token_id, data in plain if data.isdigit()]
        self.going_on = [
            self._longest_first(*kinds)
            for kinds in (
                (self.words, self.first_words),
                (self.first_words, self.words),
                (digits, self.words),
            )
        ]
        self.closing = Order([self._rank(token_id) for token_id in range(len(tokens))])
        self.closing_number = Order(
            [self._rank(token_id, in_number=True) for token_id in range(len(tokens))]
        )

    def _longest_first(self, best: Collection[int], next_best: Collection[int]) -> Order:
        ranks = dict.fromkeys(next_best, 1) | dict.fromkeys(best, 0)
        return Order([(ranks.get(i, 2), False, -len(data)) for i, data in enumerate(self.tokens)])

    def _rank(self, token_id: int, *, in_number: bool = False) -> tuple[int, bool, int]:
        data = self.tokens[token_id]
        if not data or token_id in self.blank:
            return (_BLANK_RANK, data[:1] != b"\n", len(data))
        rank = _RANKS.get(data[0], _OTHER_RANK)
        if in_number and (rank == _DIGIT_RANK or data[0] in b"eE"):
            rank = _NEXT_DIGIT_RANK
        if rank in (_DIGIT_RANK, _NEXT_DIGIT_RANK):
            # One digit is enough of a number, and of dates and times only 1 is right everywhere.
            return (rank, data[:1] != b"1", len(data))
        if data[:1] == b">":
            return (rank, False, len(data))  # it ends a tag, and a second one would be text
        opens = token_id in self.opening or (rank == 0 and not _CLOSERS_ONLY.fullmatch(data))
        return (rank, opens, -len(data))  # the longest makes most way
