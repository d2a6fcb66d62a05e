"""The case files as values, and the one way the tests drive a parser."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from toolrail.events import Call, Event, Reasoning, Text, Turn, assemble
from toolrail.families import families, stream_parser
from toolrail.parsing import ParseSpec
from toolrail.tools import Tool

CASES = Path(__file__).parent / "cases"
FAMILIES = tuple(family.name for family in families())


@dataclass(frozen=True)
class Case:
    """One row of a case file."""

    id: str
    kinds: tuple[str, ...]
    spec: ParseSpec
    text: str
    chunks: tuple[str, ...]
    cut: bool
    events: tuple[dict[str, object], ...]
    finish: str | None
    wire_ids: tuple[str | None, ...]


@dataclass(frozen=True)
class CannotOccur:
    """Kinds of cases that a family's format cannot have, and why."""

    kinds: tuple[str, ...]
    reason: str


@cache
def rows(path: Path) -> tuple[Case | CannotOccur, ...]:
    """The rows of a case file; none when there is no such file, which its own test says."""
    if not path.exists():
        return ()
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(_row(json.loads(line)) for line in lines)


def cases(family: str) -> tuple[Case, ...]:
    """The cases of a family."""
    return tuple(r for r in rows(CASES / f"{family}.jsonl") if isinstance(r, Case))


def _row(row: dict[str, object]) -> Case | CannotOccur:
    kinds = tuple(row.get("kinds", ()))
    if "cannot_occur" in row:
        return CannotOccur(kinds, str(row["cannot_occur"]))
    expected = row["expected"]
    return Case(
        id=f"{row['case']}:{row['name']}",
        kinds=kinds,
        spec=_spec(row),
        text=row["text"],
        chunks=tuple(row["chunks"]),
        cut=row["engine_finish"] == "length",
        events=tuple(expected["events"]),
        finish=expected.get("finish_reason"),
        wire_ids=tuple(call.get("id") for call in expected.get("tool_calls", ())),
    )


def _spec(row: dict) -> ParseSpec:
    tools = [
        Tool(t["function"]["name"], t["function"].get("parameters")) for t in row["tools"] or ()
    ]
    choice = row["tool_choice"]
    if isinstance(choice, dict):
        tools = [tool for tool in tools if tool.name == choice["function"]["name"]]
        choice = "named"
    return ParseSpec(
        tool_parser=row["tool_parser"],
        reasoning_parser=row["reasoning_parser"],
        tools=tuple(tools),
        tool_choice=choice,
        starts_in=row["start"],
        mode=row["mode"],
    )


def parse(spec: ParseSpec, chunks: Iterable[str], *, cut: bool = False) -> Turn:
    """The turn that the stream amounts to."""
    return assemble(events(spec, chunks, cut=cut))


def events(spec: ParseSpec, chunks: Iterable[str], *, cut: bool = False) -> list[Event]:
    """Every event of the stream, in order."""
    parser = stream_parser(spec)
    found: list[Event] = []
    for chunk in chunks:
        found += parser.feed(chunk)
    return found + parser.finish(cut=cut)


def shown(turn: Turn) -> tuple[dict[str, object], ...]:
    """A turn in the form of the case files."""
    return tuple(map(_shown, turn.items))


def _shown(item: Reasoning | Text | Call) -> dict[str, object]:
    match item:
        case Reasoning(text):
            return {"kind": "reasoning", "text": text}
        case Text(text):
            return {"kind": "text", "text": text}
        case Call(name, arguments):
            return {"kind": "tool_call", "name": name, "arguments": json.loads(arguments)}


def random_cuts(text: str, seed: object) -> Iterator[str]:
    """The text in random pieces, empty ones included."""
    sizes = random.Random(str(seed))
    at = 0
    while at < len(text):
        size = sizes.choice((0, 1, 1, 2, 3, 5, 8, 13, 40))
        yield text[at : at + size]
        at += size
    yield ""
