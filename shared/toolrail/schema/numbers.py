"""Bounds and multiples of numbers, as the engine holds them.

The engine takes whole bounds within int64 for integers, bounds as decimals with six digits after
the point for numbers, and multiples for integers only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from toolrail.schema.context import Context, Emitted
from toolrail.schema.kinds import Kind
from toolrail.schema.sources import Source

_MAX_INTEGER: Final = 2**63 - 1
_MAX_NUMBER: Final = 10**15
"""Larger bounds of a number are not held: the engine writes them out digit by digit."""
_MAX_MULTIPLE: Final = 100
"""The engine builds an automaton with a state for each remainder."""
_MAX_MULTIPLE_SPAN: Final = 10_000
_BOUNDS: Final = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


@dataclass(slots=True)
class _Range:
    low: Fraction | None = None
    low_open: bool = False
    high: Fraction | None = None
    high_open: bool = False

    def raise_low(self, value: Fraction, *, is_open: bool) -> None:
        if self.low is None or (value, is_open) > (self.low, self.low_open):
            self.low, self.low_open = value, is_open

    def cut_high(self, value: Fraction, *, is_open: bool) -> None:
        if self.high is None or (value, not is_open) < (self.high, not self.high_open):
            self.high, self.high_open = value, is_open

    @property
    def is_empty(self) -> bool:
        if self.low is None or self.high is None:
            return False
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))


def number(value: object) -> Fraction | None:
    """The value as an exact number, None if it is none that JSON can write."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Fraction(value) if not isinstance(value, float) or math.isfinite(value) else None


def numbers(context: Context, sources: Sequence[Source], admitted: frozenset[Kind]) -> Emitted:
    """A schema for the numbers that the sources allow, of the kinds `integer` and `fraction`."""
    bounds = _range(context, sources)
    factor, others = _multiple(context, sources)
    if factor is not None and not others:
        # Multiples of a whole number are whole.
        admitted -= {"fraction"}
    if "integer" in admitted and "fraction" not in admitted:
        return _integers(context, sources, bounds, factor)
    if "integer" not in admitted:
        context.relax(sources, "not", "integers", "the grammar cannot leave out whole numbers")
    context.after(
        sources, "multipleOf", "multiple", "the grammar holds multiples of whole numbers only"
    )
    return _decimals(context, sources, bounds)


def _range(context: Context, sources: Sequence[Source]) -> _Range:
    bounds = _Range()
    for source in sources:
        for keyword in _BOUNDS:
            if keyword not in source:
                continue
            is_open = keyword.startswith("exclusive")
            raw = source.get(keyword)
            if is_open and isinstance(raw, bool):
                context.hold(source, keyword)  # draft 4: it belongs to the plain bound
                continue
            value = number(raw)
            if value is None:
                context.malformed(source, keyword, "is not a number")
                continue
            plain = keyword in ("minimum", "maximum")
            draft_4 = plain and source.get("exclusive" + keyword.capitalize()) is True
            if keyword.lower().endswith("minimum"):
                bounds.raise_low(value, is_open=is_open or draft_4)
            else:
                bounds.cut_high(value, is_open=is_open or draft_4)
    return bounds


def _multiple(context: Context, sources: Sequence[Source]) -> tuple[int | None, list[Source]]:
    """The whole number that integers must be a multiple of, and the sources that say more."""
    factor = 1
    found = False
    others: list[Source] = []
    for source in sources:
        if "multipleOf" not in source:
            continue
        value = number(source.get("multipleOf"))
        if value is None or value <= 0:
            context.malformed(source, "multipleOf", "is not a positive number")
            continue
        # Of n/d in lowest terms, the whole multiples are the multiples of n.
        factor = math.lcm(factor, value.numerator)
        found = True
        if value.denominator != 1:
            others.append(source)
    return (factor if found else None), others


def _integers(
    context: Context, sources: Sequence[Source], bounds: _Range, factor: int | None
) -> Emitted:
    low = None if bounds.low is None else math.ceil(bounds.low)
    if low is not None and bounds.low_open and low == bounds.low:
        low += 1
    high = None if bounds.high is None else math.floor(bounds.high)
    if high is not None and bounds.high_open and high == bounds.high:
        high -= 1
    context.hold_all(sources, *_BOUNDS)
    if low is not None and high is not None and low > high:
        return None
    emitted: dict[str, object] = {"type": "integer"}
    if low is not None and low > -_MAX_INTEGER:
        emitted["minimum"] = low
    if high is not None and high < _MAX_INTEGER:
        emitted["maximum"] = high
    for value, keywords in ((low, _BOUNDS[:2]), (high, _BOUNDS[2:])):
        if value is not None and abs(value) >= _MAX_INTEGER:
            for keyword in keywords:
                context.after(sources, keyword, "int64", "the grammar counts within int64 only")
    if factor is None or factor == 1:
        context.hold_all(sources, "multipleOf")
        return emitted
    return _multiples(context, sources, emitted, factor)


def _multiples(
    context: Context, sources: Sequence[Source], emitted: dict[str, object], factor: int
) -> Emitted:
    low, high = emitted.get("minimum"), emitted.get("maximum")
    span = high - low if isinstance(low, int) and isinstance(high, int) else None
    holds = factor <= _MAX_MULTIPLE and (
        (low is None and high is None) or (span is not None and span <= _MAX_MULTIPLE_SPAN)
    )
    if not holds:
        context.after(
            sources,
            "multipleOf",
            "multiple",
            f"the grammar holds multiples up to {_MAX_MULTIPLE}, without bounds or between two "
            f"at most {_MAX_MULTIPLE_SPAN} apart",
        )
        return emitted
    if not context.budget.take_positions(10 * factor if span is None else span // factor):
        context.after(sources, "multipleOf", "budget", "the schema's multiples are too many")
        return emitted
    context.hold_all(sources, "multipleOf")
    if span is not None and isinstance(low, int) and -(-low // factor) * factor > low + span:
        return None
    return emitted | {"multipleOf": factor}


def _decimals(context: Context, sources: Sequence[Source], bounds: _Range) -> Emitted:
    context.hold_all(sources, *_BOUNDS)
    if bounds.is_empty:
        return None
    emitted: dict[str, object] = {"type": "number"}
    for value, is_open, keyword, keywords in (
        (bounds.low, bounds.low_open, "minimum", _BOUNDS[:2]),
        (bounds.high, bounds.high_open, "maximum", _BOUNDS[2:]),
    ):
        if value is None:
            continue
        if abs(value) > _MAX_NUMBER:
            for declared in keywords:
                context.after(sources, declared, "magnitude", "the bound is too large to be held")
            continue
        name = "exclusive" + keyword.capitalize() if is_open else keyword
        emitted[name] = int(value) if value.denominator == 1 else float(value)
    return emitted
