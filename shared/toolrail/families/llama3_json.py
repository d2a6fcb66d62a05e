r"""llama3_json: Llama 3, 3.1, 3.2, 3.3.

```
<|python_tag|>{"name": "get_weather", "parameters": {"location": "NYC"}}
{"name": "get_weather", "parameters": {"location": "NYC"}}; {"name": "get_time", "parameters": {}}
```

The tag is one special token, and most checkpoints leave it out: then the whole output is call
objects, believed once the first names an offered tool. `parameters` and `arguments` are equal.
`<|eom_id|>` and `<|eot_id|>` are eaten.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Final

from toolrail.parsing import ParseSpec, StreamParser
from toolrail.parsing.bare import BelievedObjects
from toolrail.parsing.blocks import Block, Reading
from toolrail.parsing.turn_grammar import Grammar
from toolrail.structural_tag import (
    TagFormat,
    TagOptions,
    any_text,
    const,
    either,
    optional,
    regex,
    sequence,
    star,
    tag,
    triggered,
)
from toolrail.structural_tag.arguments import held_arguments
from toolrail.structural_tag.templated import (
    CallMarkers,
    TagRequest,
    after_reasoning,
    call_tag,
    calls_only,
    reasoning_strings,
)
from toolrail.syntax import JSON, Objects, ReasoningMarkers, Section, Syntax
from toolrail.templated import grammar, templated, turn_parser
from toolrail.tools import Tool

PYTHON_TAG: Final = "<|python_tag|>"
ENDS: Final = ("<|eom_id|>", "<|eot_id|>")
OBJECTS: Final = Objects(arguments=("parameters", "arguments"), separator="; ")
SYNTAX: Final = Syntax(call=(OBJECTS,), section=Section(PYTHON_TAG, ""), strays=ENDS)
BARE: Final = Syntax(call=(OBJECTS,))
MARKERS: Final = CallMarkers((PYTHON_TAG,), ENDS)
_PROSE: Final = r"\s*([^\s{<]|<[^|])"
"""How a text begins that is neither a bare call nor the tag."""


def _first(reading: Reading) -> Block:
    return BelievedObjects(OBJECTS, reading)


@cache
def _grammar(reasoning: ReasoningMarkers | None) -> Grammar:
    return replace(grammar(SYNTAX, reasoning), first=_first)


def _parser(spec: ParseSpec, reasoning: ReasoningMarkers | None) -> StreamParser:
    return turn_parser(_grammar(reasoning), spec)


def _tag(request: TagRequest) -> TagFormat | None:
    policy = request.policy
    if policy.choice == "none":
        names = [json.dumps(tool.name, ensure_ascii=False) for tool in policy.tools]
        body = request.response or any_text([PYTHON_TAG, *names])
        return after_reasoning(body, SYNTAX, MARKERS, request) if request.response else body
    if not policy.tools:
        return None
    tags = [call_tag(BARE, tool, request.options) for tool in policy.tools]
    bare = calls_only(BARE, tags, single=policy.single)
    calls = sequence([optional(const(PYTHON_TAG)), bare])
    if request.response is not None:
        body = either([calls, request.response])
    elif policy.choice == "auto":
        body = either([bare, *_prose_and_calls(_tagged(request, tags), request)])
    else:
        body = calls
    return after_reasoning(body, SYNTAX, MARKERS, request)


def _tagged(request: TagRequest, tags: Sequence[TagFormat]) -> list[TagFormat]:
    """Calls after the tag; the last one's brace is the end that the engine wants a tag to have."""
    between = star(sequence([either(tags), const(OBJECTS.separator)]))
    before = [] if request.policy.single else [between]
    return [
        tag(PYTHON_TAG, sequence([*before, *_open_call(tool, request.options)]), "}")
        for tool in request.policy.tools
    ]


def _open_call(tool: Tool, options: TagOptions) -> tuple[TagFormat, TagFormat]:
    """A call object less its last brace."""
    name = json.dumps(tool.name, ensure_ascii=False)
    begin = f'{{"{OBJECTS.name}": {name}, "{OBJECTS.arguments[0]}": '
    return const(begin), held_arguments(JSON, tool, options).format


def _prose_and_calls(tagged: Sequence[TagFormat], request: TagRequest) -> list[TagFormat]:
    """Text that begins as prose, or with the tag, in which tagged calls may stand."""
    # What may not be called would be read as text, and shown to the client.
    others = [json.dumps(name, ensure_ascii=False) for name in request.policy.others]
    strings = [f'{{"{OBJECTS.name}":{gap}{name}' for name in others for gap in (" ", "")]
    strings += (*ENDS, *reasoning_strings(request.reasoning)) if request.excludes else ()
    free = partial(
        triggered,
        PYTHON_TAG,
        tagged,
        excludes=strings,
        stop_after_first=request.policy.single,
    )
    return [
        regex(r"\s*"),
        free(at_least_one=True),
        sequence([regex(_PROSE), free(at_least_one=False)]),
    ]


FAMILY: Final = replace(
    templated(
        name="llama3_json",
        source="https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct/blob/main/tokenizer_config.json",
        syntax=SYNTAX,
        special=(PYTHON_TAG, *ENDS),
        routes=frozenset({"1"}),
    ),
    parser=_parser,
    tag=_tag,
)
