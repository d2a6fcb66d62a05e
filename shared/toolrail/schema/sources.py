"""The schemas that hold at one place, gathered: references followed, intersections opened.

A value must satisfy a schema, what its `$ref` points at, and every member of its `allOf`, theirs
included. Here they become one flat list, each with its place in the document, so that the rest of
the normaliser sees keywords side by side and never an `allOf` or a `$ref`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from toolrail.schema.faults import Path
from toolrail.schema.locations import (
    RefError,
    Tokens,
    as_array,
    as_object,
    has_nested_id,
    parse_ref,
    pointer,
    resolve,
)

MAX_REF_CHAIN: Final = 64
MAX_GATHERED: Final = 256
"""Schemas that may hold at one place."""

Member: TypeAlias = tuple[object, Path]
"""A schema as it stands in the document, and where."""

Reason: TypeAlias = tuple[str, str]
"""Name of a reason and the reason in words."""


def text(path: Path, *below: str) -> str:
    """The JSON Pointer of a place."""
    steps: list[Tokens] = [below]
    at: Path | None = path
    while at is not None:
        at, step = at
        steps.append(step)
    return pointer(tuple(token for step in reversed(steps) for token in step))


@dataclass(frozen=True, slots=True)
class Source:
    """One schema object that holds at a place, without some of its keywords.

    `$ref` and `allOf` are never seen: what they bring is a source of its own.
    """

    schema: Mapping[str, object]
    path: Path
    without: frozenset[str] = frozenset()

    def __contains__(self, keyword: str) -> bool:
        """True when the keyword is there."""
        return keyword in self.schema and keyword not in self.without

    def get(self, keyword: str) -> object:
        """The keyword's value, None when it is absent (or null, which no keyword takes)."""
        return None if keyword in self.without else self.schema.get(keyword)

    def at(self, keyword: str) -> str:
        """JSON Pointer of the keyword."""
        return text(self.path, keyword)

    def below(self, *tokens: str) -> Path:
        """Place of a subschema."""
        return (self.path, tokens)

    def drop(self, *keywords: str) -> Source:
        """The source without these keywords."""
        return Source(self.schema, self.path, self.without.union(keywords))

    @property
    def identity(self) -> tuple[int, frozenset[str]]:
        """Equal for sources that say the same because they are the same."""
        return id(self.schema), self.without


@dataclass(slots=True)
class Gathered:
    """What holds at a place.

    Attributes:
        sources: the schemas, outermost first.
        never: True when one of them is `false`.
        by_reference: True when a `$ref` led to one of them.
        faults: keywords that could not be followed, and why.
        over_budget: the chain of references or the number of schemas exceeds the limits.
    """

    sources: list[Source] = field(default_factory=list[Source])
    never: bool = False
    by_reference: bool = False
    faults: list[tuple[str, Reason]] = field(default_factory=list[tuple[str, Reason]])
    over_budget: bool = False


class Document:
    """A root schema and what its references lead to."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._scoped = has_nested_id(root)

    def gather(self, members: Iterable[Member]) -> Gathered:
        """All schemas that hold where `members` do. O(their number)."""
        gathered = Gathered()
        seen: set[int] = set()
        # (schema, place, references on the way)
        pending = [(schema, path, 0) for schema, path in members]
        pending.reverse()
        while pending:
            schema, path, hops = pending.pop()
            if schema is False:
                gathered.never = True
            source = as_object(schema)
            if source is None or id(source) in seen:
                if source is None and not isinstance(schema, bool):
                    gathered.faults.append((text(path), ("not_a_schema", "is not a schema")))
                continue
            if len(seen) >= MAX_GATHERED:
                gathered.over_budget = True
                break
            seen.add(id(source))
            gathered.sources.append(Source(source, path, _OPENED))
            pending.extend(reversed(self._opened(source, path, hops, gathered)))
        return gathered

    def _opened(
        self, schema: Mapping[str, object], path: Path, hops: int, gathered: Gathered
    ) -> list[tuple[object, Path, int]]:
        opened: list[tuple[object, Path, int]] = []
        if "$ref" in schema:
            found = self._followed(schema["$ref"])
            if hops >= MAX_REF_CHAIN:
                gathered.over_budget = True
            elif isinstance(found, str):
                gathered.faults.append((text(path, "$ref"), ("reference", found)))
            else:
                gathered.by_reference = True
                opened.append((found[0], found[1], hops + 1))
        members = as_array(schema.get("allOf"))
        for index, member in enumerate(members or ()):
            opened.append((member, (path, ("allOf", str(index))), hops))
        if "allOf" in schema and members is None:
            gathered.faults.append((text(path, "allOf"), ("malformed", "is not an array")))
        return opened

    def _followed(self, ref: object) -> Member | str:
        """The schema that a reference points at, or why it cannot be followed."""
        if not isinstance(ref, str):
            return "is not a string"
        if self._scoped:
            return "stands in a document with nested $id"
        tokens = parse_ref(ref)
        if isinstance(tokens, RefError):
            return f"cannot be followed: {tokens.value.replace('_', ' ')}"
        found, error = resolve(self._root, tokens)
        if error is not None:
            return f"cannot be followed: {error.value.replace('_', ' ')}"
        return found, (None, tokens)


_OPENED: Final = frozenset({"$ref", "allOf"})
