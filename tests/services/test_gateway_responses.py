from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from openai import omit
from openai._models import construct_type_unchecked
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response
from openai.types.responses import ResponseStreamEvent as RawEvent

from services.gateway.answer import Head
from services.gateway.dispatch import Dispatch
from services.gateway.failures import failure
from services.gateway.responses.body import Asked, Echo
from services.gateway.responses.building import ResponseFold
from services.gateway.responses.writer import ResponseWriter
from tests.published_answers import check, check_response_events
from tests.services.gateway_double import USAGE
from toolrail.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    TextDelta,
)
from toolrail.messages import ChoiceEnd, EventDelta, VisibleLogprob
from toolrail.openai.responses.sealed import unseal

REQUEST = "0123456789abcdef0123456789abcdef"
HEAD = Head(f"resp_{REQUEST}", 1700000000, "acme/demo")
THOUGHT: tuple[Event, ...] = (ReasoningDelta("The weather "), ReasoningDelta("in Zürich."))
WEATHER: tuple[Event, ...] = (
    CallStart(0, "get_weather"),
    ArgumentsDelta(0, '{"city": '),
    ArgumentsDelta(0, '"Zürich"}'),
    CallEnd(0),
)
TIME: tuple[Event, ...] = (CallStart(1, "clock__get_time"), ArgumentsDelta(1, "{}"), CallEnd(1))
PATCH: tuple[Event, ...] = (
    CallStart(2, "apply_patch", custom=True),
    ArgumentsDelta(2, "*** Begin\u2028Patch"),
    CallEnd(2),
)
ALL: tuple[Event, ...] = (*THOUGHT, TextDelta("I will"), TextDelta(" look."), *WEATHER, *TIME)
TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "description": None,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": None,
    }
]
ECHO: dict[str, Any] = {
    "instructions": "Be brief.",
    "tools": TOOLS,
    "tool_choice": "auto",
    "text": {"format": {"type": "text"}},
    "user": None,
    "truncation": "disabled",
    "reasoning": {"effort": None, "summary": None},
}


def asked(**echo: Any) -> Asked:
    numbers = iter(range(100))
    return Asked(
        REQUEST,
        Echo(json.dumps(ECHO | echo).encode()),
        lambda: f"call_{next(numbers)}",
        {"clock__get_time": ("clock", "get_time")},
    )


def one(*events: Event, finish: str = "stop", **fields: Any) -> list[EventDelta]:
    """Each event in a delta of its own, the last one with the end and the usage."""
    deltas = [EventDelta("r", seq, 0, (event,), **fields) for seq, event in enumerate(events)]
    end = ChoiceEnd(finish)  # type: ignore[arg-type]
    return [*deltas, EventDelta("r", len(deltas), 0, end=end, usage=USAGE)]


def stream(deltas: Sequence[EventDelta], **echo: Any) -> list[Any]:
    writer = ResponseWriter(HEAD, asked(**echo))
    data = b"".join(writer.write([delta]) for delta in deltas)
    assert writer.done
    assert writer.write(deltas[:0]) == b""
    events = list(parsed(data))
    assert events[-1]["response"] == json.loads(writer.response)
    return events


def parsed(data: bytes) -> Iterator[Any]:
    for block in data.decode().split("\n\n")[:-1]:
        name, body = block.split("\n")
        assert len(body.splitlines()) == 1
        event = json.loads(body.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        yield event


def fold(deltas: Sequence[EventDelta], **echo: Any) -> Any:
    gathered = ResponseFold(HEAD, asked(**echo))
    gathered.feed(deltas)
    return json.loads(gathered.body())


def kinds(events: Sequence[Any]) -> list[str]:
    """What happened, without the prefix; runs of one kind are said once."""
    names = [event["type"].removeprefix("response.") for event in events]
    return [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]


def follow(events: Sequence[Any]) -> Any:
    """The response that the SDK's stream helper arrives at; it raises at what breaks its rules."""
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=[], text_format=omit)
    for event in events:
        state.handle_event(construct_type_unchecked(type_=RawEvent, value=event))  # type: ignore[arg-type]
    return state._completed_response


# The order of events.


def test_events_come_item_by_item() -> None:
    events = stream(one(*ALL))
    assert kinds(events) == [
        "created", "in_progress",
        "output_item.added", "content_part.added",
        "reasoning_text.delta", "reasoning_text.done",
        "content_part.done", "output_item.done",
        "output_item.added", "content_part.added",
        "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done",
        "output_item.added",
        "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "output_item.added",
        "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    check_response_events(events)


def test_custom_calls_tell_their_raw_input() -> None:
    events = stream(one(*WEATHER, *PATCH))
    check_response_events(events)
    (done,) = [e for e in events if e["type"] == "response.custom_tool_call_input.done"]
    assert done["input"] == "*** Begin\u2028Patch"
    item = events[-1]["response"]["output"][1]
    assert (item["type"], item["name"], item["input"]) == (
        "custom_tool_call", "apply_patch", "*** Begin\u2028Patch",
    )  # fmt: skip
    assert item["id"].startswith("ctc_")


def test_items_keep_their_names_and_agree_with_the_final_output() -> None:
    events = stream(one(*ALL, *PATCH))
    added = [e["item"] for e in events if e["type"] == "response.output_item.added"]
    done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    output = events[-1]["response"]["output"]
    assert done == output
    for before, after in zip(added, output, strict=True):
        assert before["id"] == after["id"]
        assert before.get("call_id") == after.get("call_id")
    assert len({item["id"] for item in output}) == len(output)
    assert {event["response"]["id"] for event in events if "response" in event} == {HEAD.id}
    indexes = {e["item_id"]: e["output_index"] for e in events if "item_id" in e}
    assert {item["id"]: index for index, item in enumerate(output)} == indexes


def test_members_of_namespaces_are_told_with_them() -> None:
    *_, call = fold(one(*WEATHER, *TIME))["output"]
    assert (call["namespace"], call["name"]) == ("clock", "get_time")


def test_the_stream_helper_follows() -> None:
    response = follow(stream(one(*ALL, *PATCH)))
    assert response.output_text == "I will look."
    assert [item.type for item in response.output] == [
        "reasoning", "message", "function_call", "function_call", "custom_tool_call",
    ]  # fmt: skip
    assert json.loads(response.output[2].arguments) == {"city": "Zürich"}


# What is streamed and what is not are one.


@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize(
    "events",
    [
        (),
        THOUGHT,
        ALL,
        (*WEATHER, TextDelta("Done."), ReasoningDelta("Hm."), *TIME, *PATCH),
        (TextDelta("x"), CallStart(0, "get_weather"), ArgumentsDelta(0, '{"ci'), CallEnd(0, False)),
    ],
)
def test_a_fold_is_the_end_of_a_stream(events: tuple[Event, ...], finish: str) -> None:
    deltas = one(*events, finish=finish)
    response = stream(deltas)[-1]["response"]
    whole = fold(deltas)
    del response["completed_at"], whole["completed_at"]  # of another second, perhaps
    assert whole == response
    check("Response", whole)
    Response.model_validate(whole | {"completed_at": None}, strict=True)


def test_the_request_is_repeated() -> None:
    response = fold(one(*ALL))
    assert response["tools"] == TOOLS
    assert response["instructions"] == "Be brief."
    assert "user" not in response  # null is not in the schema
    assert (response["metadata"], response["top_p"]) == ({}, 1.0)
    assert response["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }


# How it ends.


def test_an_answer_that_was_cut_is_incomplete() -> None:
    deltas = one(*WEATHER, CallStart(1, "get_time"), ArgumentsDelta(1, '{"zo'), CallEnd(1, False))
    deltas[-1] = EventDelta("r", len(deltas) - 1, 0, end=ChoiceEnd("length"), usage=USAGE)
    events = stream(deltas)
    check_response_events(events)
    assert events[-1]["type"] == "response.incomplete"
    response = events[-1]["response"]
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
    done = [e for e in events if e["type"] == "response.function_call_arguments.done"]
    assert [e["name"] for e in done] == ["get_weather"]  # nobody is told to run the other


def test_a_text_that_was_cut_is_incomplete() -> None:
    response = fold(one(TextDelta("half a sen"), finish="length"))
    assert (response["status"], response["output"][0]["status"]) == ("incomplete", "incomplete")


def test_a_malformed_call_leaves_its_response_incomplete() -> None:
    events = stream(one(CallStart(0, "f"), ArgumentsDelta(0, "{}"), CallEnd(0, False)))
    check_response_events(events)
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["output"][0]["status"] == "incomplete"
    assert "response.function_call_arguments.done" not in {event["type"] for event in events}


def test_an_answer_of_nothing_is_an_empty_message() -> None:
    events = stream(one())
    check_response_events(events)
    assert follow(events).output_text == ""
    (item,) = events[-1]["response"]["output"]
    assert (item["type"], item["content"][0]["text"]) == ("message", "")


def test_a_failure_ends_the_stream_with_what_there_is() -> None:
    lost = failure("lost", "part of the answer was lost")
    events = stream([*one(*THOUGHT, TextDelta("a"))[:-1], EventDelta("r", 9, 0, failed=lost)])
    check_response_events(events)
    assert events[-1]["type"] == "response.failed"
    response = events[-1]["response"]
    assert response["error"] == {"code": "server_error", "message": "part of the answer was lost"}
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
    assert response["output"][1]["content"][0]["text"] == "a"
    follow(events)


def test_a_failure_of_the_gateway_itself_is_numbered_too() -> None:
    writer = ResponseWriter(HEAD, asked())
    data = writer.write(one(TextDelta("a"))[:1]) + writer.error(failure("internal", "a bug"))
    events = list(parsed(data))
    assert events[-1]["type"] == "response.failed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


# What is told only where it is asked for.


def test_reasoning_can_be_carried_by_the_client() -> None:
    plain = fold(one(*THOUGHT, TextDelta("a")))["output"][0]
    assert "encrypted_content" not in plain
    events = stream(one(*THOUGHT, TextDelta("a")), include=["reasoning.encrypted_content"])
    check_response_events(events)
    reasoning = events[-1]["response"]["output"][0]
    assert unseal(reasoning["encrypted_content"]) == "The weather in Zürich."
    assert reasoning["content"][0]["text"] == "The weather in Zürich."


def entries(*tokens: str) -> tuple[VisibleLogprob, ...]:
    top = (("x", -1.5, b"x"),)
    return tuple(VisibleLogprob(token, -0.5, token.encode(), top) for token in tokens)


def test_logprobs_are_those_of_the_text() -> None:
    deltas = [
        EventDelta("r", 0, 0, (ReasoningDelta("Hmm, i"),), entries("Hmm", ", i")),
        EventDelta("r", 1, 0, (), entries("</think>")),
        EventDelta("r", 2, 0, (TextDelta("i"), TextDelta(" am")), entries("\n\ni", " am")),
        EventDelta("r", 3, 0, (CallStart(0, "f"), ArgumentsDelta(0, "{}")), entries("<c>", "{}")),
        EventDelta("r", 4, 0, (CallEnd(0),), end=ChoiceEnd("stop"), usage=USAGE),
    ]
    events = stream(deltas)
    check_response_events(events)
    told = [
        [entry["token"] for entry in event["logprobs"]]
        for event in events
        if event["type"] == "response.output_text.delta"
    ]
    assert told == [["\n\ni"], [" am"]]
    (message,) = [i for i in events[-1]["response"]["output"] if i["type"] == "message"]
    (part,) = message["content"]
    assert [entry["token"] for entry in part["logprobs"]] == ["\n\ni", " am"]
    assert part["logprobs"][0]["top_logprobs"][0]["bytes"] == [120]


# Early dispatch, our extension.


def test_items_that_are_whole_are_dispatched() -> None:
    broken: tuple[Event, ...] = (CallStart(3, "f"), ArgumentsDelta(3, "{}"), CallEnd(3, False))
    early = Dispatch(tool_calls=True, reasoning=True)
    writer = ResponseWriter(HEAD, asked(), early)
    events = list(parsed(writer.write(one(*ALL, *PATCH, *broken))))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    told = [event for event in events if event["type"].endswith("_dispatch")]
    assert [(event["type"], event["output_index"]) for event in told] == [
        ("reasoning_dispatch", 0),
        ("tool_call_dispatch", 2),
        ("tool_call_dispatch", 3),
        ("tool_call_dispatch", 4),
    ]
    output = events[-1]["response"]["output"]
    assert [event["item"] for event in told] == [output[at] for at in (0, 2, 3, 4)]
    assert follow([e for e in events if e not in told]) == follow(events)
