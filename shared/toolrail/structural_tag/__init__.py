"""The structural-tag vocabulary (xgrammar's wire objects) and the options that shape a tag.

Builders of single formats live here; what a family's tag looks like follows from its record in
`families/`. Nothing here imports xgrammar: a tag is plain JSON data.

Source of the wire objects: xgrammar 0.2.8, `StructuralTag` formats.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

TagFormat: TypeAlias = dict[str, object]
"""One xgrammar format object, e.g. `{"type": "any_text", "excludes": [...]}`."""


class TagOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The fields of `--structural-tag` (specification: *CLI Flags*), with its defaults."""

    scope: Literal["auto", "always"] = "always"
    schema: Literal["auto", "strict"] = "auto"
    allow_tool_calls_with_structured_output: bool = False
    exclude_special_tokens: bool | None = None
    reasoning_boundary: Literal["auto", "structural_tag", "backend"] = "auto"
    tool_arguments_any_order: bool = False
