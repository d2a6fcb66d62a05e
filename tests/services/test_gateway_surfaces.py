"""Both APIs over turns drawn at random: what clients rely on holds, however the events were cut."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from openai import omit
from openai._models import construct_type_unchecked
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

from services.gateway.answer import Head
from services.gateway.chat_style import ChatStyle
from services.gateway.chunks import ChunkWriter
from services.gateway.completion import Fold
from services.gateway.responses.body import Asked, Echo
from services.gateway.responses.building import ResponseFold
from services.gateway.responses.writer import ResponseWriter
from tests.e2e.responses import follow
from tests.published_answers import check, check_chunk, check_response_events
from tests.services.gateway_double import USAGE, events_of
from toolrail.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    TextDelta,
)
from toolrail.messages import ChoiceEnd, EventDelta

HEAD = Head("resp_" + "0" * 32, 1700000000, "acme/demo")

Part = tuple[str, str]
"""A piece of a turn: its kind, and its text."""

TEXTS = st.text(st.sampled_from('ab"\\\n\u2028é🚀{}<'), min_size=1, max_size=12)
TURNS: st.SearchStrategy[list[Part]] = st.lists(
    st.tuples(st.sampled_from(["text", "reasoning", "call", "custom", "broken"]), TEXTS),
    max_size=6,
)


def counted() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"call_{number}"


def events(turn: Sequence[Part], cut: st.DataObject) -> list[Event]:
    """The turn as events, its texts cut anywhere."""
    made: list[Event] = []
    calls = 0
    for kind, text in turn:
        at = cut.draw(st.integers(0, len(text)))
        pieces = (text[:at], text[at:])
        if kind == "text":
            made += map(TextDelta, pieces)
        elif kind == "reasoning":
            made += map(ReasoningDelta, pieces)
        else:
            made.append(CallStart(calls, "f", custom=kind == "custom"))
            written = pieces if kind == "custom" else (f'{{"a":{json.dumps(pieces[0])}', "}")
            made += (ArgumentsDelta(calls, piece) for piece in written)
            made.append(CallEnd(calls, complete=kind != "broken"))
            calls += 1
    return made


def deltas(made: Sequence[Event], finish: Any, cut: st.DataObject) -> list[EventDelta]:
    """The events in deltas of some size each; the last has the end."""
    grouped: list[EventDelta] = []
    at = 0
    while at < len(made):
        size = cut.draw(st.integers(1, 3))
        grouped.append(EventDelta("r", len(grouped), 0, tuple(made[at : at + size])))
        at += size
    return [*grouped, EventDelta("r", len(grouped), 0, end=ChoiceEnd(finish), usage=USAGE)]


FINISHES = st.sampled_from(["stop", "length"])


@settings(max_examples=40, deadline=None)
@given(TURNS, FINISHES, st.data())
def test_responses(turn: list[Part], finish: str, cut: st.DataObject) -> None:
    said = deltas(events(turn, cut), finish, cut)
    names = counted()
    asked = Asked("0" * 32, Echo(b"{}"), lambda: next(names))
    writer = ResponseWriter(HEAD, asked)
    body = b"".join(writer.write([delta]) for delta in said)
    told = [json.loads(block.split("\ndata: ")[1]) for block in body.decode().split("\n\n")[:-1]]
    check_response_events(told)
    final = follow(told)

    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=[], text_format=omit)
    kind: Any = ResponseStreamEvent
    for event in told:
        state.handle_event(construct_type_unchecked(type_=kind, value=event))

    names = counted()
    fold = ResponseFold(HEAD, asked)
    fold.feed(said)
    whole = json.loads(fold.body())
    for response in (whole, final):
        del response["completed_at"]
    assert whole == final

    broken = any(kind == "broken" for kind, _ in turn)
    assert final["status"] == ("incomplete" if broken or finish == "length" else "completed")
    assert text_of(final) == "".join(text for kind, text in turn if kind == "text")
    runnable = [
        i for i in final["output"] if "call" in i["type"] and i.get("status") != "incomplete"
    ]
    assert len(runnable) == sum(kind in ("call", "custom") for kind, _ in turn)


def text_of(response: dict[str, Any]) -> str:
    return "".join(
        item["content"][0]["text"] for item in response["output"] if item["type"] == "message"
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(TURNS, min_size=1, max_size=3), FINISHES, st.data())
def test_chat_completions(turns: list[list[Part]], finish: str, cut: st.DataObject) -> None:
    """Several choices, their deltas in any order."""
    waiting = [deltas(events(turn, cut), finish, cut) for turn in turns]
    said: list[EventDelta] = []
    while any(waiting):
        index = cut.draw(st.sampled_from([i for i, left in enumerate(waiting) if left]))
        delta = waiting[index].pop(0)
        usage = USAGE if not any(waiting) else None
        said.append(EventDelta("r", len(said), index, delta.events, None, delta.end, usage))
    names = counted()
    style = ChatStyle(new_call_id=lambda: next(names))
    writer = ChunkWriter(HEAD, style, include_usage=True)
    told = events_of(b"".join(writer.write([delta]) for delta in said))
    assert told.pop() == "[DONE]"
    customs = any(kind == "custom" for turn in turns for kind, _ in turn)
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in told:
        check_chunk(chunk)
        if not customs:  # the SDK's helper knows none
            state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    fold = Fold(HEAD, style, num_choices=len(turns))
    fold.feed(said)
    whole = json.loads(fold.body())
    check("CreateChatCompletionResponse", whole)
    for index, (turn, choice) in enumerate(zip(turns, whole["choices"], strict=True)):
        parts = [p["delta"] for chunk in told for p in chunk["choices"] if p["index"] == index]
        message = choice["message"]
        for name, kind in (("content", "text"), ("reasoning_content", "reasoning")):
            expected = "".join(text for of, text in turn if of == kind)
            assert "".join(part.get(name) or "" for part in parts) == expected
            assert (message.get(name) or "") == expected
        delivered = sum(kind in ("call", "custom") for kind, _ in turn)
        assert len(message.get("tool_calls", ())) == delivered
        reason = "length" if finish == "length" else "tool_calls" if delivered else "stop"
        assert choice["finish_reason"] == reason
