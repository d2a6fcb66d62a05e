from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ParsedChatCompletion

from services.gateway import ids
from services.gateway.answer import Head
from services.gateway.chat_style import ChatStyle
from services.gateway.chunks import ChunkWriter
from services.gateway.completion import Fold
from services.gateway.dispatch import Dispatch
from services.gateway.failures import failure
from services.gateway.sse import json_string
from tests.published_answers import check, check_chunk
from tests.services.gateway_double import STOP, USAGE, deltas_of, events_of
from toolrail.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    TextDelta,
)
from toolrail.messages import ChoiceEnd, EventDelta, VisibleLogprob

HEAD = Head("chatcmpl-1", 1700000000, "acme/demo")
WEATHER: tuple[Event, ...] = (
    CallStart(0, "get_weather", "functions.get_weather:0"),
    ArgumentsDelta(0, '{"city": '),
    ArgumentsDelta(0, '"Zürich"}'),
    CallEnd(0),
)
TIME: tuple[Event, ...] = (CallStart(1, "get_time"), ArgumentsDelta(1, "{}"), CallEnd(1))


def counted() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"call_{number}"


def style(**settings: Any) -> ChatStyle:
    names = counted()
    return ChatStyle(new_call_id=lambda: next(names), **settings)


def one(*events: Event, finish: str = "stop", **fields: Any) -> list[EventDelta]:
    """Each event in a delta of its own, the last one with the end and the usage."""
    deltas = [EventDelta("r", seq, 0, (event,), **fields) for seq, event in enumerate(events)]
    end = ChoiceEnd(finish)  # type: ignore[arg-type]
    return [*deltas, EventDelta("r", len(deltas), 0, end=end, usage=USAGE)]


def stream(deltas: Sequence[EventDelta], *, usage: bool = False, **settings: Any) -> list[Any]:
    writer = ChunkWriter(HEAD, style(**settings), include_usage=usage)
    body = b"".join(writer.write([delta]) for delta in deltas)
    assert writer.done
    events = events_of(body)
    for event in events:
        if event != "[DONE]":
            check_chunk(event)
    return events


def whole(deltas: Sequence[EventDelta], *, num_choices: int = 1, **settings: Any) -> Any:
    fold = Fold(HEAD, style(**settings), num_choices=num_choices)
    fold.feed(deltas)
    completion = json.loads(fold.body())
    check("CreateChatCompletionResponse", completion)
    return completion


def helper(events: Sequence[Any]) -> ParsedChatCompletion[None]:
    """What openai-python's stream helper makes of the chunks."""
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for event in events:
        if event != "[DONE]":
            list(state.handle_chunk(ChatCompletionChunk.model_validate(event)))
    return state.get_final_completion()


# The stream, row by row of the contract that clients check.


def test_every_chunk_has_the_required_fields_and_one_id_and_time() -> None:
    *chunks, done = stream(one(*WEATHER, TextDelta("hi")))
    assert done == "[DONE]"
    for chunk in chunks:
        assert chunk["id"] == "chatcmpl-1"
        assert chunk["object"] == "chat.completion.chunk"
        assert chunk["created"] == 1700000000
        assert chunk["model"] == "acme/demo"
        assert "usage" not in chunk
        (choice,) = chunk["choices"]
        assert choice["index"] == 0
        assert choice["logprobs"] is None
        assert "delta" in choice
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["tool_calls"]


@pytest.mark.parametrize(
    ("first", "content"),
    [(TextDelta("hi"), ""), (ReasoningDelta("hm"), None), (CallStart(0, "f"), None)],
)
def test_the_first_delta_of_a_choice_is_its_role(first: Event, content: str | None) -> None:
    deltas = deltas_of(stream(one(first)))
    assert deltas[0] == {"role": "assistant", "content": content}
    assert all("role" not in delta for delta in deltas[1:])


def test_an_empty_answer_has_role_and_finish() -> None:
    events = stream(one())
    assert deltas_of(events) == [{"role": "assistant", "content": ""}, {}]
    assert events[1]["choices"][0]["finish_reason"] == "stop"


def test_the_first_delta_of_a_call_has_id_type_name_and_empty_arguments() -> None:
    deltas = deltas_of(stream(one(*WEATHER)))
    assert deltas[1] == {
        "tool_calls": [
            {
                "index": 0,
                "id": "call_1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": ""},
            }
        ]
    }


def test_later_deltas_of_a_call_have_only_index_and_arguments() -> None:
    deltas = deltas_of(stream(one(*WEATHER)))
    assert deltas[2:] == [
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"Zürich"}'}}]},
        {},
    ]


def test_call_indexes_start_at_0_without_a_gap() -> None:
    deltas = deltas_of(stream(one(TextDelta("a"), *WEATHER, TextDelta("b"), *TIME)))
    opened = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
    assert [call["index"] for call in opened if "id" in call] == [0, 1]
    assert len({call["id"] for call in opened if "id" in call}) == 2


def test_no_empty_tool_calls_beside_text() -> None:
    deltas = deltas_of(stream(one(TextDelta("a"), *WEATHER, TextDelta("b"))))
    for delta in deltas:
        assert delta.get("tool_calls") != []
        assert not ("content" in delta and "tool_calls" in delta)


def test_the_finish_chunk_has_an_empty_delta() -> None:
    events = stream(one(TextDelta("a")))
    last = events[-2]["choices"][0]
    assert (last["delta"], last["finish_reason"]) == ({}, "stop")


def test_usage_is_null_in_earlier_chunks_then_one_chunk_without_choices() -> None:
    *chunks, last, done = stream(one(TextDelta("a")), usage=True)
    assert done == "[DONE]"
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }


def test_an_error_is_an_event_of_its_own_and_the_end() -> None:
    failed = failure("lost", "part of the answer was lost")
    deltas = [EventDelta("r", 0, 0, (TextDelta("a"),)), EventDelta("r", 1, 0, failed=failed)]
    events = stream([*deltas, EventDelta("r", 2, 0, (TextDelta("never"),))][:2])
    assert events[-1] == {
        "error": {
            "message": "part of the answer was lost",
            "type": "server_error",
            "param": None,
            "code": "lost",
        }
    }
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in events[:-1])


def test_reasoning_goes_by_the_configured_name() -> None:
    deltas = one(ReasoningDelta("hm"), TextDelta("a"))
    assert deltas_of(stream(deltas))[1] == {"reasoning_content": "hm"}
    assert deltas_of(stream(deltas, reasoning_field="reasoning"))[1] == {"reasoning": "hm"}
    assert whole(deltas, reasoning_field="reasoning")["choices"][0]["message"]["reasoning"] == "hm"


def test_empty_events_make_no_chunks() -> None:
    deltas = deltas_of(stream(one(TextDelta(""), ReasoningDelta(""), TextDelta("a"))))
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "a"}, {}]


# Finish reasons.

CUT: tuple[Event, ...] = (CallStart(0, "f"), ArgumentsDelta(0, '{"a'), CallEnd(0, complete=False))
CUT_AFTER_ONE: tuple[Event, ...] = (
    *WEATHER,
    CallStart(1, "f"),
    ArgumentsDelta(1, '{"a'),
    CallEnd(1, complete=False),
)


@pytest.mark.parametrize(
    ("events", "engine", "reason"),
    [
        ((TextDelta("a"),), "stop", "stop"),
        (WEATHER, "stop", "tool_calls"),
        (WEATHER, "length", "length"),
        (CUT, "stop", "stop"),
        (CUT, "length", "length"),
        (CUT_AFTER_ONE, "stop", "tool_calls"),
    ],
)
def test_finish_reason(events: tuple[Event, ...], engine: str, reason: str) -> None:
    deltas = one(*events, finish=engine)
    assert stream(deltas)[-2]["choices"][0]["finish_reason"] == reason
    assert whole(deltas)["choices"][0]["finish_reason"] == reason


def test_an_incomplete_call_stays_as_streamed_and_is_left_out_of_the_object() -> None:
    deltas = one(*CUT)
    assert deltas_of(stream(deltas))[-2:] == [
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a'}}]},
        {},
    ]
    assert whole(deltas)["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
    }


# The object that is not streamed.


def test_a_message_of_calls_only() -> None:
    completion = whole(one(*WEATHER, *TIME))
    assert completion == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "acme/demo",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "refusal": None,
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "function": {"name": "get_weather", "arguments": '{"city": "Zürich"}'},
                            "type": "function",
                        },
                        {
                            "id": "call_2",
                            "function": {"name": "get_time", "arguments": "{}"},
                            "type": "function",
                        },
                    ],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 5,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    }
    ChatCompletion.model_validate(completion, strict=True)


def test_a_message_without_calls_has_no_tool_calls() -> None:
    message = whole(one(ReasoningDelta("hm"), TextDelta("a"), TextDelta("b")))["choices"][0]
    assert message["message"] == {
        "role": "assistant",
        "content": "ab",
        "refusal": None,
        "reasoning_content": "hm",
    }


def test_an_empty_message_is_an_empty_string() -> None:
    assert whole(one())["choices"][0]["message"]["content"] == ""


# Logprobs.


def logprob(token: str, value: float = -0.5) -> VisibleLogprob:
    data = token.encode()
    return VisibleLogprob(token, value, data, ((token, value, data), ("x", float("-inf"), b"x")))


def test_logprobs_ride_on_the_chunk_of_their_text() -> None:
    deltas = [
        EventDelta("r", 0, 0, (TextDelta("Hé"),), (logprob("Hé"),)),
        EventDelta("r", 1, 0, (), None, ChoiceEnd("stop"), USAGE),
    ]
    chunk = stream(deltas)[1]["choices"][0]
    assert chunk["delta"] == {"content": "Hé"}
    assert chunk["logprobs"] == {
        "content": [
            {
                "token": "Hé",
                "logprob": -0.5,
                "bytes": [72, 195, 169],
                "top_logprobs": [
                    {"token": "Hé", "logprob": -0.5, "bytes": [72, 195, 169]},
                    {"token": "x", "logprob": -9999.0, "bytes": [120]},
                ],
            }
        ],
        "refusal": None,
    }
    assert whole(deltas)["choices"][0]["logprobs"] == chunk["logprobs"]


def test_logprobs_of_held_text_wait_for_the_next_chunk_and_come_once() -> None:
    deltas = [
        EventDelta("r", 0, 0, (), (logprob("<"),)),
        EventDelta("r", 1, 0, (TextDelta("<b"), TextDelta(">")), (logprob("b>"),)),
        EventDelta("r", 2, 0, (), (logprob("</s>"),), ChoiceEnd("stop"), USAGE),
    ]
    events = stream(deltas)
    said = [
        [entry["token"] for entry in (part["logprobs"] or {"content": []})["content"]]
        for event in events[:-1]
        for part in event["choices"]
    ]
    assert said == [[], ["<", "b>"], [], ["</s>"]]
    tokens = [entry["token"] for entry in whole(deltas)["choices"][0]["logprobs"]["content"]]
    assert tokens == ["<", "b>", "</s>"]
    kept = helper(events).choices[0].logprobs
    assert kept is not None
    assert [entry.token for entry in kept.content or []] == tokens


# Several choices.


def test_two_choices_interleave_without_mixing() -> None:
    deltas = [
        EventDelta("r", 0, 1, (TextDelta("b1"),)),
        EventDelta("r", 1, 0, (CallStart(0, "f"),)),
        EventDelta("r", 2, 1, (TextDelta("b2"),), None, STOP),
        EventDelta("r", 3, 0, (ArgumentsDelta(0, "{}"), CallEnd(0)), None, STOP, USAGE),
    ]
    events = stream(deltas)
    assert [delta.get("content") for delta in deltas_of(events, 1)] == ["", "b1", "b2", None]
    final = helper(events)
    assert [choice.finish_reason for choice in final.choices] == ["tool_calls", "stop"]
    assert final.choices[1].message.content == "b1b2"
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert (calls[0].function.name, calls[0].function.arguments) == ("f", "{}")
    folded = whole(deltas, num_choices=2)["choices"]
    assert [choice["finish_reason"] for choice in folded] == ["tool_calls", "stop"]
    assert folded[1]["message"]["content"] == "b1b2"


# Both ways say the same, and openai-python reads it.

TURNS: dict[str, tuple[Event, ...]] = {
    "text": (TextDelta("a"), TextDelta("b")),
    "calls": (*WEATHER, *TIME),
    "text around calls": (TextDelta("a"), *WEATHER, TextDelta("b"), *TIME, TextDelta("c")),
    "reasoning then call": (ReasoningDelta("h"), ReasoningDelta("m"), *WEATHER),
    "reasoning then text": (ReasoningDelta("hm"), TextDelta("a")),
    "reasoning only": (ReasoningDelta("hm"),),
    "nothing": (),
    "unicode": (TextDelta('\u2028 \u0085 "\\" \x00 \U0001f600'),),
}


@pytest.mark.parametrize("name", TURNS)
def test_a_stream_amounts_to_the_object(name: str) -> None:
    deltas = one(*TURNS[name])
    streamed = helper(stream(deltas, usage=True)).to_dict()
    folded = whole(deltas)
    assert streamed.pop("system_fingerprint") is None  # the helper's, not ours
    assert (streamed.pop("object"), folded.pop("object")) == ("chat.completion",) * 2
    for completion in (streamed, folded):
        for choice in completion["choices"]:  # type: ignore[union-attr]
            choice["message"] = {
                key: value for key, value in choice["message"].items() if value is not None
            }
            for call in choice["message"].get("tool_calls", []):
                call.pop("index", None)
                call["function"].pop("parsed_arguments", None)
    assert streamed == folded


def test_one_wake_up_is_one_write_of_the_same_chunks() -> None:
    deltas = one(*TURNS["text around calls"])
    writer = ChunkWriter(HEAD, style(), include_usage=False)
    assert events_of(writer.write(deltas)) == stream(deltas)


def test_a_string_is_one_line_for_every_client() -> None:
    written = json_string("a\u2028b\u2029c\u0085d\ne\rf\x0bg\x1ch ü 中")
    assert len(written.decode().splitlines()) == 1
    assert json.loads(written) == "a\u2028b\u2029c\u0085d\ne\rf\x0bg\x1ch ü 中"


def test_call_ids_are_ours_and_never_repeat() -> None:
    made = {ids.new_call_id() for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch(r"call_[A-Za-z0-9_-]{24}", call_id) for call_id in made)


def test_writing_costs_no_more_per_event_late_in_a_long_stream() -> None:
    """The text that was sent is never looked at again: a late chunk is as long as an early one."""
    writer = ChunkWriter(HEAD, style(), include_usage=False)
    sizes = [
        len(writer.write([EventDelta("r", seq, 0, (TextDelta("word "),))])) for seq in range(2000)
    ]
    assert set(sizes[1:]) == {sizes[1]}


# Custom calls: the product specification's extension of the published stream.

PYTHON: tuple[Event, ...] = (
    CallStart(0, "run_python", custom=True),
    ArgumentsDelta(0, "print('a"),
    ArgumentsDelta(0, "')\n"),
    CallEnd(0),
)


def test_a_custom_call_streams_its_name_and_then_its_input() -> None:
    *chunks, _ = stream(one(*PYTHON, *TIME))
    deltas = [chunk["choices"][0]["delta"].get("tool_calls") for chunk in chunks]
    assert [delta[0] for delta in deltas if delta] == [
        {
            "index": 0,
            "id": "call_1",
            "type": "custom",
            "custom": {"name": "run_python", "input": ""},
        },
        {"index": 0, "custom": {"input": "print('a"}},
        {"index": 0, "custom": {"input": "')\n"}},
        {
            "index": 1,
            "id": "call_2",
            "type": "function",
            "function": {"name": "get_time", "arguments": ""},
        },
        {"index": 1, "function": {"arguments": "{}"}},
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_custom_call_in_an_object_is_what_the_published_schema_says() -> None:
    body = whole(one(*PYTHON, *TIME))
    assert body["choices"][0]["message"]["tool_calls"] == [
        {
            "id": "call_1",
            "type": "custom",
            "custom": {"name": "run_python", "input": "print('a')\n"},
        },
        {"id": "call_2", "type": "function", "function": {"name": "get_time", "arguments": "{}"}},
    ]
    message = ChatCompletion.model_validate(body).choices[0].message
    assert [call.type for call in message.tool_calls or ()] == ["custom", "function"]


# The exact behaviour of the hosted API for a call that was forced by name.


def test_a_named_choice_can_finish_as_the_hosted_api_does() -> None:
    for events, reason in ((WEATHER, "stop"), (CUT_AFTER_ONE, "stop"), ((TextDelta("a"),), "stop")):
        deltas = one(*events)
        assert stream(deltas, reason_of_calls="stop")[-2]["choices"][0]["finish_reason"] == reason
        assert whole(deltas, reason_of_calls="stop")["choices"][0]["finish_reason"] == reason
    cut = one(*WEATHER, finish="length")
    assert whole(cut, reason_of_calls="stop")["choices"][0]["finish_reason"] == "length"


# Early dispatch.

EARLY = Dispatch(tool_calls=True, reasoning=True)
PYTHON_AT_1: tuple[Event, ...] = (
    CallStart(1, "run_python", custom=True),
    ArgumentsDelta(1, "print(1)"),
    CallEnd(1),
)


def dispatched(
    deltas: Sequence[EventDelta], dispatch: Dispatch = EARLY
) -> list[tuple[str, Any, int]]:
    """Name and data of each early event, and how many chunks came before it."""
    writer = ChunkWriter(HEAD, style(dispatch=dispatch), include_usage=True)
    blocks = writer.write(deltas).decode().split("\n\n")[:-1]
    chunks = 0
    found: list[tuple[str, Any, int]] = []
    for block in blocks:
        name, _, data = block.rpartition("\n")
        if name:
            found.append(
                (name.removeprefix("event: "), json.loads(data.removeprefix("data: ")), chunks)
            )
        else:
            chunks += 1
    return found


def test_a_call_is_dispatched_when_it_is_complete() -> None:
    first, second = dispatched(one(*WEATHER, *PYTHON_AT_1))
    name, data, chunks = first
    assert name == "tool_call_dispatch"
    assert (data["choice_index"], data["choices"], data["usage"]) == (0, [], None)
    assert data["tool_call"] == {
        "index": 0,
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Zürich"}'},
    }
    assert chunks == 4  # role, start and two of arguments: before the next call
    assert second[1]["tool_call"] == {
        "index": 1,
        "id": "call_2",
        "type": "custom",
        "custom": {"name": "run_python", "input": "print(1)"},
    }


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_call_that_broke_off_is_not_dispatched(finish: str) -> None:
    names = [data["tool_call"]["id"] for _, data, _ in dispatched(one(*CUT_AFTER_ONE))]
    assert names == ["call_1"]
    assert dispatched(one(*CUT, finish=finish)) == []


def test_reasoning_is_dispatched_run_by_run() -> None:
    turn = (ReasoningDelta("a"), ReasoningDelta("b"), TextDelta("x"), ReasoningDelta("c"))
    assert [(name, data["reasoning_content"], at) for name, data, at in dispatched(one(*turn))] == [
        ("reasoning_dispatch", "ab", 3),
        ("reasoning_dispatch", "c", 5),
    ]
    cut = dispatched(one(*turn, finish="length"))
    assert [data["reasoning_content"] for _, data, _ in cut] == ["ab"]  # the last is not whole


def test_choices_are_dispatched_apart() -> None:
    deltas = [
        EventDelta("r", 0, 1, (CallStart(0, "f"), ArgumentsDelta(0, '{"b":'))),
        EventDelta("r", 1, 0, (ReasoningDelta("hm"), CallStart(0, "f"), ArgumentsDelta(0, "{}"))),
        EventDelta("r", 2, 1, (ArgumentsDelta(0, "1}"), CallEnd(0)), None, STOP),
        EventDelta("r", 3, 0, (CallEnd(0),), None, STOP, USAGE),
    ]
    told = dispatched(deltas)
    assert [data.get("choice_index", data.get("index")) for _, data, _ in told] == [0, 1, 0]
    calls = [
        data["tool_call"]["function"]["arguments"] for _, data, _ in told if "tool_call" in data
    ]
    assert calls == ['{"b":1}', "{}"]


def test_what_is_not_wanted_is_not_dispatched() -> None:
    turn = one(ReasoningDelta("hm"), *WEATHER)
    assert [n for n, *_ in dispatched(turn, Dispatch(tool_calls=True))] == ["tool_call_dispatch"]
    assert [n for n, *_ in dispatched(turn, Dispatch(reasoning=True))] == ["reasoning_dispatch"]
    assert dispatched(turn, Dispatch()) == []


def test_a_client_that_knows_no_early_events_loses_nothing() -> None:
    """openai-python passes the data of named events on as chunks."""
    writer = ChunkWriter(HEAD, style(dispatch=EARLY), include_usage=True)
    data = writer.write(one(ReasoningDelta("hm"), TextDelta("a"), *WEATHER)).decode()
    lines = [line.removeprefix("data: ") for line in data.splitlines() if line.startswith("data")]
    final = helper([json.loads(line) for line in lines[:-1]])
    assert final.choices[0].message.content == "a"
    assert len(final.choices[0].message.tool_calls or []) == 1
    assert final.usage is not None
