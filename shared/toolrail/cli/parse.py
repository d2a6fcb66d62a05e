"""`toolrail parse`: what do the parsers make of this output? The machines of the postprocessor.

The turn is folded as a non-streamed answer is; nothing here parses a second time.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from toolrail.cli.rows import UnreadableError, error_object, rows, unreadable, write
from toolrail.errors import CallerError, ConfigError
from toolrail.events import Call, Event, Item, Reasoning, Text, Turn, assemble
from toolrail.families import stream_parser
from toolrail.parsing import Mode, ParseSpec
from toolrail.tools import JsonSchema, StartsIn, Tool, ToolChoice

_DESCRIPTION = """Parses model outputs into reasoning, content and tool calls.

Reads rows {"family", "case", "tool_parser", "reasoning_parser", "tools", "tool_choice", "start",
"mode", "engine_finish", "text", "chunks"} from standard input and answers each with one line:
{"family", "case", "reasoning", "content", "tool_calls", "events", "incomplete_calls",
"finish_reason"}. `arguments` is JSON text, exactly as a client gets it.
"""
_LONGEST_CHUNK: Final = 8

Chunking: TypeAlias = "Callable[[_Row, int], Iterator[str]]"


class _Function(msgspec.Struct, frozen=True):
    name: str
    parameters: JsonSchema | None = None
    strict: bool | None = None


class _Tool(msgspec.Struct, frozen=True):
    function: _Function


class _Row(msgspec.Struct, frozen=True):
    text: str
    family: str | None = None
    case: str | None = None
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    tools: tuple[_Tool, ...] | None = None
    tool_choice: Literal["auto", "required", "none"] | _Tool | None = None
    start: StartsIn = "none"
    mode: Mode = "native"
    engine_finish: str = "stop"
    chunks: tuple[str, ...] | None = None


def parse(argv: Sequence[str]) -> int:
    """The exit status: 0 unless the input cannot be read."""
    parser = argparse.ArgumentParser(
        prog="toolrail parse",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--chunking",
        type=_chunking,
        default=_given,
        metavar="given|whole|chars|random:SEED",
        help="how the text reaches the parser (given: the row's own chunks)",
    )
    chunking: Chunking = parser.parse_args(argv).chunking
    try:
        for number, (_, row) in enumerate(rows(_Row)):
            write(_answer(row, number, chunking))
    except UnreadableError as error:
        return unreadable("parse", error)
    return 0


def _answer(row: _Row | CallerError, number: int, chunking: Chunking) -> Mapping[str, object]:
    if isinstance(row, CallerError):
        return {"error": error_object(row)}
    named = {"family": row.family, "case": row.case}
    try:
        turn = _turn(row, chunking(row, number))
    except ConfigError as error:
        return {**named, "error": {"message": str(error), "param": error.field}}
    return {**named, **_shown(turn, row.engine_finish)}


def _turn(row: _Row, chunks: Iterator[str]) -> Turn:
    parser = stream_parser(_spec(row))
    events: list[Event] = []
    for chunk in chunks:
        events += parser.feed(chunk)
    events += parser.finish(cut=row.engine_finish == "length")
    return assemble(events)


def _spec(row: _Row) -> ParseSpec:
    tools = [
        Tool(tool.function.name, tool.function.parameters, tool.function.strict)
        for tool in row.tools or ()
    ]
    choice: ToolChoice
    if isinstance(row.tool_choice, _Tool):
        name = row.tool_choice.function.name
        choice, tools = "named", [t for t in tools if t.name == name] or [Tool(name)]
    else:
        choice = row.tool_choice or "auto"
    return ParseSpec(
        tool_parser=row.tool_parser,
        reasoning_parser=row.reasoning_parser,
        tools=tuple(tools),
        tool_choice=choice,
        starts_in=row.start,
        mode=row.mode,
    )


def _shown(turn: Turn, engine_finish: str) -> dict[str, object]:
    finish = "tool_calls" if turn.calls else "stop"
    return {
        "reasoning": turn.reasoning,
        "content": turn.content,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in turn.calls
        ],
        "events": [_event(item) for item in turn.items],
        "incomplete_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in turn.incomplete_calls
        ],
        "finish_reason": "length" if engine_finish == "length" else finish,
    }


def _event(item: Item) -> dict[str, object]:
    match item:
        case Reasoning(text):
            return {"kind": "reasoning", "text": text}
        case Text(text):
            return {"kind": "text", "text": text}
        case Call(name, arguments):
            return {"kind": "tool_call", "name": name, "arguments": arguments}


def _chunking(value: str) -> Chunking:
    kind, _, seed = value.partition(":")
    simple: dict[str, Chunking] = {"given": _given, "whole": _whole, "chars": _chars}
    if value in simple:
        return simple[value]
    if kind == "random" and seed.lstrip("-").isdecimal():
        return _random(int(seed))
    raise argparse.ArgumentTypeError(f"{value!r} is none of given, whole, chars, random:SEED")


def _given(row: _Row, number: int) -> Iterator[str]:
    return iter(row.chunks if row.chunks is not None else (row.text,))


def _whole(row: _Row, number: int) -> Iterator[str]:
    return iter((row.text,))


def _chars(row: _Row, number: int) -> Iterator[str]:
    return iter(row.text)


def _random(seed: int) -> Chunking:
    def cut(row: _Row, number: int) -> Iterator[str]:
        # A row's cuts do not depend on its neighbours.
        sizes = random.Random(f"{seed}:{number}")  # noqa: S311 (a seed says where it is cut)
        at = 0
        while at < len(row.text):
            size = sizes.randint(0, _LONGEST_CHUNK)
            yield row.text[at : at + size]
            at += size

    return cut


if __name__ == "__main__":
    raise SystemExit(parse(sys.argv[1:]))
