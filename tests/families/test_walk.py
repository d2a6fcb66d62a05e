"""The walk: what a compiled tag lets through, the parser reads, and nothing is lost or leaked.

A string that the grammar allows must parse to complete calls of offered tools with arguments that
their schemas allow, however it is cut, and no marker may show in text or reasoning.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import cache

import pytest
from jsonschema import Draft202012Validator

from tests.families.loading import FAMILIES, events, random_cuts
from tests.families.walking import SETTINGS, Setting, Walker, tag_of
from toolrail.events import Reasoning, Text, assemble
from toolrail.families import Dialect, dialect, family
from toolrail.parsing import ParseSpec
from toolrail.structural_tag import TagOptions
from toolrail.tools import Tool

FAST_PER_TAG = 2
WALK_PER_START = 200
SLOW_PER_TAG = 2_000
_WITHOUT_TAG = ("default",)
WALKED = [name for name in FAMILIES if name not in _WITHOUT_TAG]


@cache
def walker(name: str) -> tuple[Dialect, Walker]:
    own = family(name)
    pair = dialect(name, own.reasoning_names[0] if own.reasoning_names else None)
    return pair, Walker(pair)


@pytest.mark.parametrize("name", WALKED)
def test_walk(name: str) -> None:
    for setting in SETTINGS:
        if setting.strict and setting.parallel:  # the others where every choice and start is walked
            walk(name, setting, FAST_PER_TAG)


@pytest.mark.walk
@pytest.mark.parametrize("name", WALKED)
def test_walk_of_every_choice_and_start(name: str) -> None:
    """At least `WALK_PER_START` strings for each tool choice and start, over its settings."""
    starts = Counter((setting.choice, setting.starts_in) for setting in SETTINGS)
    for setting in SETTINGS:
        settings = starts[setting.choice, setting.starts_in]
        walk(name, setting, -(-WALK_PER_START // settings))


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("name", WALKED)
def test_long_walk(name: str, setting: Setting) -> None:
    walk(name, setting, SLOW_PER_TAG)


def walk(name: str, setting: Setting, count: int) -> None:
    """Draw and check `count` strings. A walk that wanders too long is drawn again."""
    pair, draws = walker(name)
    compiled = draws.compile(tag_of(pair, setting))
    random_ = random.Random(f"{name} {setting}")
    texts = (draws.walk(compiled, random_) for _ in range(4 * count))
    drawn = 0
    for text in texts:
        if text is not None:
            check(pair, setting, text)
            drawn += 1
            if drawn == count:
                return
    pytest.fail(f"only {drawn} of {count} walks ended")


def left_free(pair: Dialect, tool: Tool) -> set[str]:
    """The parameters of which the tag says that it does not hold all."""
    notes = pair.left_free(tool, TagOptions())
    return {note.split("/")[1].split(":")[0] for note in notes if note.startswith("properties/")}


def check(pair: Dialect, setting: Setting, text: str) -> None:
    """The parser reads `text` as the grammar meant it."""
    spec = ParseSpec(
        pair.tool_parser,
        pair.reasoning_parser,
        setting.tools,
        setting.policy.choice,
        setting.starts_in,
        held=True,
    )
    turn = assemble(events(spec, [text]))
    assert turn == assemble(events(spec, text)), (str(setting), text)
    assert turn == assemble(events(spec, random_cuts(text, text))), (str(setting), text)
    seen = (str(setting), text, turn)
    assert not turn.incomplete_calls, seen
    offered = {tool.name: tool for tool in setting.tools}
    for call in turn.calls:
        assert call.name in offered, seen
        arguments = json.loads(call.arguments)
        assert isinstance(arguments, dict), seen
        if setting.strict:
            schema = offered[call.name].parameters
            errors = list(Draft202012Validator(schema or {}).iter_errors(arguments))
            if errors:
                free = left_free(pair, offered[call.name])
                errors = [e for e in errors if not e.path or e.path[0] not in free]
            assert not errors, (*seen, errors)
    count = len(turn.calls)
    assert count >= (setting.choice in ("required", "named")), seen
    assert count <= (0 if setting.choice == "none" else 1 if setting.policy.single else count), seen
    for item in turn.items:
        if isinstance(item, (Text, Reasoning)):
            assert not [m.text for m in pair.markers if m.text in item.text], seen
