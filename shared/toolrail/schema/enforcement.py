"""The enforcement report: what becomes of each keyword of a schema, and why.

Four states, from strongest to weakest:

- `enforced`: the grammar admits nothing that the keyword forbids.
- `relaxed`: the grammar holds a weaker form; the rest is checked after generation.
- `checked_after`: the grammar does not hold it; it is checked after generation.
- `dropped`: neither; what it says is lost.

Where nothing is checked after generation, `checked_after` becomes `dropped`: see `unchecked`.

A keyword is named by the JSON Pointer of its place in the declared schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

Status: TypeAlias = Literal["enforced", "relaxed", "checked_after", "dropped"]
_RANK: Final[Mapping[Status, int]] = {
    "enforced": 0,
    "relaxed": 1,
    "checked_after": 2,
    "dropped": 3,
}


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a user should know of one keyword.

    Attributes:
        path: JSON Pointer of the keyword, e.g. `#/properties/a/maxLength`.
        status: what becomes of it. `enforced` with a note: the grammar admits less than the keyword
            allows (`narrowed`), such as a bounded string without escapes.
        reason: stable name of the reason, snake_case.
        detail: the reason in words.
        over_budget: the schema asks for more than the limits allow; a strict one is refused.
    """

    path: str
    status: Status
    reason: str
    detail: str
    over_budget: bool = False

    def to_json(self) -> dict[str, object]:
        """As `toolrail tag` prints it."""
        shown: dict[str, object] = {
            "status": self.status,
            "reason": self.reason,
            "detail": self.detail,
        }
        if self.over_budget:
            shown["over_budget"] = True
        return shown


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """What becomes of one schema: a tool's arguments or a response format.

    Attributes:
        enforced: the keywords that hold as they are, without a note.
        notes: the others, and those enforced with a note.
    """

    enforced: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def status(self) -> Status:
        """The weakest state of any keyword; `enforced` when all hold."""
        weakest: Status = "enforced"
        for note in self.notes:
            if _RANK[note.status] > _RANK[weakest]:
                weakest = note.status
        return weakest

    @property
    def over_budget(self) -> tuple[Note, ...]:
        """The notes of what exceeds the limits: a reason to refuse a strict schema."""
        return tuple(note for note in self.notes if note.over_budget)

    @property
    def lost(self) -> tuple[Note, ...]:
        """The notes of what rules values out and is neither held nor checked.

        `format` is an annotation and not among them.
        """
        return tuple(
            note
            for note in self.notes
            if note.status == "dropped" and not note.path.endswith("/format")
        )

    def unchecked(self) -> SchemaReport:
        """The report where nothing is checked after generation."""
        notes = (
            replace(note, status="dropped") if note.status == "checked_after" else note
            for note in self.notes
        )
        return SchemaReport(self.enforced, tuple(notes))

    def counts(self) -> dict[Status, int]:
        """How many keywords are in each state, for metrics."""
        counted: dict[Status, int] = dict.fromkeys(_RANK, 0)
        counted["enforced"] = len(self.enforced)
        for note in self.notes:
            counted[note.status] += 1
        return counted

    def to_json(self) -> dict[str, object]:
        """As `toolrail tag` prints it: status, and every keyword with its state."""
        keywords: dict[str, object] = {path: {"status": "enforced"} for path in self.enforced}
        keywords |= {note.path: note.to_json() for note in self.notes}
        return {"status": self.status, "keywords": keywords}


@dataclass(slots=True)
class Ledger:
    """Collects what becomes of keywords; of two words on one keyword the weaker counts."""

    _notes: dict[str, Note] = field(default_factory=dict[str, Note])
    _order: dict[str, None] = field(default_factory=dict[str, None])

    def hold(self, path: str) -> None:
        """The grammar holds the keyword."""
        self._order.setdefault(path)

    def note(self, note: Note) -> None:
        """The grammar holds the keyword in a way, or not at all."""
        self._order.setdefault(note.path)
        known = self._notes.get(note.path)
        if known is None or _RANK[note.status] > _RANK[known.status]:
            self._notes[note.path] = note

    def knows(self, path: str) -> bool:
        """True when something was said of the keyword."""
        return path in self._order

    def report(self) -> SchemaReport:
        """What was collected, in the order of first mention."""
        return SchemaReport(
            tuple(path for path in self._order if path not in self._notes),
            tuple(self._notes[path] for path in self._order if path in self._notes),
        )
