"""A walk's position in a grammar: the ids so far and what may follow them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from services.worker.scripted.lexicon import Order
from services.worker.scripted.work import Work
from toolrail.grammar import CompiledGrammar, Matcher

LITERALS_KEPT: Final = 128
"""Most literal strings of a grammar that are tried as ways out of running text."""

_WIDE_SHARE: Final = 8
"""Where more than one in so many tokens may follow, the grammar allows running text."""

_LOOK_WORK: Final = 4
"""Units of work that it takes to see all that may follow."""

_IDS_A_UNIT: Final = 64
"""Ids gone through in the time of one call of the matcher."""

_FEW: Final = 64
"""Up to so many ids are sorted; of more, those that may follow are picked out of the order."""

# A quoted string of the printed grammar, or a character class, whose quotes are none.
_LITERAL: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|\[(?:[^\]\\]|\\.)*\]')


class Trail:
    """Ids accepted one after another; the last ones can be taken back.

    Attributes:
        ids: what was accepted.
        work: what it cost so far, searches and all.
    """

    def __init__(
        self, compiled: CompiledGrammar, end_of_text: int, work: Work | None = None
    ) -> None:
        self.work = work or Work()
        self._matcher = Matcher(compiled)
        self._wide_from = compiled.vocab_size // _WIDE_SHARE
        self._end_of_text = end_of_text
        self._mask: bytes | None = None
        self._count = 0
        self.ids: list[int] = []

    @property
    def over(self) -> bool:
        """Whether the end of text was accepted."""
        return self._matcher.is_terminated

    @property
    def can_end(self) -> bool:
        """Whether the end of text may follow."""
        return self._matcher.can_end

    @property
    def wide(self) -> bool:
        """Whether running text may follow, rather than a few ways of going on."""
        self._look()
        return self._count > self._wide_from

    def allows(self, token_id: int) -> bool:
        """Whether `token_id` may follow."""
        return bool(self._look()[token_id >> 3] >> (token_id & 7) & 1)

    def choices(self) -> list[int]:
        """The ids that may follow, the end of text left out, ascending."""
        mask = self._look()
        if self._count > _FEW:
            self.work.add((len(mask) + self._count) // _IDS_A_UNIT)
            return [
                (position << 3) + bit
                for position, byte in enumerate(mask)
                if byte
                for bit in range(8)
                if byte >> bit & 1 and (position << 3) + bit != self._end_of_text
            ]
        bits = int.from_bytes(mask, "little") & ~(1 << self._end_of_text)
        found: list[int] = []
        while bits:
            lowest = bits & -bits
            found.append(lowest.bit_length() - 1)
            bits ^= lowest
        return found

    def in_order(self, order: Order) -> Iterator[int]:
        """The ids that may follow, the end of text left out, as `order` has them."""
        mask = self._look()
        if self._count <= _FEW:
            yield from sorted(self.choices(), key=order.position.__getitem__)
            return
        for scanned, token_id in enumerate(order.ids):
            if not scanned % _IDS_A_UNIT:
                self.work.add()
            if mask[token_id >> 3] >> (token_id & 7) & 1 and token_id != self._end_of_text:
                yield token_id

    def push(self, *token_ids: int) -> bool:
        """Go on with all of `token_ids`, or with none if they may not follow."""
        for done, token_id in enumerate(token_ids):
            self.work.add()
            if not self._matcher.accept_token(token_id):
                self.pop(done)
                return False
            self.ids.append(token_id)
            self._mask = None
        return True

    def pop(self, count: int) -> None:
        """Take the last `count` ids back."""
        if count:
            self.work.add()
            self._matcher.rollback(count)
            del self.ids[-count:]
            self._mask = None

    def reads(self, text: str) -> bool:
        """Whether `text` may follow; the position stays."""
        self.work.add()
        if not self._matcher.accept_string(text):
            return False
        self._matcher.rollback()
        return True

    def _look(self) -> bytes:
        if self._mask is None:
            self.work.add(_LOOK_WORK)
            self._mask = self._matcher.allowed()
            self._count = int.from_bytes(self._mask, "little").bit_count()
        return self._mask


def literals(compiled: CompiledGrammar) -> list[str]:
    """Strings that the grammar spells out, those that look like markers first, bounded."""
    found: dict[str, None] = {}
    for match in _LITERAL.finditer(str(compiled)):
        if match[1]:
            found[ast.literal_eval(f'"{match[1]}"')] = None
    ordered = sorted(found, key=_unlike_a_marker)
    return ordered[:LITERALS_KEPT]


def _unlike_a_marker(text: str) -> tuple[bool, bool, int]:
    return ("/" not in text and "end" not in text, not set("<|>[]") & set(text), -len(text))
