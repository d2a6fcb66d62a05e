"""A patch tool's grammar in every family's calls: what the tag lets through is a patch."""

from __future__ import annotations

from functools import cache

import pytest

from tests.families.loading import FAMILIES, random_cuts
from tests.grammars.drawing import Drawing
from tests.grammars.patch import BAD, GOOD, TOOL, is_patch
from toolrail.events import Call, Item, Reasoning, assemble
from toolrail.families import Dialect, dialect, family
from toolrail.grammar import accepts
from toolrail.parsing import ParseSpec
from toolrail.parsing.custom import CustomCalls, wrapped
from toolrail.structural_tag import TagFormat, TagOptions
from toolrail.syntax import NotationStyle, XmlStyle
from toolrail.tools import ToolPolicy

# Text that is JSON is read as such, so a text is written as JSON here: no template writes that.
QUOTED = ("muse_glimmer", "muse_spark")
HELD = [name for name in FAMILIES if name != "default"]
TARGETS = ("hermes", "qwen3_coder", "harmony", "deepseek_v41")


def pair(name: str) -> Dialect:
    own = family(name)
    return dialect(name, own.reasoning_names[0] if own.reasoning_names else None)


def tag(name: str, choice: str = "required") -> TagFormat:
    found = pair(name).tag(ToolPolicy(choice, (TOOL,)), "none", TagOptions())  # type: ignore[arg-type]
    assert found is not None
    return found


def inputs(name: str, wire: str, cuts: list[str]) -> list[str]:
    """The inputs of the calls that a text makes."""
    spec = ParseSpec(tool_parser=name, tools=(TOOL,), tool_choice="required", held=True)
    parser = pair(name).parser(spec)
    stage = CustomCalls({TOOL.name})
    events = [event for piece in cuts for event in parser.feed(piece)] + parser.finish()
    turn = assemble(out for event in events for out in stage.feed(event))
    assert not turn.incomplete_calls, wire
    assert all(call.custom for call in turn.calls), wire
    return [call.arguments for call in turn.calls]


@cache
def drawing(name: str) -> Drawing:
    style = family(name).arguments
    markers = [marker.text for marker in pair(name).markers]
    if isinstance(style, XmlStyle):
        markers += [style.close, style.reserved or style.close, style.open]
    if isinstance(style, NotationStyle):
        markers += [style.values.guard or '"']
    pieces = {
        piece for marker in markers for piece in (marker, marker[:2], marker[:-1], marker[1:])
    }
    words = ["*** Add File: ", "*** Update File: ", "@@ ", "+", "-", "a.py", *sorted(pieces)]
    return Drawing([*words, "*** Delete File: "], ["\n", "\\n", "*** End Patch"])


@pytest.mark.parametrize("name", HELD)
def test_a_patch_passes_and_nothing_else(name: str) -> None:
    def written(text: str) -> str:
        before: list[Item] = [Reasoning("hm")] if name == "beam" else []
        return family(name).render([*before, Call(TOOL.name, wrapped(text))])

    full = {"type": "structural_tag", "format": tag(name)}
    assert is_patch(GOOD)
    if name not in QUOTED:
        assert accepts(full, written(GOOD))
        assert inputs(name, written(GOOD), [written(GOOD)]) == [GOOD]
    for text in BAD:
        assert not is_patch(text)
        assert not accepts(full, written(text))


def walk(name: str, count: int) -> None:
    texts = drawing(name).texts(tag(name), count, name)
    assert len(texts) == count
    for wire in texts:
        found = inputs(name, wire, [wire])
        assert found, wire
        assert inputs(name, wire, random_cuts(wire, 3)) == found
        for text in found:
            assert is_patch(text), (wire, text)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_drawn_from_the_tag_is_a_patch(name: str) -> None:
    walk(name, 4)


@pytest.mark.walk
@pytest.mark.parametrize("name", HELD)
def test_what_is_drawn_from_the_tag_is_a_patch_walked(name: str) -> None:
    walk(name, 25)
