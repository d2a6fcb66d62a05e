"""One check of a value against a schema: steps, violations, and what could not be judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from toolrail.schema.locations import (
    RefError,
    as_object,
    has_nested_id,
    parse_ref,
    pointer,
    resolve,
)
from toolrail.schema.regex.matching import matcher
from toolrail.schema.regex.parse import RegexError

MAX_STEPS: Final = 20_000
"""Schemas applied to values, and items compared, in one check: a tenth of a second or two."""
QUICK_STEPS: Final = 250
"""Those of a check that must not take more than a few milliseconds."""
MAX_DEPTH: Final = 128
MAX_VIOLATIONS: Final = 20


@dataclass(frozen=True, slots=True)
class Violation:
    """One way in which arguments break their schema.

    Attributes:
        path: JSON Pointer of the value, e.g. `#/items/0/name`.
        keyword: what it breaks.
        message: what is wrong, without the value's own text.
        judged: False when it could not be told whether the keyword holds.
    """

    path: str
    keyword: str
    message: str
    judged: bool = True


EXHAUSTED: Final = "the check takes too many steps"
"""Message of the violation, unjudged, that says so."""


class OutOfStepsError(Exception):
    """Ends a check that takes too long; never leaves it."""


@dataclass(slots=True)
class Outcome:
    """What one schema says of one value: whether it holds, and which parts it has looked at.

    `sure` is False when something in it could not be judged; `valid` then says too much.
    """

    valid: bool = True
    sure: bool = True
    names: set[str] = field(default_factory=set[str])
    items: int | float = 0
    """Items looked at from the first on; infinite: all."""
    contained: set[int] = field(default_factory=set[int])
    """Other items that were looked at, one by one."""

    def take(self, other: Outcome) -> None:
        """Adds what another schema has looked at, where it holds."""
        if other.valid:
            self.names |= other.names
            self.items = max(self.items, other.items)
            self.contained |= other.contained


Place: TypeAlias = tuple[str, ...]


class Run:
    """Applies schemas of one document to values.

    Attributes:
        violations: what was found, the first `MAX_VIOLATIONS`.
    """

    def __init__(
        self, root: object, rules: Rules, *, scoped: bool | None = None, quick: bool = False
    ) -> None:
        """A check; `scoped`: what `has_nested_id` says of `root`, if it is known.

        `quick`: with few steps, and without matching expressions, whose first match takes long.
        """
        self._root = root
        self._scoped = has_nested_id(root) if scoped is None else scoped
        self._rules = rules
        self._unsure = 0
        self._quick = quick
        self._steps = QUICK_STEPS if quick else MAX_STEPS
        self._quiet = 0
        self._duplicates: list[str] = []
        self.violations: list[Violation] = []

    def members(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        """An object's members; a name that comes twice is remembered."""
        members = dict(pairs)
        if len(members) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            self._duplicates.extend(name for name, count in counts.items() if count > 1)
        return members

    def judge(self, value: object) -> None:
        """Fills `violations`."""
        for name in self._duplicates[:MAX_VIOLATIONS]:
            self.violations.append(Violation("#", "", f"names {name[:40]!r} twice in one object"))
        try:
            self.apply(self._root, value, ())
        except OutOfStepsError:
            self._unjudged((), "", EXHAUSTED)
        except RecursionError:
            self._unjudged((), "", "the check nests too deep")

    def apply(self, schema: object, value: object, at: Place) -> Outcome:
        """Applies one schema to one value."""
        self.step()
        if isinstance(schema, bool):
            return self._verdict(schema, at, "", "is not allowed")
        members = as_object(schema)
        if members is None:
            return Outcome()
        if len(at) > MAX_DEPTH:
            self._unjudged(at, "", "the value nests too deep")
            return Outcome()
        outcome = Outcome()
        for keywords, rule in self._rules:
            if not keywords.isdisjoint(members):
                rule(self, members, value, at, outcome)
        return outcome

    def step(self, count: int = 1) -> None:
        """Counts work; raises when there was too much of it."""
        self._steps -= count
        if self._steps < 0:
            raise OutOfStepsError

    def quietly(self, schema: object, value: object, at: Place) -> Outcome:
        """Applies a schema whose failure is no violation by itself."""
        unsure = self._unsure
        self._quiet += 1
        outcome = self.apply(schema, value, at)
        self._quiet -= 1
        outcome.sure = self._unsure == unsure
        return outcome

    def require(self, outcome: Outcome, holds: bool, at: Place, keyword: str, message: str) -> None:
        """Notes a violation unless the keyword holds."""
        if not holds:
            outcome.valid = False
            self._violate(Violation(pointer(at), keyword, message))

    def join(self, outcome: Outcome, other: Outcome) -> None:
        """Takes over what a schema at the same place says."""
        outcome.valid = outcome.valid and other.valid
        outcome.take(other)

    def resolved(self, ref: object, at: Place, keyword: str) -> object | None:
        """The schema that a reference points at, None (and unjudged) if it cannot be followed."""
        tokens = parse_ref(ref) if isinstance(ref, str) else RefError.MISSING
        if not isinstance(tokens, RefError) and not self._scoped:
            found, error = resolve(self._root, tokens)
            if error is None:
                return found
        self._unjudged(at, keyword, "the reference cannot be followed")
        return None

    def found(self, pattern: object, text: str, at: Place, keyword: str) -> bool | None:
        """Whether an expression is found in a text; None (and unjudged) if that cannot be told."""
        if self._quick:
            raise OutOfStepsError
        try:
            self.step(1 + len(text) // 64)
            return matcher(pattern).found_in(text) if isinstance(pattern, str) else None
        except RegexError as error:
            self._unjudged(at, keyword, f"the expression cannot be matched: {error.feature}")
            return None

    def _verdict(self, valid: bool, at: Place, keyword: str, message: str) -> Outcome:
        outcome = Outcome()
        self.require(outcome, valid, at, keyword, message)
        return outcome

    def _violate(self, violation: Violation) -> None:
        if not self._quiet and len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(violation)

    def _unjudged(self, at: Place, keyword: str, message: str) -> None:
        self._unsure += 1
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(Violation(pointer(at), keyword, message, judged=False))


Schema: TypeAlias = Mapping[str, object]
Rule: TypeAlias = Callable[[Run, Schema, object, Place, Outcome], None]
Rules: TypeAlias = Sequence[tuple[frozenset[str], Rule]]
