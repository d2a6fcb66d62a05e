"""What a broken rule looks like, and where it sits in a schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from toolrail.schema.locations import Tokens, pointer


@dataclass(frozen=True, slots=True)
class Fault:
    """The first rule that a schema breaks.

    Attributes:
        path: JSON Pointer of the place, e.g. `#/properties/a`.
        rule: stable name of the rule, snake_case.
        message: what is wrong there and what to do, without the path.
    """

    path: str
    rule: str
    message: str


Path: TypeAlias = "tuple[Path | None, Tokens]"
"""A schema location as a chain of steps: the text of a path is made for a fault only, since the
paths of all nodes together are quadratic in the depth."""


class BrokenRuleError(Exception):
    """Ends a check with its fault; never leaves the preflight."""

    def __init__(self, path: Path, rule: str, message: str, *below: str) -> None:
        super().__init__(rule)
        self.fault = Fault(_text(path, below), rule, message)


def _text(path: Path | None, below: Tokens) -> str:
    steps: list[Tokens] = [below]
    while path is not None:
        path, step = path
        steps.append(step)
    return pointer(tuple(token for step in reversed(steps) for token in step))
