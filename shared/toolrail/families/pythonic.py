r"""pythonic: Llama 4, and others that write calls as Python does.

```
[get_weather(location="NYC", days=3), get_time(timezone='EST')]
<|python_start|>[get_weather(location="NYC")]<|python_end|>
```

A list counts only when every element is a call with keyword arguments and, unless it stands in the
fence (two special tokens), every name is offered; everything else in brackets is text, and so is a
list that does not end. So nothing of a list goes out before its last bracket, unless a structural
tag holds it: then the bracket, an offered name and its parenthesis begin one for certain.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import IntEnum, auto
from functools import cache, partial
from typing import Final

from toolrail.arguments.json_value import Read
from toolrail.arguments.output import Output
from toolrail.arguments.python_literal import NOT_IN_NAMES, KeywordArguments
from toolrail.events import ArgumentsDelta, CallEnd, CallStart
from toolrail.families.family import Family, Marker, PromptPolicy
from toolrail.parsing import ParseSpec, StreamParser
from toolrail.parsing.blocks import Block, Reading
from toolrail.parsing.turn_grammar import Grammar
from toolrail.render import render_turn
from toolrail.scan import Buffer
from toolrail.structural_tag import TagFormat, any_text, ebnf, either
from toolrail.structural_tag.arguments import held_rules
from toolrail.structural_tag.templated import (
    CallMarkers,
    TagRequest,
    after_reasoning,
    reasoning_strings,
)
from toolrail.syntax import (
    Args,
    Lit,
    Name,
    Notation,
    NotationStyle,
    ReasoningMarkers,
    Section,
    Syntax,
)
from toolrail.templated import turn_parser

BEGIN: Final = "<|python_start|>"
END: Final = "<|python_end|>"
BRACKET: Final = "["
VALUES: Final = Notation(quotes=('"', "'"), constants=("True", "False", "None"))
PYTHON: Final = NotationStyle(
    "pythonic",
    replace(VALUES, object=("", ""), member=("", "=", ""), bare=NOT_IN_NAMES, quoted=False),
    VALUES,
)
SYNTAX: Final = Syntax(
    call=(Lit(""), Name(), Lit("("), Args(PYTHON), Lit(")")),
    section=Section(BRACKET, "]"),
    separator=", ",
    trail="",
)
MARKERS: Final = CallMarkers((BEGIN,), (END,))

_MAX_NAME: Final = 512
_NAME: Final = re.compile(r"[\w.-]*")


class _At(IntEnum):  # hashed for every piece of text, which an Enum does in Python
    FENCE = auto()  # after the fence, before the bracket
    ELEMENT = auto()
    NAME = auto()
    PARENTHESIS = auto()
    ARGUMENTS = auto()
    AFTER = auto()


class _CallList:
    """A list of calls, from after its bracket or its fence to its last bracket."""

    def __init__(self, opener: str, reading: Reading) -> None:
        self._fenced: Final = opener == BEGIN
        self._reading: Final = reading
        self._streams: Final = reading.held
        self._output: Final = reading.output if reading.held else Output()
        self._at = _At.FENCE if self._fenced else _At.ELEMENT
        self._name: list[str] = []
        self._calls = 0
        self._arguments: KeywordArguments | None = None
        self.begun = False

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        steps = {
            _At.FENCE: self._read_fence,
            _At.ELEMENT: self._read_element,
            _At.NAME: self._read_name,
            _At.PARENTHESIS: self._read_parenthesis,
            _At.ARGUMENTS: self._read_arguments,
            _At.AFTER: self._read_after,
        }
        status: Read | None = None
        while status is None:
            status = steps[self._at](buffer)
        if status is Read.DONE or (status is Read.MORE and final and self._fenced):
            self._dispatch()
        cut = status is Read.MORE and final and not self.begun
        return Read.BAD if cut else status

    def _dispatch(self) -> None:
        """It is a list of calls, the last perhaps cut."""
        self.begun = self.begun or self._calls > 0 or self._arguments is not None
        output = self._reading.output
        for event in () if self._streams else self._output.drain():
            match event:
                case CallStart(_, name):
                    output.start(name)
                case ArgumentsDelta(_, text):
                    output.arguments(text)
                case CallEnd():
                    output.end()
                case _:
                    raise AssertionError("a list of calls has nothing else")

    def _read_fence(self, buffer: Buffer) -> Read | None:
        following = _next(buffer)
        if following != BRACKET:
            return Read.BAD if following else Read.MORE
        buffer.take(1)
        self._at = _At.ELEMENT
        return None

    def _read_element(self, buffer: Buffer) -> Read | None:
        exact = self._streams and not self._fenced and not self._calls
        following = buffer.peek() if exact else _next(buffer)
        if not following:
            return Read.MORE
        if following == "]" and self._calls:
            return self._end(buffer)
        self._name = []
        self._at = _At.NAME
        return None

    def _read_name(self, buffer: Buffer) -> Read | None:
        found = _NAME.match(buffer.window, buffer.pos)
        assert found is not None
        self._name.append(buffer.take(found.end() - buffer.pos))
        if len("".join(self._name)) > _MAX_NAME:
            return Read.BAD
        if not len(buffer):
            return Read.MORE
        self._at = _At.PARENTHESIS
        return None

    def _read_parenthesis(self, buffer: Buffer) -> Read | None:
        name = "".join(self._name)
        exact = self._streams and not self._calls
        following = buffer.peek() if exact else _next(buffer)
        if not following:
            return Read.MORE
        known = self._fenced or name in self._reading.tools
        if following != "(" or not name or not known:
            return Read.BAD
        buffer.take(1)
        self.begun = self.begun or self._streams
        self._output.start(name)
        self._arguments = KeywordArguments(self._output)
        self._at = _At.ARGUMENTS
        return None

    def _read_arguments(self, buffer: Buffer) -> Read | None:
        assert self._arguments is not None
        status = self._arguments.read(buffer)
        if status is not Read.DONE:
            return status
        self._output.end()
        self._calls += 1
        self._at = _At.AFTER
        return None

    def _read_after(self, buffer: Buffer) -> Read | None:
        following = _next(buffer)
        if following == "]":
            return self._end(buffer)
        if following != ",":
            return Read.BAD if following else Read.MORE
        buffer.take(1)
        self._at = _At.ELEMENT
        return None

    def _end(self, buffer: Buffer) -> Read:
        buffer.take(1)
        return Read.DONE


def _next(buffer: Buffer) -> str:
    buffer.skip_space()
    return buffer.peek()


def _block(opener: str, reading: Reading) -> Block:
    return _CallList(opener, reading)


@cache
def _grammar(reasoning: ReasoningMarkers | None, guided: bool) -> Grammar:
    return Grammar(
        # Around guided JSON a bracket is the payload's own.
        openers=(BEGIN,) if guided else (BEGIN, BRACKET),
        block=_block,
        reasoning=reasoning,
        strays=(END,),
        prose_after_opener="kept",
        words=(BRACKET,),
    )


def _parser(spec: ParseSpec, reasoning: ReasoningMarkers | None) -> StreamParser:
    guided = spec.mode == "guided_json" and spec.tool_choice != "none"
    return turn_parser(_grammar(reasoning, guided), spec)


def _tag(request: TagRequest) -> TagFormat | None:
    """One grammar for all tools, so that it is linear in them; no text begins a list by chance."""
    policy = request.policy
    if policy.choice == "none":
        openers = [BEGIN, *(f"{BRACKET}{tool.name}(" for tool in policy.tools)]
        body = request.response or any_text(openers)
        return after_reasoning(body, SYNTAX, MARKERS, request) if request.response else body
    if not policy.tools:
        return None
    rules = _Rules(request)
    if request.response is not None:
        body = either([rules.format("list"), request.response])
    elif policy.choice == "named":
        body = rules.format("list")
    elif policy.choice == "required":
        body = rules.format("list" if policy.single else "list text")
    else:
        body = rules.format("text")
    return after_reasoning(body, SYNTAX, MARKERS, request)


class _Rules:
    """The rules of a request: a call of each tool, lists of them, text with lists in it."""

    def __init__(self, request: TagRequest) -> None:
        policy = request.policy
        names = [tool.name for tool in policy.tools]
        calls = [f'{ebnf.literal(name + "(")} t{at}root ")"' for at, name in enumerate(names)]
        more = '"]"' if policy.single else '("," " "? call)* "]"'
        lists = [
            f"({ebnf.literal(BRACKET + name + '(')}, after{at})" for at, name in enumerate(names)
        ]
        # What may not be called would be read as text, and shown to the client.
        others = [f"{BRACKET}{name}(" for name in policy.others]
        spoken = [END, *reasoning_strings(request.reasoning)] if request.excludes else []
        strings = [*others, *spoken]
        excludes = f", excludes=({', '.join(map(ebnf.literal, strings))})" if strings else ""
        self._rules: Final[list[str]] = [
            f"call ::= {ebnf.either(calls)}",
            f"more ::= {more}",
            'bare ::= "[" call more',
            f"fenced ::= bare {ebnf.literal(END)}",
            f"list ::= bare | {ebnf.literal(BEGIN)} fenced",
            *(f'after{at} ::= t{at}root ")" more' for at in range(len(names))),
            f"text ::= TagDispatch({', '.join([*lists, f'({ebnf.literal(BEGIN)}, fenced)'])}, "
            f"loop_after_dispatch={str(not policy.single).lower()}{excludes})",
        ]
        for at, tool in enumerate(policy.tools):
            self._rules.append(held_rules(PYTHON, tool, request.options, f"t{at}"))

    def format(self, start: str) -> TagFormat:
        """The grammar that begins with a rule."""
        return {"type": "grammar", "grammar": "\n".join([f"root ::= {start}", *self._rules])}


FAMILY: Final = Family(
    name="pythonic",
    aliases=(),
    source="https://www.llama.com/docs/model-cards-and-prompt-formats/llama4/, zero-shot calling",
    reasoning=None,
    markers=(Marker(BEGIN, special=True), Marker(END, special=True)),
    prompt=PromptPolicy(),
    parser=_parser,
    tag=_tag,
    render=partial(render_turn, SYNTAX),
    bans=(BEGIN,),
    arguments=PYTHON,
    routes=frozenset({"1"}),
)
