"""DeepSeek V4.1 under a tag: the start of a closer is reserved in arguments, and in nothing else.

The cases are those of the published change that introduced the reservation, with lengths held
beside it, which the engine by itself drops.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest

from tests.families.walking import tag_json
from toolrail.families import dialect
from toolrail.grammar import Matcher, Vocabulary, accepts, compile_tag
from toolrail.structural_tag import TagOptions
from toolrail.tools import StartsIn, Tool, ToolPolicy

GUARDED = TagOptions()
FREE = TagOptions(exclude_special_tokens=False)
TEXT = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
END = "</｜DSML｜ parameter>"
MALFORMED = (
    "</｜ parameter>",
    "</｜  parameter>",
    "</｜ unknown>",
    "</｜ invoke>",
    "</｜DSML｜parameter>",
)
CHOICES = ("auto", "required", "named")


def tag(
    schema: Mapping[str, object],
    choice: str = "named",
    options: TagOptions = GUARDED,
    *,
    family: str = "deepseek_v41",
    starts_in: StartsIn = "none",
    strict: bool | None = None,
) -> str:
    policy = ToolPolicy(choice, (Tool("write", schema, strict=strict),))
    found = dialect(family, family).tag(policy, starts_in, options)
    assert found is not None
    return tag_json(found)


def before(gap: str = " ", block: str = "calls") -> str:
    return (
        f'<｜DSML｜{gap}{block}>\n<｜DSML｜{gap}invoke name="write">\n'
        f'<｜DSML｜{gap}parameter name="text" string="true">'
    )


AFTER = f"{END}\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"


def takes(held: str, value: str) -> bool:
    return accepts(held, before() + value + AFTER)


def schemas(node: object) -> Iterator[Mapping[str, object]]:
    if isinstance(node, dict):
        if node.get("type") == "json_schema":
            yield node
        for value in node.values():
            yield from schemas(value)
    elif isinstance(node, list):
        for value in node:
            yield from schemas(value)


@pytest.mark.parametrize("strict", [None, False])
@pytest.mark.parametrize("start", ["none", "reasoning"])
@pytest.mark.parametrize("choice", CHOICES)
def test_arguments_carry_the_reservation(choice: str, start: StartsIn, strict: bool | None) -> None:
    for options, expected in ((GUARDED, ["</｜"]), (FREE, None)):
        held = json.loads(tag(TEXT, choice, options, starts_in=start, strict=strict))
        (found,) = schemas(held)
        assert found["style"] == "deepseek_v4_1_xml"
        assert found.get("excludes") == expected


@pytest.mark.parametrize("choice", CHOICES)
def test_a_malformed_closer_cannot_be_written(choice: str) -> None:
    guarded, free = tag(TEXT, choice), tag(TEXT, choice, FREE)
    for closer in MALFORMED:
        assert not takes(guarded, f"hello{closer} world")
        assert takes(free, f"hello{closer} world")
    for value in ("", "hello", "São 東京", "a </ b", "</p>", "a｜b", "<<</"):
        assert takes(guarded, value), value
        assert takes(free, value), value


def test_an_unfinished_start_of_a_closer_is_not_closed_by_force() -> None:
    matcher = Matcher(compile_tag(tag(TEXT)))
    assert matcher.accept_string(before() + "hello</｜")
    assert not matcher.can_end
    assert matcher.accept_string("DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>")
    assert matcher.can_end


SPLITS = {
    "content and closer in one token": (["hello" + END], True, True),
    "the closer is a token": (["hello", END], True, True),
    "split after the slash": (["hello</", "｜DSML｜ parameter>"], True, True),
    "split after the prefix": (["hello</｜", "DSML｜ parameter>"], True, True),
    "a malformed one in one token": (["hello</｜ parameter>", END], False, True),
    "a malformed one in pieces": (["hello<", "/｜", " parameter>", END], False, True),
}


@pytest.mark.parametrize("case", SPLITS)
def test_token_boundaries_make_no_difference(case: str) -> None:
    pieces, guarded, free = SPLITS[case]
    tokens = [bytes([byte]) for byte in range(256)] + [piece.encode() for piece in pieces]
    vocabulary = Vocabulary([*tokens, b"<end>"], (len(tokens),))
    for options, expected in ((GUARDED, guarded), (FREE, free)):
        matcher = Matcher(compile_tag(tag(TEXT, options=options), vocabulary))
        assert matcher.accept_string(before())
        taken = all(matcher.accept_token(256 + at) for at in range(len(pieces)))
        assert taken == expected


def test_older_dialects_and_held_answers_are_as_they_were() -> None:
    other = tag(TEXT, family="deepseek_v4")
    value = "a</｜ parameter> b"
    closed = "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    assert accepts(other, before("", "tool_calls") + value + closed)
    assert all("excludes" not in node for node in schemas(json.loads(other)))
    answer = {"type": "json_schema", "json_schema": {"type": "string"}}
    policy = ToolPolicy("auto", (Tool("write", TEXT),))
    held = dialect("deepseek_v41", "deepseek_v41").tag(policy, "response", GUARDED, response=answer)
    assert held is not None
    assert accepts(tag_json(held), json.dumps(value, ensure_ascii=False))


BOUNDED = {
    "both": ({"minLength": 2, "maxLength": 3}, ["ab", "a东c", "</", "a</"], ["", "a", "abcd"]),
    "longest": ({"maxLength": 3}, ["", "abc", "<a>"], ["abcd", "<a>b"]),
    "shortest": ({"minLength": 2}, ["ab", "</", "<" * 40, "a" * 500], ["", "a", "<"]),
    "far apart": ({"minLength": 1, "maxLength": 400}, ["<p>", "a" * 400], ["", "a" * 401]),
}


@pytest.mark.parametrize("kind", BOUNDED)
def test_lengths_are_held_beside_the_reservation(kind: str) -> None:
    bounds, good, bad = BOUNDED[kind]
    schema = {**TEXT, "properties": {"text": {"type": "string", **bounds}}}
    held = tag(schema)
    for value in good:
        assert takes(held, value), value
    for value in (*bad, "</｜ x", "a</｜"):
        assert not takes(held, value), value
    tool = Tool("write", schema)
    assert dialect("deepseek_v41", "deepseek_v41").left_free(tool, GUARDED) == ()


def test_a_length_that_is_too_long_to_count_is_said() -> None:
    pair = dialect("deepseek_v41", "deepseek_v41")
    bounds = {"minLength": 300, "maxLength": 400}
    schema = {**TEXT, "properties": {"text": {"type": "string", **bounds}}}
    (line,) = pair.left_free(Tool("write", schema), GUARDED)
    assert line.startswith("properties/text/minLength")
    held = tag(schema)
    assert takes(held, "short")
    assert not takes(held, "a" * 401)


@pytest.mark.parametrize(
    ("declared", "good", "bad"),
    [
        ({"type": "string", "pattern": "^.{2,}$"}, ["ab"], ["a", "</｜ a"]),
        ({"enum": ["plain", "</｜ kept"]}, ["plain", "</｜ kept"], ["other"]),
    ],
)
def test_other_constraints_hold_as_well(
    declared: Mapping[str, object], good: list[str], bad: list[str]
) -> None:
    held = tag({**TEXT, "properties": {"text": declared}})
    for value in good:
        assert takes(held, value), value
    for value in bad:
        assert not takes(held, value), value


def test_values_inside_json_are_guarded_and_what_that_costs_is_said() -> None:
    inner = {
        "type": "object",
        "properties": {"a": {"type": "string", "minLength": 2}, "b": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    schema = {**TEXT, "properties": {"text": inner}}
    held = tag(schema)
    opening = before().replace('string="true"', 'string="false"')
    assert accepts(held, opening + '{"a": "xy", "b": "z"}' + AFTER)
    assert not accepts(held, opening + '{"a": "x</｜ y"}' + AFTER)
    assert not accepts(held, opening + '{"b": "z"}' + AFTER)
    free = dialect("deepseek_v41", "deepseek_v41").left_free(Tool("write", schema), GUARDED)
    assert [line.split(":")[0] for line in free] == ["properties/text/properties/a/minLength"]
