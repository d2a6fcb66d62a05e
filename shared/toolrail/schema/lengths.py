"""Lengths of raw values in the styles whose tags count characters beside the guard of a closer."""

from __future__ import annotations

from collections.abc import Sequence

from toolrail.schema.context import Context
from toolrail.schema.counting import Counting, counting
from toolrail.schema.sources import Source


def counted_lengths(
    context: Context, sources: Sequence[Source], low: int, high: int | None
) -> dict[str, object]:
    """The lengths that are left to the family's tag; what becomes of them is noted."""
    if low == 0 and high is None:
        context.hold_all(sources, "minLength", "maxLength")
        return {}
    guard, budget = context.style.counts, context.budget
    found = counting(guard, low, high) if low else None
    if found is not None and budget.take_counted(found.weight):
        context.hold_all(sources, "minLength", "maxLength")
        _say_narrowed(context, sources, found, low)
        return {"minLength": low} if high is None else {"minLength": low, "maxLength": high}
    if low:
        context.after(
            sources, "minLength", "long_bound",
            "the grammar counts few characters beside the guard of what ends the value",
        )  # fmt: skip
    # Without a shortest length the whole closer is kept out, however long.
    text = counting(context.style.closer if context.style.uncounted else guard, 0, high)
    if high is None or text is None or not budget.take_free_text(text.weight):
        context.after(sources, "maxLength", "budget", "the schema's bounded strings are too many")
        return {}
    context.hold_all(sources, *(() if low else ("minLength",)), "maxLength")
    _say_narrowed(context, sources, text, 0)
    return {"maxLength": high}


def _say_narrowed(
    context: Context, sources: Sequence[Source], found: Counting, shortest: int
) -> None:
    """What values cannot do because of how they are counted."""
    style = context.style
    details = found.narrowed(style.counts, shortest)
    if shortest and style.uncounted:
        details = (style.uncounted, *details)
    if style.counts_wire:
        details = (*details, "be as long where they look like JSON strings")
    detail = f"values cannot {'; nor '.join(details)}"
    for source in sources if details else ():
        for keyword in ("minLength", "maxLength"):
            context.note(source, keyword, "enforced", "narrowed", detail)
