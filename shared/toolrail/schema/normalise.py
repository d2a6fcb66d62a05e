"""A schema as the grammar engine must be given it, and what of it holds.

The engine reads JSON Schema in its own way: it closes what is open, ignores what stands beside a
union or a reference, refuses what it does not know, and applies patterns to the wire instead of to
values. `normalise` writes an equivalent that it holds. Nothing of the original is passed on as it
is: the result is made of the few forms whose meaning was measured (xgrammar 0.2.8), so no odd
schema can raise, and whatever cannot be said in them is named in the report.

What the result admits is valid under the original wherever the report says `enforced`. It may admit
less: constants as compact JSON, properties in their order, bounded strings without escapes.

Recursion is bounded by `MAX_DEPTH`, work by `MAX_NODES`, whatever the schema.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from toolrail.schema.arrays import arrays
from toolrail.schema.constants import constants, shared
from toolrail.schema.context import (
    BRANCH_WEIGHT,
    MAX_DEPTH,
    MAX_NODES,
    Context,
    Emitted,
    Level,
    Place,
)
from toolrail.schema.enforcement import Ledger, Note, SchemaReport
from toolrail.schema.kinds import ALL, Kind, kinds, says_of_kinds
from toolrail.schema.locations import as_array, as_object
from toolrail.schema.marking import CONSTRAINTS, free, mark
from toolrail.schema.numbers import numbers
from toolrail.schema.objects import objects
from toolrail.schema.sources import Document, Gathered, Member, Source, text
from toolrail.schema.strings import strings
from toolrail.schema.styles import style_named
from toolrail.schema.unions import (
    Union,
    first_union,
    is_read_otherwise,
    joined,
    say,
    without,
)

__all__ = ["Normalised", "free", "normalise", "normalise_value"]

_UNHELD: Final[Mapping[str, str]] = {
    "not": "the grammar cannot leave out what a schema describes",
    "if": "the grammar cannot choose by a condition",
    "then": "the grammar cannot choose by a condition",
    "else": "the grammar cannot choose by a condition",
    "dependentRequired": "the grammar cannot ask for one property because of another",
    "dependentSchemas": "the grammar cannot apply a schema because of a property",
    "dependencies": "the grammar cannot ask for one property because of another",
}
_LOST: Final[Mapping[str, str]] = {
    "$dynamicRef": "is not followed",
    "$recursiveRef": "is not followed",
    "disallow": "is of draft 3",
    "divisibleBy": "is of draft 3",
    "extends": "is of draft 3",
}
_NEVER: Final = Note("#", "checked_after", "unsatisfiable", "no value satisfies the schema")

_Key: TypeAlias = tuple[Level, frozenset[tuple[int, frozenset[str]]]]


@dataclass(frozen=True, slots=True)
class Normalised:
    """What the engine is given, and what becomes of the original's keywords.

    Attributes:
        schema: for the `json_schema` of a structural tag; its root is an object schema.
        report: every keyword of the original that was met, and its state.
    """

    schema: dict[str, object]
    report: SchemaReport

    @property
    def notes(self) -> tuple[Note, ...]:
        """The keywords of which something is to be said."""
        return self.report.notes


def normalise(
    schema: object,
    *,
    style: str = "json",
    excludes: Sequence[str] = (),
    any_order: bool = False,
) -> Normalised:
    """The schema of a tool's arguments as the engine holds it; no schema makes it raise.

    Args:
        schema: parsed JSON; a boolean or None stands for any object.
        style: the engine's name for how the family writes arguments.
        excludes: what the tag's `json_schema` format lists as `excludes`.
        any_order: the tag's `any_order`.

    Raises:
        ConfigError: there is no such style.
    """
    return _run(schema, style, tuple(filter(None, excludes)), any_order, root="root")


def normalise_value(schema: object, *, style: str = "json") -> Normalised:
    """The same for a schema of any JSON value, such as a response format.

    `style`: how the value is written where a family writes its arguments one by one.
    """
    return _run(schema, style, (), False, root="top")


def _run(
    schema: object, style: str, excludes: tuple[str, ...], any_order: bool, root: Level
) -> Normalised:
    run = _Normaliser(schema, style, excludes, any_order=any_order)
    return run.normalised(root)


class _Normaliser:
    def __init__(
        self, schema: object, style: str, excludes: tuple[str, ...], *, any_order: bool
    ) -> None:
        self._schema = True if schema is None else schema
        self._context = Context(
            style=style_named(style),
            excludes=excludes,
            any_order=any_order,
            document=Document(schema),
            emit=self._emit,
        )
        self._names: dict[_Key, str] = {}
        self._definitions: dict[str, object] = {}
        self._pending: deque[tuple[str, Gathered, Place]] = deque()
        self._open_unions: set[tuple[int, str]] = set()

    def normalised(self, level: Level) -> Normalised:
        place = Place(level)
        gathered = self._context.document.gather([(self._schema, (None, ()))])
        self._say_faults(gathered)
        emitted = None if gathered.never else self._emit_sources(gathered.sources, place)
        if gathered.never:
            self._context.ledger.note(_NEVER)
        while self._pending:
            name, target, inner = self._pending.popleft()
            definition = self._emit_sources(target.sources, inner)
            if definition is None:
                self._say_never(target)
            self._definitions[name] = self._context.anything() if definition is None else definition
        if emitted is None or (level == "root" and not _is_object_schema(emitted)):
            self._say_never(gathered)
            emitted = self._anything(level)
        if self._context.budget.nodes < 0:
            return self._too_large(level)
        if self._definitions:
            emitted = {**emitted, "$defs": self._definitions}
        return Normalised(emitted, self._context.ledger.report())

    def _emit(self, members: Sequence[Member], place: Place) -> Emitted:
        """The way down from a container: the unions around it are behind."""
        outer, self._open_unions = self._open_unions, set()
        emitted = self._emit_below(members, place)
        self._open_unions = outer
        return emitted

    def _emit_below(self, members: Sequence[Member], place: Place) -> Emitted:
        gathered = self._context.document.gather(members)
        self._say_faults(gathered)
        if gathered.never:
            return None
        if place.depth > MAX_DEPTH or not self._context.budget.take_node():
            return self._too_deep(members)
        if not gathered.by_reference:
            return self._emit_sources(gathered.sources, place)
        return self._reference(gathered, place)

    def _reference(self, gathered: Gathered, place: Place) -> Emitted:
        """A reference to what is emitted once for each level that it is met on.

        The engine writes a definition as it was first met, raw or as JSON: one name for each. An
        argument is emitted where it stands: what it refers to cannot lead back to it without an
        object or an array between.
        """
        style = self._context.style
        if place.level == "top" and not (style.recursive or style.notation):
            return self._emit_sources(gathered.sources, place)
        level: Level = "top" if self._context.is_raw(place) else "inner"
        key = (level, frozenset(source.identity for source in gathered.sources))
        if key not in self._names:
            self._names[key] = f"d{len(self._names)}"
            self._pending.append((self._names[key], gathered, Place(level, place.depth)))
        return {"$ref": f"#/$defs/{self._names[key]}"}

    def _emit_sources(self, sources: Sequence[Source], place: Place) -> Emitted:
        emitted = self._emit_plain(sources, place)
        if emitted is None:
            return None
        if self._context.style.tells_type == "one":
            self._say_types(sources, emitted, place)
        elif self._context.is_typed_by_schema(place) and is_read_otherwise(emitted):
            for keyword in ("type", "anyOf", "oneOf", "enum"):
                self._context.relax(
                    sources, keyword, "text_or_value",
                    "text that may be a string is read as another value where it looks like one",
                )  # fmt: skip
        return emitted

    def _say_types(
        self, sources: Sequence[Source], emitted: Mapping[str, object], place: Place
    ) -> None:
        values = as_array(emitted.get("enum")) or []
        if place.level == "top" and ("anyOf" in emitted or len(set(map(type, values))) > 1):
            for keyword in ("type", "anyOf", "oneOf", "enum", "not"):
                self._context.relax(
                    sources, keyword, "type_on_the_wire",
                    "of several types the grammar lets any be said of a value",
                )  # fmt: skip

    def _emit_plain(self, sources: Sequence[Source], place: Place) -> Emitted:
        context = self._context
        union = first_union(context, sources, place)
        if union is not None:
            return self._emit_union(sources, union, place)
        admitted = kinds(context, sources)
        self._say_unheld(sources)
        if place.level == "root":
            admitted &= {"object"}
        values = shared(context, sources)
        if values is not None:
            return constants(context, sources, values, admitted, place)
        return joined(list(self._emit_kinds(sources, admitted, place)))

    def _emit_union(self, sources: Sequence[Source], union: Union, place: Place) -> Emitted:
        say(self._context, union)
        key = (union.source.identity[0], union.keyword)
        if key in self._open_unions:
            # It leads back to itself without a value between: that branch adds nothing.
            return None
        rest = without(sources, union)
        within = place.branch(len(union.branches))
        self._open_unions.add(key)
        options = [self._emit_branch(rest, branch, within) for branch in union.branches]
        self._open_unions.remove(key)
        return joined(options)

    def _emit_branch(self, rest: Sequence[Source], branch: Member, place: Place) -> Emitted:
        gathered = self._context.document.gather([branch])
        self._say_faults(gathered)
        if gathered.never:
            return None
        if place.depth > MAX_DEPTH or not self._context.budget.take_node(BRANCH_WEIGHT):
            return self._too_deep([branch])
        alone = not any(_says_something(source) for source in rest)
        if alone and gathered.by_reference and place.level != "root":
            return self._reference(gathered, place)
        known = {source.identity for source in gathered.sources}
        merged = [s for s in rest if s.identity not in known] + gathered.sources
        return self._emit_sources(merged, place)

    def _emit_kinds(
        self, sources: Sequence[Source], admitted: frozenset[Kind], place: Place
    ) -> Iterable[Emitted]:
        if admitted == ALL and not any(map(says_of_kinds, sources)):
            yield self._context.anything()
            return
        context = self._context
        if "string" in admitted:
            yield strings(context, sources, place)
        if admitted & {"integer", "fraction"}:
            yield numbers(context, sources, admitted)
        if "boolean" in admitted:
            yield {"type": "boolean"}
        if "null" in admitted:
            yield {"type": "null"}
        if "array" in admitted:
            yield arrays(context, sources, place)
        if "object" in admitted:
            yield objects(context, sources, place)

    def _say_faults(self, gathered: Gathered) -> None:
        for path, (reason, detail) in gathered.faults:
            self._context.ledger.note(Note(path, "dropped", reason, detail))
        for source in gathered.sources:
            for keyword in ("$ref", "allOf"):
                if keyword in source.schema:
                    self._context.ledger.hold(text(source.path, keyword))
        if gathered.over_budget and gathered.sources:
            self._context.ledger.note(
                Note(
                    text(gathered.sources[0].path),
                    "checked_after",
                    "reference_chain",
                    "too many references or intersections lead from here",
                    over_budget=True,
                )
            )

    def _say_unheld(self, sources: Sequence[Source]) -> None:
        context = self._context
        for keyword, detail in _UNHELD.items():
            for source in sources:
                if not (keyword == "not" and context.ledger.knows(source.at(keyword))):
                    context.note(source, keyword, "checked_after", "unheld", detail)
        for keyword, detail in _LOST.items():
            for source in sources:
                context.note(source, keyword, "dropped", "unsupported", detail)
        for source in sources:
            if isinstance(source.get("required"), bool):
                context.malformed(source, "required", "is not an array of strings")

    def _say_never(self, gathered: Gathered) -> None:
        for source in gathered.sources:
            self._mark_below(
                source,
                Note("", "checked_after", "unsatisfiable", "no value satisfies the schema"),
            )

    def _mark_below(self, source: Source, note: Note) -> None:
        mark(self._context.ledger, source.schema, note, source.path)

    def _too_deep(self, members: Sequence[Member]) -> Emitted:
        note = Note(
            "", "checked_after", "depth", f"is nested more than {MAX_DEPTH} deep", over_budget=True
        )
        for schema, path in members:
            mark(self._context.ledger, schema, note, path)
        return self._context.anything()

    def _too_large(self, level: Level) -> Normalised:
        detail = f"the schema amounts to more than {MAX_NODES} parts"
        ledger = Ledger()
        mark(ledger, self._schema, Note("", "checked_after", "size", detail, over_budget=True))
        return Normalised(self._anything(level), ledger.report())

    def _anything(self, level: Level) -> dict[str, object]:
        place = Place(level)
        return self._context.any_object(place) if level == "root" else self._context.anything()


def _is_object_schema(emitted: Mapping[str, object]) -> bool:
    options = as_array(emitted.get("anyOf"))
    if options is not None:
        return all(_is_object_schema(as_object(o) or {}) for o in options)
    return emitted.get("type") == "object"


def _says_something(source: Source) -> bool:
    return any(keyword in CONSTRAINTS and keyword in source for keyword in source.schema)
