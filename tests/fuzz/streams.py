"""Event streams of the three APIs: any reader of the standard gets what the model wrote."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from hypothesis import strategies as st

from services.gateway import sse
from services.gateway.answer import Head
from services.gateway.chat_style import ChatStyle
from services.gateway.chunks import ChunkWriter
from services.gateway.messages.writer import MessageWriter
from services.gateway.responses.writer import ResponseWriter
from tests.fuzz.target import Target
from tests.services.test_gateway_messages import accumulated
from tests.services.test_gateway_responses import asked
from toolrail.events import (
    ArgumentsDelta,
    Call,
    CallEnd,
    CallStart,
    Event,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
)
from toolrail.messages import ChoiceEnd, EventDelta, Usage

Item = Reasoning | Text | Call

_TEXT: Final = (
    st.lists(
        st.sampled_from(["\n", "\r", "\r\n", "\u2028", "\u2029", "\u0085", "\x00", "\x0b", "\x1c"])
        | st.sampled_from(
            ["\n\ndata: x\n\n", "[DONE]", "event: error\n", ":", '"', "\\", "é", "😀"]
        )
        | st.text(max_size=4),
        min_size=1,
        max_size=6,
    )
    .map("".join)
    .filter(bool)
)
_JSON: Final = st.dictionaries(_TEXT, _TEXT, max_size=2).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)
_ITEMS: Final = st.lists(
    st.builds(Text, _TEXT)
    | st.builds(Reasoning, _TEXT)
    | st.builds(Call, st.sampled_from(["f", "get_weather"]), _JSON),
    min_size=1,
    max_size=4,
)


def _events(items: Sequence[Item], size: int) -> list[Event]:
    """What a parser yields of `items`, `size` characters at a time."""
    events: list[Event] = []
    calls = itertools.count()
    for item in items:
        if isinstance(item, Call):
            index = next(calls)
            pieces = (ArgumentsDelta(index, piece) for piece in _pieces(item.arguments, size))
            events += [CallStart(index, item.name), *pieces, CallEnd(index)]
        elif isinstance(item, Text):
            events += [TextDelta(piece) for piece in _pieces(item.text, size)]
        else:
            events += [ReasoningDelta(piece) for piece in _pieces(item.text, size)]
    return events


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def _deltas(events: Sequence[Event], size: int) -> list[EventDelta]:
    made = [
        EventDelta("r", seq, 0, tuple(events[at : at + size]))
        for seq, at in enumerate(range(0, len(events), size))
    ]
    return [*made, EventDelta("r", len(made), 0, end=ChoiceEnd("stop"), usage=Usage(1, 1))]


# Two readers of the standard. https://html.spec.whatwg.org/multipage/server-sent-events.html


def standard_events(data: bytes) -> list[tuple[str, str]]:
    """(name, data) of each event, as the standard's algorithm dispatches them."""
    lines = re.split("\r\n|\n|\r", data.decode())
    return _dispatched(lines)


def splitlines_events(data: bytes) -> list[tuple[str, str]]:
    """The same by `str.splitlines`, as several Python clients split a stream."""
    return _dispatched(data.decode().splitlines())


def _dispatched(lines: Iterable[str]) -> list[tuple[str, str]]:
    events: list[tuple[str, str]] = []
    name, held = "", list[str]()
    for line in lines:
        if not line:
            if held:
                events.append((name, "\n".join(held)))
            name, held = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            held.append(value)
        elif field == "event":
            name = value
        else:
            assert not field, f"not a field of ours: {line!r}"
    assert not held, "an event that is not over"
    return events


def _read(data: bytes) -> list[tuple[str, str]]:
    events = standard_events(data)
    assert splitlines_events(data) == events
    return events


# Single events.


def _one_event(given: tuple[str, list[Any], bool]) -> None:
    name, values, named = given
    data = b""
    for value in values:
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
        event = sse.named_event(name.encode(), text) if named else sse.data_event(text)
        data += sse.KEEP_ALIVE + event
    events = _read(data + sse.DONE)
    assert events.pop() == ("", "[DONE]")
    assert [read for read, _ in events] == [name if named else ""] * len(values)
    assert [json.loads(body) for _, body in events] == values


def _string(text: str) -> None:
    assert json.loads(sse.json_string(text)) == text
    assert len(sse.json_string(text).decode().splitlines()) == 1


# Whole answers.


def _chat(deltas: Sequence[EventDelta]) -> list[Item]:
    names = (f"call_{number}" for number in itertools.count())
    style = ChatStyle(new_call_id=lambda: next(names))
    writer = ChunkWriter(Head("chatcmpl-1", 1, "a\u2028m"), style, include_usage=True)
    events = _read(b"".join(writer.write([delta]) for delta in deltas))
    assert events.pop() == ("", "[DONE]")
    items: list[Item] = []
    for name, data in events:
        assert not name
        for choice in json.loads(data)["choices"]:
            _add(items, choice["delta"])
    return _merged(items)


def _add(items: list[Item], delta: dict[str, Any]) -> None:
    if text := delta.get("content"):
        items.append(Text(text))
    if text := delta.get("reasoning_content"):
        items.append(Reasoning(text))
    for part in delta.get("tool_calls", ()):
        function = part["function"]
        if "id" in part:
            items.append(Call(function["name"], ""))
        call = next(item for item in reversed(items) if isinstance(item, Call))
        at = items.index(call) if items.count(call) == 1 else len(items) - 1
        items[at] = Call(call.name, call.arguments + function["arguments"])


def _responses(deltas: Sequence[EventDelta]) -> list[Item]:
    writer = ResponseWriter(Head("resp_" + "0" * 32, 1, "m"), asked())
    events = _read(b"".join(writer.write([delta]) for delta in deltas))
    for number, (name, data) in enumerate(events):
        event = json.loads(data)
        assert (event["type"], event["sequence_number"]) == (name, number)
    items: list[Item] = []
    for item in json.loads(events[-1][1])["response"]["output"]:
        if item["type"] == "function_call":
            items.append(Call(item["name"], item["arguments"]))
        elif item["type"] == "reasoning":
            items += [Reasoning(part["text"]) for part in item["content"]]
        else:
            items += [Text(part["text"]) for part in item["content"]]
    return _merged(items)


def _messages(deltas: Sequence[EventDelta]) -> list[Item]:
    writer = MessageWriter(Head("msg_1", 1, "m"), prompt_tokens=1)
    events = _read(b"".join(writer.write([delta]) for delta in deltas))
    assert all(json.loads(data)["type"] == name for name, data in events)
    items: list[Item] = []
    for block in accumulated([json.loads(data) for _, data in events])["content"]:
        match block["type"]:
            case "tool_use":
                items.append(Call(block["name"], json.dumps(block["input"])))
            case "thinking":
                items.append(Reasoning(block["thinking"]))
            case _:
                items.append(Text(block["text"]))
    return _merged(items)


def _merged(items: Iterable[Item]) -> list[Item]:
    """Neighbours of one kind joined; arguments as values, since one API sends them so."""
    merged: list[Item] = []
    for item in items:
        if isinstance(item, Call):
            merged.append(Call(item.name, json.dumps(json.loads(item.arguments))))
        elif merged and type(merged[-1]) is type(item):
            merged[-1] = type(item)(merged[-1].text + item.text)  # type: ignore[union-attr]
        else:
            merged.append(item)
    return merged


WRITERS: Final[dict[str, Callable[[Sequence[EventDelta]], list[Item]]]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
}


def _answer(given: tuple[str, list[Item], int, int]) -> None:
    api, items, characters, events = given
    if api == "messages":  # it has no blocks of nothing but white space
        shown = [i for i in _merged(items) if isinstance(i, Call) or not i.text.isspace()]
        assert _messages(_deltas(_events(items, characters), events)) == _merged(shown)
        return
    assert WRITERS[api](_deltas(_events(items, characters), events)) == _merged(items)


_NAMES: Final = st.sampled_from(["response.created", "message_start", "error"])
_VALUES: Final = st.recursive(
    st.none() | st.booleans() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)

TARGETS: Final = (
    Target(
        "sse-events",
        st.tuples(_NAMES, st.lists(_VALUES, max_size=4), st.booleans()),
        _one_event,
        bounded=150,
    ),
    Target("sse-strings", _TEXT, _string, bounded=100),
    Target(
        "sse-answers",
        st.tuples(st.sampled_from(sorted(WRITERS)), _ITEMS, st.integers(1, 9), st.integers(1, 3)),
        _answer,
        bounded=150,
    ),
)
