"""The preflight's case rows: the small ones from a file, those at the budgets made here.

A row is `{"case", "schema", "status": 200 or 400, "at": path of the fault}`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROWS = Path(__file__).parent / "cases" / "strict_preflight.jsonl"


def closed(properties: dict[str, object], **more: object) -> dict[str, object]:
    """A closed object that requires all its properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }


def integers(prefix: str, count: int) -> dict[str, object]:
    return {f"{prefix}{i}": {"type": "integer"} for i in range(count)}


def a(schema: object, **more: object) -> dict[str, object]:
    """An object whose one property `a` has the schema."""
    return closed({"a": schema}, **more)


def long_enum(count: int, characters: int) -> list[object]:
    """`count` different strings with `characters` characters in all."""
    entries: list[object] = [f"{i:04d}" for i in range(count)]
    entries[0] = "0000" + "x" * (characters - 4 * count)
    return entries


def at_the_budgets() -> list[dict[str, Any]]:
    string = {"type": "string"}

    def row(case: str, schema: object, at: str | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = {"status": 400, "at": at} if at else {"status": 200}
        return {"case": case, "schema": schema} | answer

    return [
        row("props_5000", closed(integers("p", 5000))),
        row("props_5001", closed(integers("p", 5001)), "#"),
        row(
            "props_5000_nested",
            closed({"a": closed(integers("x", 2499)), "b": closed(integers("y", 2499))}),
        ),
        row(
            "props_5001_nested",
            closed({"a": closed(integers("x", 2500)), "b": closed(integers("y", 2499))}),
            "#/properties/b",
        ),
        row(
            "props_5001_unused_defs",
            closed(integers("p", 2500), **{"$defs": {"U": closed(integers("p", 2501))}}),
            "#/$defs/U",
        ),
        row(
            "pattern_props_count_5001",
            closed(
                {
                    "o": {
                        "type": "object",
                        "patternProperties": {f"^x{i}$": string for i in range(5001)},
                        "additionalProperties": False,
                    }
                }
            ),
        ),
        row("enum_1000_ints", a({"enum": list(range(1000))})),
        row("enum_1001_ints", a({"enum": list(range(1001))}), "#/properties/a"),
        row(
            "enum_1000_strings_split",
            closed({f"a{i}": {"enum": [str(n) for n in range(250)]} for i in range(4)}),
        ),
        row(
            "enum_1001_unused_defs",
            a({"enum": list(range(501))}, **{"$defs": {"U": {"enum": list(range(500))}}}),
            "#/$defs/U",
        ),
        row("chars_120000_name", closed({"n" * 120_000: string})),
        row("chars_120001_name", closed({"n" * 120_001: string}), "#"),
        row("chars_120000_unicode", closed({"é" * 120_000: string})),
        row("chars_120000_astral", closed({"😀" * 120_000: string})),
        row("chars_120001_astral", closed({"😀" * 120_001: string}), "#"),
        row("chars_120000_const", a({"const": "c" * 119_999})),
        row("chars_120001_const", a({"const": "c" * 120_000}), "#/properties/a"),
        row("chars_120000_enum_small", a({"enum": ["e" * 119_999]})),
        row("chars_120000_defname", a(string, **{"$defs": {"D" * 119_999: string}})),
        row("chars_description_huge", a({"type": "string", "description": "d" * 200_000})),
        row("chars_const_object_string", a({"const": {"k": "c" * 130_000}})),
        row("chars_enum_mixed_strings", a({"enum": ["e" * 120_001, 1]}), "#/properties/a"),
        row(
            "chars_pattern_name",
            closed(
                {
                    "o": {
                        "type": "object",
                        "patternProperties": {"^" + "x" * 120_001: string},
                        "additionalProperties": False,
                    }
                }
            ),
        ),
        row("chars_required_counted", closed({"n" * 60_000: string})),
        row("enum250_15001", a({"enum": long_enum(250, 15_001)})),
        row("enum251_15000", a({"enum": long_enum(251, 15_000)})),
        row("enum251_15001_null", a({"enum": [*long_enum(251, 15_001), None]})),
        row(
            "enum251_15001_unused_def",
            a(string, **{"$defs": {"U": {"enum": long_enum(251, 15_001)}}}),
            "#/$defs/U/enum",
        ),
    ]


def rows() -> list[dict[str, Any]]:
    """All rows."""
    lines = ROWS.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines] + at_the_budgets()
