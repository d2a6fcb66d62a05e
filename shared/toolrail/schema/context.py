"""What the parts of the normaliser share: the style, the budgets, the ledger, and the way down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

from toolrail.schema.enforcement import Ledger, Note, Status
from toolrail.schema.sources import Document, Member, Source
from toolrail.schema.styles import Style

Emitted: TypeAlias = "dict[str, object] | None"
"""A schema for the engine; None: no value satisfies it."""

Level: TypeAlias = Literal["root", "top", "inner"]
"""Where a value is written: the arguments themselves, one argument, or inside JSON."""

MAX_DEPTH: Final = 32
"""Containers and unions inside each other: an engine's cost grows with the cube of it."""
MAX_NODES: Final = 8_000
"""Schemas that are emitted for one; an ordinary tool needs dozens."""
MAX_BOUND: Final = 256
"""The longest `maxLength` that the grammar counts: a compile pays for each character."""
MAX_COUNTED: Final = 256
"""Characters counted by all bounded strings of a schema together, of each 128 at most: some 9 ms of
an engine's compile for each, over a vocabulary of 49,152 tokens."""
MAX_POSITIONS: Final = 6_000
"""Character positions of all patterns of a schema together."""
BRANCH_WEIGHT: Final = 4
"""Nodes that a branch of a union counts for: it is joined with all that stands beside the union."""
MAX_BRANCHES: Final = 256
"""Branches of a union, and combinations of the branches of all unions at one place."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a schema is emitted, how deep that is, and in how many combinations of branches."""

    level: Level
    depth: int = 0
    combinations: int = 1

    def within(self, level: Level) -> Place:
        """One container deeper."""
        return Place(level, self.depth + 1)

    def branch(self, branches: int) -> Place:
        """In one of so many branches."""
        return Place(self.level, self.depth + 1, self.combinations * branches)


@dataclass(slots=True)
class Budget:
    """What a schema may still spend."""

    nodes: int = MAX_NODES
    counted: int = MAX_COUNTED
    free_text: int = MAX_COUNTED
    positions: int = MAX_POSITIONS

    def take_node(self, weight: int = 1) -> bool:
        """True while nodes may be emitted."""
        self.nodes -= weight
        return self.nodes >= 0

    def take_counted(self, characters: int) -> bool:
        """True, and spent, if a bound of so many characters can still be afforded."""
        # Beyond 128 the engine's cost of one bound does not grow.
        cost = min(characters, 128)
        if cost > self.counted:
            return False
        self.counted -= cost
        return True

    def take_free_text(self, weight: int) -> bool:
        """True, and spent, if free text that counts its characters can still be afforded."""
        if weight > self.free_text:
            return False
        self.free_text -= weight
        return True

    def take_positions(self, positions: int) -> bool:
        """True, and spent, if a pattern of so many positions can still be afforded."""
        if positions > self.positions:
            return False
        self.positions -= positions
        return True


class Emit(Protocol):
    """The way down: whatever holds a subschema's values."""

    def __call__(self, members: Sequence[Member], place: Place) -> Emitted:
        """A schema for the engine that admits the values that all `members` allow."""
        ...


@dataclass(slots=True)
class Context:
    """One run of the normaliser.

    Attributes:
        style: how arguments are written.
        excludes: strings that the tag keeps out of string values.
        any_order: the grammar lets properties come in any order, and counts them only.
        document: the schema that references point into.
        emit: see `Emit`.
    """

    style: Style
    excludes: tuple[str, ...]
    any_order: bool
    document: Document
    emit: Emit
    ledger: Ledger = field(default_factory=Ledger)
    budget: Budget = field(default_factory=Budget)

    def hold(self, source: Source, *keywords: str) -> None:
        """The grammar holds these keywords of the source, those that it has."""
        for keyword in keywords:
            if keyword in source:
                self.ledger.hold(source.at(keyword))

    def hold_all(self, sources: Sequence[Source], *keywords: str) -> None:
        """The grammar holds these keywords wherever they stand."""
        for source in sources:
            self.hold(source, *keywords)

    def note(  # noqa: PLR0913 - the fields of a note
        self,
        source: Source,
        keyword: str,
        status: Status,
        reason: str,
        detail: str,
        *,
        over_budget: bool = False,
    ) -> None:
        """Something is to be said of a keyword, if the source has it."""
        if keyword in source:
            self.ledger.note(Note(source.at(keyword), status, reason, detail, over_budget))

    def after(self, sources: Sequence[Source], keyword: str, reason: str, detail: str) -> None:
        """The keyword is not held, wherever it stands; it is checked after generation."""
        for source in sources:
            self.note(source, keyword, "checked_after", reason, detail)

    def relax(self, sources: Sequence[Source], keyword: str, reason: str, detail: str) -> None:
        """The keyword is held in a weaker form, wherever it stands."""
        for source in sources:
            self.note(source, keyword, "relaxed", reason, detail)

    def malformed(self, source: Source, keyword: str, detail: str) -> None:
        """The keyword's value is none that it takes: nothing can hold or check it."""
        self.note(source, keyword, "dropped", "malformed", detail)

    def anything(self) -> dict[str, object]:
        """A schema for any value."""
        # A recursive style cannot say it; text, in which JSON is read where it is due, comes close.
        return {"type": "string"} if self.style.recursive and not self.style.notation else {}

    def any_object(self, place: Place) -> dict[str, object]:
        """A schema for any object."""
        if self.style.recursive and self.style.notation and place.level == "root":
            return {"type": "object"}
        if self.style.recursive and not self.style.notation:
            # Elements have fixed names: of the arguments themselves only none can be said.
            nothing: dict[str, object] = {"type": "object", "additionalProperties": False}
            return nothing if place.level == "root" else self.anything()
        return {"type": "object", "additionalProperties": True}

    def unwritable(self, place: Place) -> str:
        """The characters with which something begins that a string there may not hold.

        What ends a raw value ends it inside of JSON, too.
        """
        closers = [] if self.style.is_json or place.level == "root" else [self.style.closer]
        return "".join(dict.fromkeys(text[0] for text in (*closers, *self.excludes)))

    def is_typed_by_schema(self, place: Place) -> bool:
        """True when nothing on the wire tells a string from another value there."""
        style = self.style
        quoted = style.notation and not style.recursive
        return style.tells_type == "no" and not quoted and self.is_raw(place)

    def is_raw(self, place: Place) -> bool:
        """True when a string is written there as it is, up to a closing tag."""
        if self.style.is_json:
            return False
        nested = self.style.recursive or self.style.notation
        return place.level == "top" or (nested and place.level == "inner")

    def copies_names(self, place: Place) -> bool:
        """True when the names of values that stand there are written as they are."""
        return self.is_raw(place) or (self.style.notation and place.level == "top")
