r"""mistral: Mistral, Mixtral, Nemo, Magistral.

```
[THINK]hm[/THINK]Text[TOOL_CALLS]get_weather[ARGS]{"location": "NYC"}
[TOOL_CALLS]get_weather{"location": "NYC"}[TOOL_CALLS]get_time{"timezone": "EST"}
[TOOL_CALLS][{"name": "get_weather", "arguments": {"location": "NYC"}, "id": "abc123DEF"}]
[TOOL_CALLS]get_weather[CALL_ID]abc123DEF[ARGS]{"location": "NYC"}
```

Four ways to write a call, by tokenizer version; production output mixes them, so all are read and
the tag lets the model write the two that templates ask for: the array and the name before `[ARGS]`.
Markers are single special tokens. The closer `[/TOOL_CALLS]` is optional and eaten wherever it is.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, partial
from typing import Final

from toolrail.arguments.json_value import JsonValue, Read
from toolrail.parsing import ParseSpec, StreamParser
from toolrail.parsing.blocks import Block, ObjectsBlock, Reading
from toolrail.parsing.turn_grammar import Grammar
from toolrail.render import render_turn
from toolrail.scan import Buffer, marker_set
from toolrail.structural_tag import TagFormat, either, triggered
from toolrail.structural_tag.templated import (
    CallMarkers,
    TagRequest,
    after_reasoning,
    call_tag,
    calls_only,
    reasoning_strings,
    templated_tag,
)
from toolrail.syntax import Args, Lit, Name, Objects, ReasoningMarkers, Section, Syntax
from toolrail.templated import PromptPolicy, grammar, templated, turn_parser

OPENER: Final = "[TOOL_CALLS]"
CLOSER: Final = "[/TOOL_CALLS]"
ARGS: Final = "[ARGS]"
CALL_ID: Final = "[CALL_ID]"
THINK: Final = ReasoningMarkers("[THINK]", "[/THINK]")
OBJECTS: Final = Objects(array=True, id="id")
ARRAY: Final = Syntax(call=(OBJECTS,), section=Section(OPENER, ""), strays=(CLOSER, ARGS, CALL_ID))
NAMED: Final = Syntax(call=(Lit(OPENER), Name(), Lit(ARGS), Args(), Lit("")))
MARKERS: Final = CallMarkers((OPENER,), ARRAY.strays)

_MAX_HEADER: Final = 512
"""Longest text after the opener that is still taken for a name."""
_NAME: Final = re.compile(r"[\w.:-]+\Z")
_AFTER_NAME: Final = marker_set(ARGS, CALL_ID, "{")
_AFTER_ID: Final = marker_set(ARGS, "{")


class _NamedCall:
    """One call whose name stands before its arguments: `NAME [CALL_ID]ID [ARGS] {…}`."""

    def __init__(self, reading: Reading) -> None:
        self._reading: Final = reading
        self._header: list[str] = []
        self._name: str | None = None
        self._id: str | None = None
        self._certain = False
        self._args: JsonValue | None = None

    @property
    def begun(self) -> bool:
        """Whether the call began."""
        return self._args is not None

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        while self._args is None:
            status = self._read_header(buffer, final)
            if status is not None:
                return status
        self._reading.output.arguments(self._args.read(buffer, final=final))
        if self._args.status is Read.DONE:
            self._reading.output.end()
        return self._args.status

    def _read_header(self, buffer: Buffer, final: bool) -> Read | None:
        markers = _AFTER_NAME if self._name is None else _AFTER_ID
        text, marker = buffer.until(markers, final=final)
        self._header.append(text)
        if sum(map(len, self._header)) > _MAX_HEADER:
            return Read.BAD
        if marker is None:
            return Read.BAD if final else Read.MORE
        header = "".join(self._header).strip()
        self._header = []
        if self._name is None:
            self._name = header
        elif header:
            self._id = header
        if not _NAME.match(self._name):
            return Read.BAD
        if marker == "{":
            return self._begin()
        buffer.take(len(marker))
        self._certain = True
        return None

    def _begin(self) -> Read | None:
        assert self._name is not None
        reading = self._reading
        if reading.careful and not self._certain and self._name not in reading.tools:
            return Read.BAD
        reading.output.start(self._name, self._id)
        self._args = JsonValue()
        return None


class _Calls:
    """What follows the opener: an array of call objects, or a name."""

    def __init__(self, reading: Reading) -> None:
        self._reading: Final = reading
        self._form: Block | None = None

    @property
    def begun(self) -> bool:
        """Whether a call (or the array) began."""
        return self._form is not None and self._form.begun

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        if self._form is None:
            buffer.skip_space()
            first = buffer.peek()
            if not first:
                return Read.MORE
            objects = first in "[{"
            self._form = (
                ObjectsBlock(OBJECTS, ARRAY, self._reading.output)
                if objects
                else _NamedCall(self._reading)
            )
        return self._form.read(buffer, final=final)


@cache
def _grammar(reasoning: ReasoningMarkers | None) -> Grammar:
    return replace(grammar(ARRAY, reasoning), block=_block)


def _block(opener: str, reading: Reading) -> Block:
    return _Calls(reading)


def _parser(spec: ParseSpec, reasoning: ReasoningMarkers | None) -> StreamParser:
    return turn_parser(_grammar(reasoning), spec)


def _tag(request: TagRequest) -> TagFormat | None:
    policy, options = request.policy, request.options
    if policy.choice == "none" or not policy.tools:
        return templated_tag(ARRAY, MARKERS, request)
    named = [call_tag(NAMED, tool, options) for tool in policy.tools]
    objects = [call_tag(ARRAY, tool, options) for tool in policy.tools]
    array = calls_only(ARRAY, objects, single=policy.single)
    if request.response is not None:
        calls = calls_only(NAMED, named, single=policy.single)
        body = either([array, calls, request.response])
    elif policy.choice == "named":
        body = either([array, *named])
    else:
        strings = (*MARKERS.closers, *reasoning_strings(request.reasoning))
        body = triggered(
            OPENER,
            [array, *named],
            excludes=strings if request.excludes else (),
            at_least_one=policy.choice == "required",
            stop_after_first=policy.single,
        )
    return after_reasoning(body, ARRAY, MARKERS, request)


FAMILY: Final = replace(
    templated(
        name="mistral",
        source="https://github.com/mistralai/mistral-common, tokenizers v3, v7, v11, v13",
        syntax=ARRAY,
        reasoning=THINK,
        reasoning_names=("mistral",),
        special=(OPENER, CLOSER, ARGS, CALL_ID, THINK.begin, THINK.end),
        prompt=PromptPolicy(call_id="nine_alphanumeric"),
        routes=frozenset({"1"}),
    ),
    parser=_parser,
    tag=_tag,
    render=partial(render_turn, NAMED, reasoning=THINK),
)
