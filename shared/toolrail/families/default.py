r"""default: no markers. The whole output is a JSON call object or an array of them.

`{"name": "get_weather", "arguments": {"location": "NYC"}}`, `[{…}, {…}]`

Calls only when every element names an offered tool; any other JSON, prose around JSON and
unfinished JSON are text. The openers that this preset has in one published source are read as well.
Nothing tells a call from an answer but the offered names, so there is no structural tag: prefer the
parser of the model.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Final

from toolrail.parsing import ParseSpec, StreamParser
from toolrail.parsing.bare import WholeObjects
from toolrail.parsing.blocks import Block, Reading
from toolrail.parsing.turn_grammar import Grammar
from toolrail.render import render_turn
from toolrail.structural_tag import TagFormat
from toolrail.structural_tag.templated import TagRequest
from toolrail.syntax import Objects, ReasoningMarkers, Section, Syntax
from toolrail.templated import grammar, templated, turn_parser

OBJECTS: Final = Objects(array=True)
SYNTAX: Final = Syntax(call=(OBJECTS,))
ONE_ARRAY: Final = Syntax(call=(OBJECTS,), section=Section("", ""))
LENIENT: Final = Syntax(
    call=(OBJECTS,), section=Section("<TOOLCALL>", "</TOOLCALL>", begins=("<|python_tag|>",))
)


def _first(reading: Reading) -> Block:
    return WholeObjects(OBJECTS, reading)


@cache
def _grammar(reasoning: ReasoningMarkers | None) -> Grammar:
    return replace(grammar(LENIENT, reasoning), first=_first)


def _parser(spec: ParseSpec, reasoning: ReasoningMarkers | None) -> StreamParser:
    return turn_parser(_grammar(reasoning), spec)


def _tag(request: TagRequest) -> TagFormat | None:
    return None


FAMILY: Final = replace(
    templated(
        name="default",
        source="specification: tool call parsing, Default parser",
        syntax=SYNTAX,
        special=("<|python_tag|>",),
        routes=frozenset({"1"}),
    ),
    parser=_parser,
    tag=_tag,
    never_beside=("minimax_append_think",),  # the text it puts first makes all of it text
    render=partial(render_turn, ONE_ARRAY),
)
