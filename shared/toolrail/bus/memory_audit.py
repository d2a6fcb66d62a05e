"""Audit records of the in-memory bus."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_KEPT: Final = 10_000


class MemoryAuditRecords:
    """One connection's way to the records that all share, by their ids."""

    def __init__(self, records: OrderedDict[str, bytes], check: Callable[[int], None]) -> None:
        self._records = records
        self._check = check

    async def check(self) -> None:
        """Return when the bus is open."""
        self._check(0)

    async def append(self, record: bytes, *, record_id: str, timeout_s: float) -> None:
        """Keep the record."""
        del timeout_s
        self._check(len(record))
        self._records.setdefault(record_id, record)
        if len(self._records) > _KEPT:
            self._records.popitem(last=False)
