"""The strict rules for `$ref`: local, to a schema, without direct cycles, closing what it opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolrail.schema.faults import BrokenRuleError, Path
from toolrail.schema.locations import RefError, as_array, as_object, parse_ref, resolve

_REF_FAULTS: Final[Mapping[RefError, tuple[str, str]]] = {
    RefError.REMOTE: ("remote_reference", "only references inside this schema are supported"),
    RefError.ANCHOR: ("anchor_reference", "use a JSON Pointer (#/...) instead of an anchor"),
    RefError.URI_ESCAPE: ("reference_escape", "holds an invalid percent escape"),
    RefError.POINTER_ESCAPE: ("reference_escape", "holds an invalid JSON Pointer escape"),
    RefError.MISSING: ("reference_target", "points at nothing in this schema"),
    RefError.NOT_A_SCHEMA: ("reference_target", "points at something that is not a schema"),
}


def check_references(
    root: object,
    references: Sequence[tuple[Path, Mapping[str, object]]],
    first_nested_id: Path | None,
) -> None:
    """Raises BrokenRuleError for the first of `references` (place, schema) that breaks a rule.

    O(length of all references): a chain's end is remembered for every link of it.
    """
    if not references:
        return
    if first_nested_id is not None:
        raise BrokenRuleError(
            first_nested_id,
            "nested_identifier",
            "references are not supported beside a nested $id; remove it",
        )
    follow = _References(root)
    for here, schema in references:
        follow.add(here, schema)
    for here, schema in references:
        follow.check(here, schema)


class _References:
    def __init__(self, root: object) -> None:
        self._root = root
        # By identity: equal schemas at two places may be one object, and mean the same.
        self._targets: dict[int, object] = {}
        self._ends: dict[int, _ChainEnd] = {}

    def add(self, here: Path, schema: Mapping[str, object]) -> None:
        self._targets[id(schema)] = self._target(schema, here)

    def _target(self, schema: Mapping[str, object], here: Path) -> object:
        tokens = parse_ref(str(schema["$ref"]))
        error: RefError | None
        target: object = None
        if isinstance(tokens, RefError):
            error = tokens
        else:
            target, error = resolve(self._root, tokens)
        if error is not None:
            raise BrokenRuleError(here, *_REF_FAULTS[error], "$ref")
        return target

    def check(self, here: Path, schema: Mapping[str, object]) -> None:
        end = self._end(schema, here)
        is_object = "object" in _declared_types(schema) or "properties" in schema
        is_object = is_object or "patternProperties" in schema
        closed = schema.get("additionalProperties") is False
        if is_object and not closed and not end.closes:
            raise BrokenRuleError(
                here,
                "open_reference",
                "the reference must lead to an object with additionalProperties: false",
            )
        if here[0] is None and "type" not in schema and not end.is_object:
            raise BrokenRuleError(
                here,
                "root_representation",
                'the root must have "type": "object" or refer to a schema that has it',
            )

    def _end(self, schema: Mapping[str, object], here: Path) -> _ChainEnd:
        """What the schemas that `schema` refers to amount to, itself left out."""
        chain: list[int] = []
        on_chain: set[int] = set()
        at: object = schema
        while id(at) in self._targets and id(at) not in self._ends:
            if id(at) in on_chain:
                raise BrokenRuleError(
                    here, "reference_cycle", "the reference leads back to itself; remove it"
                )
            chain.append(id(at))
            on_chain.add(id(at))
            at = self._targets[id(at)]
        end = self._ends.get(id(at), _NO_END)
        for link in reversed(chain):
            end = _and_target(self._targets[link], end)
            self._ends[link] = end
        return end if chain else self._ends[id(schema)]


@dataclass(frozen=True, slots=True)
class _ChainEnd:
    closes: bool
    is_object: bool


_NO_END: Final = _ChainEnd(closes=False, is_object=False)


def _and_target(target: object, end: _ChainEnd) -> _ChainEnd:
    schema = as_object(target)
    if schema is None:
        return _NO_END
    declared = _declared_types(schema)
    is_object = declared == {"object"} if declared else end.is_object and "anyOf" not in schema
    return _ChainEnd(
        closes=schema.get("additionalProperties") is False or end.closes, is_object=is_object
    )


def _declared_types(schema: Mapping[str, object]) -> set[object]:
    declared = schema.get("type", [])
    return {declared} if isinstance(declared, str) else set(as_array(declared) or ())
