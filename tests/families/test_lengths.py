"""Lengths of raw values from the declared schema to the tag, and what the report says of them.

In the families whose tags count characters beside the guard of a closer: a value that the schema
allows is taken or the report says `narrowed`, one that it forbids is refused or the report says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.families.walking import tag_json
from toolrail.events import Call
from toolrail.families import Dialect, dialect, families
from toolrail.grammar import CompiledGrammar, accepts, compile_tag
from toolrail.schema.normalise import Normalised, normalise
from toolrail.schema.styles import style_named
from toolrail.structural_tag import TagOptions
from toolrail.syntax import NotationStyle, XmlStyle
from toolrail.tools import Tool, ToolPolicy

COUNTING = ["deepseek_v3_2", "deepseek_v4", "deepseek_v41", "kimi_k3", "muse_glimmer"]
COUNTING += ["gemma4", "minimax_m3"]
OPTIONS = {"guarded": TagOptions(), "free": TagOptions(exclude_special_tokens=False)}
EXACT = {"deepseek_v41", "kimi_k3", "gemma4", "minimax_m3"}
"""Those in which a counted value can be whatever another can."""


def held(
    pair: Dialect, text: Mapping[str, object], options: TagOptions, **root: object
) -> tuple[CompiledGrammar, Normalised]:
    declared = {
        "type": "object",
        "properties": {"text": text},
        "required": ["text"],
        "additionalProperties": False,
        **root,
    }
    found = normalise(declared, style=pair.argument_style)
    tool = Tool("write", found.schema)
    assert pair.left_free(tool, options) == ()
    tag = pair.tag(ToolPolicy("named", (tool,)), "none", options)
    assert tag is not None
    return compile_tag(tag_json(tag)), found


def takes(pair: Dialect, grammar: CompiledGrammar, value: str) -> bool:
    arguments = json.dumps({"text": value}, ensure_ascii=False)
    return accepts(grammar, pair.render([Call("write", arguments)]))


def values(low: int, high: int) -> Iterator[str]:
    """Values of every length around the bounds, with what begins a closer at every such place."""
    for length in sorted({0, 1, low - 1, low, low + 1, high - 1, high, high + 1}):
        if length < 0:
            continue
        yield from ("a" * length, "é" * length, "東" * length, "😀" * length)
        for piece in ("<", "<p>", "</p>", "<<", '"', " ", "\n", "</", "<|", "｜"):
            for at in {0, low - 2, low - 1, low, high - 3, length - len(piece)}:
                if 0 <= at <= length - len(piece):
                    yield "b" * at + piece + "c" * (length - len(piece) - at)


ENFORCED = {"minLength": "enforced", "maxLength": "enforced"}
BOUNDS = {
    # bounds → state of each, whether values are narrowed where the family counts exactly
    "longest": ({"maxLength": 5}, {"maxLength": "enforced"}, False),
    "a long one": ({"maxLength": 3_000}, {"maxLength": "enforced"}, False),
    "shortest": ({"minLength": 2}, {"minLength": "enforced"}, False),
    "both": ({"minLength": 2, "maxLength": 4}, ENFORCED, False),
    "one only": (
        {"minLength": 3, "maxLength": 3},
        ENFORCED,
        False,
    ),
    "far apart": ({"minLength": 1, "maxLength": 310}, {"maxLength": "enforced"}, True),
    "high": ({"minLength": 40, "maxLength": 310}, {"maxLength": "enforced"}, True),
    "too high": ({"minLength": 300, "maxLength": 310}, {"minLength": "checked_after"}, False),
}


@pytest.mark.parametrize("kind", BOUNDS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("family", COUNTING)
def test_lengths_are_held_and_the_report_is_exact(family: str, options: str, kind: str) -> None:
    bounds, expected, narrowed = BOUNDS[kind]
    pair = dialect(family, family)
    grammar, found = held(pair, {"type": "string", **bounds}, OPTIONS[options])
    states = {note.path.rpartition("/")[2]: note for note in found.notes}
    for keyword, state in expected.items():
        told = states[keyword].status if keyword in states else "enforced"
        assert told == state
    if family in EXACT:
        assert any(note.reason == "narrowed" for note in found.notes) == narrowed
    low, high = bounds.get("minLength", 0), bounds.get("maxLength", 60)
    refused = 0
    for value in values(low, high):
        shortest = low if expected.get("minLength") != "checked_after" else 0
        fits = shortest <= len(value) <= bounds.get("maxLength", 10_000)
        taken = takes(pair, grammar, value)
        assert taken <= fits, value
        refused += fits and not taken
    assert not refused or any(note.reason == "narrowed" for note in found.notes)


@pytest.mark.parametrize("family", COUNTING)
def test_a_bounded_value_may_begin_with_and_hold_markup(family: str) -> None:
    pair = dialect(family, family)
    for bounds in ({"maxLength": 300}, {"minLength": 1}, {"minLength": 1, "maxLength": 300}):
        grammar, _ = held(pair, {"type": "string", **bounds}, OPTIONS["guarded"])
        for value in ("<p>a</p>", "a < b", "<", "<html>\n<p>\n</html>", "x << y", "</p>"):
            assert takes(pair, grammar, value), value


@pytest.mark.parametrize("family", COUNTING)
def test_lengths_are_held_wherever_they_are_declared(family: str) -> None:
    pair = dialect(family, family)
    bound = {"type": "string", "minLength": 2, "maxLength": 3}
    declared: list[tuple[dict[str, object], dict[str, object], str]] = [
        ({"$ref": "#/$defs/Short"}, {"$defs": {"Short": bound}}, "#/$defs/Short"),
        ({"anyOf": [bound, {"type": "integer"}]}, {}, "#/properties/text/anyOf/0"),
        ({"allOf": [{"type": "string"}, bound]}, {}, "#/properties/text/allOf/1"),
    ]
    for text, root, place in declared:
        grammar, found = held(pair, text, OPTIONS["guarded"], **root)
        known = {*found.report.enforced, *(note.path for note in found.notes)}
        assert {f"{place}/minLength", f"{place}/maxLength"} <= known
        assert found.report.status == "enforced"
        for value, taken in (("<", False), ("<p", True), ("東東東", True), ("<p>x", False)):
            assert takes(pair, grammar, value) == taken, (place, value)


@pytest.mark.parametrize("family", COUNTING)
@pytest.mark.parametrize("kind", ["any order", "open"])
def test_lengths_are_held_in_any_order_and_beside_other_arguments(family: str, kind: str) -> None:
    pair = dialect(family, family)
    declared = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 2, "maxLength": 3},
            "z": {"type": "integer"},
        },
        "required": ["text"],
        "additionalProperties": kind == "open",
    }
    any_order = kind == "any order"
    found = normalise(declared, style=pair.argument_style, any_order=any_order)
    tool, options = Tool("write", found.schema), TagOptions(tool_arguments_any_order=any_order)
    assert pair.left_free(tool, options) == ()
    tag = pair.tag(ToolPolicy("named", (tool,)), "none", options)
    assert tag is not None
    grammar = compile_tag(tag_json(tag))
    writes = [({"text": "<p"}, True), ({"text": "<"}, False), ({"text": "<p>x"}, False)]
    writes += [({"text": "<p", "z": 1}, True), ({"z": 1, "text": "<p"}, any_order)]
    if family not in ("gemma4", "minimax_m3"):  # in whose notations names are another matter
        writes.append(({"text": "<p", "other": "x"}, kind == "open"))
    for arguments, taken in writes:
        assert accepts(grammar, pair.render([Call("write", json.dumps(arguments))])) == taken


def test_strings_beyond_the_budget_are_checked_after_and_that_is_said() -> None:
    pair = dialect("deepseek_v41", "deepseek_v41")
    bound = {"type": "string", "minLength": 1, "maxLength": 300}
    names = [f"p{at}" for at in range(20)]
    declared = {"type": "object", "properties": dict.fromkeys(names, bound), "required": names}
    found = normalise(declared, style=pair.argument_style)
    states = [note.status for note in found.notes if note.path.endswith("/minLength")]
    assert states.count("enforced") >= 4
    assert states.count("checked_after") >= 4
    lost = [note.path for note in found.notes if note.status != "enforced"]
    assert all(path.endswith("/minLength") for path in lost)
    kept: Any = found.schema["properties"]
    for name in names:
        assert ("minLength" in kept[name]) == (f"#/properties/{name}/minLength" not in lost)
        assert kept[name]["maxLength"] == 300


def test_the_style_of_a_family_counts_as_its_record_does() -> None:
    styles = {f.arguments.style: f.arguments for f in families()}
    for name, arguments in styles.items():
        if isinstance(arguments, XmlStyle):
            assert style_named(name).counts == arguments.counted
            assert arguments.close.startswith(arguments.counted)
        elif isinstance(arguments, NotationStyle):
            raw = not arguments.values.escaped
            assert style_named(name).counts == (arguments.values.guard if raw else "")


def test_what_a_pattern_loses_at_the_beginning_of_a_text_is_said() -> None:
    pair = dialect("muse_glimmer", "muse_glimmer")
    cases = (("^[a-z]+$", False), ("^.{2,}$", True), ("^[a-z\"' ]*$", True), ("x", True))
    for pattern, told in cases:
        declared = {"type": "object", "properties": {"t": {"type": "string", "pattern": pattern}}}
        found = normalise(declared, style=pair.argument_style)
        reasons = [note.reason for note in found.notes if note.path.endswith("/pattern")]
        assert (reasons == ["narrowed"]) == told, pattern
        left = pair.left_free(Tool("f", found.schema), TagOptions())
        assert bool(left) == (pattern == "x")
