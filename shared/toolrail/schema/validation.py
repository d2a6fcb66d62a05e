"""Whether a call's arguments satisfy the schema that the tool declared, after generation.

For what a grammar cannot hold. Both sides come from outside, the schema from a client and the text
from a model, so the work is bounded: expressions are matched without backtracking, steps are
counted, nesting is limited.

What cannot be judged (a remote reference, an expression that no automaton matches, too many steps)
is no violation; it is named as unjudged.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

from toolrail.schema.judging import Run, Violation
from toolrail.schema.rules import RULES

__all__ = ["Check", "Violation", "validator"]

Check: TypeAlias = Callable[[str], list[Violation]]


def validator(schema: object) -> Check:
    """A function that tells how JSON text breaks `schema`; an empty list: it does not.

    The function never raises, whatever the schema and the text. None stands for any object.
    """
    root: object = {"type": "object"} if schema is None else schema

    def check(text: str) -> list[Violation]:
        run = Run(root, RULES)
        try:
            value = json.loads(text, object_pairs_hook=run.members, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return [Violation("#", "", "is not JSON")]
        run.judge(value)
        return run.violations

    return check


def _refuse_constant(name: str) -> object:
    raise ValueError(name)
