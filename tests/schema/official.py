"""The official test suite's cases (`suite/`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUITE = Path(__file__).parent / "suite"
DRAFTS = ("draft2020-12", "draft7", "draft4")


@dataclass(frozen=True)
class Case:
    """One schema and values of which it is known whether they satisfy it."""

    draft: str
    file: str
    name: str
    schema: Any
    tests: tuple[tuple[str, Any, bool], ...]


def cases(draft: str) -> Iterator[Case]:
    with (SUITE / f"{draft}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            tests = tuple((name, value, valid) for name, value, valid in row["tests"])
            yield Case(draft, row["file"], row["case"], row["schema"], tests)
