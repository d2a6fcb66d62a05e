"""Notes on whole schemas: what is given up, or left free, keyword by keyword."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final

from toolrail.schema.enforcement import Ledger, Note, SchemaReport
from toolrail.schema.faults import Path
from toolrail.schema.locations import as_object, children
from toolrail.schema.sources import text

CONSTRAINTS: Final = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "contains",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "if",
        "items",
        "maxContains",
        "maxItems",
        "maxLength",
        "maximum",
        "maxProperties",
        "minContains",
        "minItems",
        "minLength",
        "minimum",
        "minProperties",
        "multipleOf",
        "not",
        "oneOf",
        "pattern",
        "patternProperties",
        "prefixItems",
        "properties",
        "propertyNames",
        "$ref",
        "required",
        "then",
        "type",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    }
)
"""Keywords that rule values out; all others say nothing that could be enforced."""

_MAX_MARKS: Final = 200
"""Keywords that are named of a schema that is given up as a whole."""


def free(schema: object, reason: str, detail: str) -> SchemaReport:
    """The report of a schema that no grammar holds: every keyword is checked after generation."""
    ledger = Ledger()
    mark(ledger, schema, Note("", "checked_after", reason, detail))
    return ledger.report()


def mark(ledger: Ledger, schema: object, note: Note, path: Path = (None, ())) -> None:
    """Puts the note on the constraints in a literal schema, the first `_MAX_MARKS` of them."""
    pending: deque[tuple[object, Path]] = deque([(schema, path)])
    marks = _MAX_MARKS
    while pending and marks > 0:
        value, here = pending.popleft()
        members = as_object(value)
        if members is None:
            continue
        for keyword in members:
            if keyword in CONSTRAINTS:
                ledger.note(replace(note, path=text(here, keyword)))
                marks -= 1
        pending.extend((child, (here, tokens)) for tokens, child in children(members))
