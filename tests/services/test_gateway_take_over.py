"""Streams that change owners, seen from the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.heard import Heard, length
from tests.services.gateway_double import POSTPROCESSOR, STOP, USAGE, Answer, Stack, stack
from toolrail.bus import subjects
from toolrail.events import ArgumentsDelta, CallEnd, CallStart, Event, ReasoningDelta, TextDelta
from toolrail.messages import (
    OWNER_STOPPING,
    TERM_STEP,
    Accepted,
    Cancel,
    ChoiceEnd,
    EventDelta,
    Failed,
    Position,
    Positions,
    Prepare,
    Reply,
    Sampling,
    Stream,
    VisibleLogprob,
    decode_cancel,
    decode_stream,
    encode,
)
from toolrail.service.liveness import answerer
from toolrail.settings import GatewaySettings

pytestmark = pytest.mark.anyio

OTHER = "post-2"
HANDED = Stream(
    request_id="r", model="m", card="c", sampling=Sampling(max_tokens=9), reply_subject="gw"
)
SETTINGS = GatewaySettings(instance="gw", take_over_timeout_s=0.5)


@dataclass
class Owners:
    """Takes streams over, in the place of another postprocessor."""

    asked: list[Stream] = field(default_factory=list[Stream])
    answers: list[Reply] = field(default_factory=list[Reply])

    async def take(self, payload: bytes) -> bytes:
        stream = decode_stream(payload)
        self.asked.append(stream)
        if self.answers:
            return encode(self.answers.pop(0))
        control = subjects.control(OTHER)
        return encode(
            Accepted(request_id=stream.request_id, instance=OTHER, control_subject=control)
        )


@asynccontextmanager
async def begun(*, others: bool = True) -> AsyncGenerator[tuple[Stack, Owners, Answer, str]]:
    """A streamed answer of which `ab` was heard."""
    async with stack(
        settings=SETTINGS, instance=POSTPROCESSOR, handed=encode(HANDED), stream=True
    ) as s:
        owners = Owners()
        if others:
            await s.peers.bus.serve(
                subjects.STREAM, subjects.POSTPROCESSORS, owners.take, max_in_flight=9
            )
        s.tasks.start_soon(s.gateway.take_over.serve)
        answer = s.visit()
        rid = await s.peers.request()
        await s.peers.say(rid, TextDelta("ab"))
        await answer.written(1)
        yield s, owners, answer, rid


async def rest(s: Stack, rid: str, *events: Event, seq: int = 0, **more: Any) -> None:
    """What the new owner says."""
    await s.peers.say(
        rid, *events, seq=seq, postprocessor=OTHER, term=more.pop("term", TERM_STEP), **more
    )


def content(answer: Answer) -> str:
    deltas = (c["delta"] for e in answer.events if "choices" in e for c in e["choices"])
    return "".join(delta.get("content") or "" for delta in deltas)


async def test_a_dead_owner_is_replaced_and_what_was_heard_is_not_said_again() -> None:
    async with begun() as (s, owners, answer, rid):
        s.gateway.streams.lose({POSTPROCESSOR})
        await s.peers.say(rid, TextDelta("stale"), seq=1, term=0)
        await rest(s, rid, TextDelta("a"))
        await rest(s, rid, TextDelta("bcd"), seq=1, end=STOP, usage=USAGE)
        await answer.end()
        assert content(answer) == "abcd"
        (asked,) = owners.asked
        assert (asked.term, asked.started) == (TERM_STEP, (0,))
        assert s.metric("toolrail_take_overs_total", outcome="done") == 1


async def test_a_gap_and_an_owner_that_stops_are_mended_alike() -> None:
    for failed, seq in ((None, 5), (stopping(), 1)):
        async with begun() as (s, owners, answer, rid):
            await s.peers.say(rid, TextDelta("x"), seq=seq, failed=failed)
            await rest(s, rid, TextDelta("abc"), end=STOP, usage=USAGE)
            await answer.end()
            assert content(answer) == "abc"
            assert len(owners.asked) == 1


def stopping(*, unqueued: bool = False) -> Failed:
    return Failed(
        request_id="r",
        code="unavailable",
        message="",
        error_code=OWNER_STOPPING,
        retryable=True,
        unqueued=unqueued,
    )


async def test_what_had_no_job_yet_is_queued_by_its_next_owner_and_only_by_that_one() -> None:
    async with begun() as (s, owners, answer, rid):
        await s.peers.say(rid, seq=1, failed=stopping(unqueued=True))
        with anyio.fail_after(10):
            while len(owners.asked) < 1:
                await anyio.lowlevel.checkpoint()
        await rest(s, rid, TextDelta("abc"))
        await answer.written(2)
        s.gateway.streams.lose({OTHER})
        await rest(s, rid, TextDelta("abc"), term=2 * TERM_STEP, end=STOP, usage=USAGE)
        await answer.end()
        assert [asked.started for asked in owners.asked] == [None, (0,)]


async def test_owners_are_asked_about_silent_streams_and_answered_when_the_end_was_lost() -> None:
    async with begun() as (s, owners, answer, rid):
        streams = s.gateway.streams
        now = asyncio.get_running_loop().time()
        streams.ask(now + 1, 2)
        streams.ask(now + 3, 2)
        streams.ask(now + 4, 2)
        await anyio.wait_all_tasks_blocked()
        assert s.peers.asked == [
            Positions(reply_subject=streams.reply_subject, streams=(Position(rid, 1, 0),))
        ]
        gone = Failed(request_id=rid, code="lost", message="gone", error_code=OWNER_STOPPING)
        await s.peers.say(rid, failed=gone, seq=0)  # it was heard of since it was asked
        await s.peers.say(rid, failed=gone, seq=1)
        await rest(s, rid, TextDelta("abc"), end=STOP, usage=USAGE)
        await answer.end()
        assert content(answer) == "abc"
        assert [stream.term for stream in owners.asked] == [TERM_STEP]


async def test_a_stream_that_has_ended_or_looks_for_an_owner_is_not_asked_about() -> None:
    async with begun(others=False) as (s, _, answer, rid):
        (stream,) = s.gateway.streams._open.values()
        stream.next_term()
        assert not stream.whom_to_ask()
        stream.taken_by(OTHER)
        assert list(stream.whom_to_ask()) == [subjects.control(OTHER)]
        await rest(s, rid, TextDelta("abc"), end=STOP, usage=USAGE)
        await answer.end()
        assert not s.gateway.streams._open


async def test_the_former_owner_is_told_to_let_go_of_it() -> None:
    async with begun() as (s, _, answer, rid):
        s.gateway.streams.lose({POSTPROCESSOR})
        cancel = await s.peers.cancelled()
        assert (cancel.request_id, cancel.term) == (rid, TERM_STEP)
        await rest(s, rid, TextDelta("ab"), end=STOP, usage=USAGE)
        await answer.end()


async def test_nobody_to_take_it_over_is_one_error_event() -> None:
    async with begun(others=False) as (s, _, answer, _):
        s.gateway.streams.lose({POSTPROCESSOR})
        await answer.end()
        assert answer.events[-1]["error"]["code"] == "lost"
        assert s.metric("toolrail_take_overs_total", outcome="failed") == 1


async def test_an_owner_that_is_full_is_asked_again_and_one_that_refuses_is_not() -> None:
    full = Failed(request_id="r", code="overloaded", message="full", status=429, retryable=True)
    async with begun() as (s, owners, answer, rid):
        owners.answers.append(full)
        s.gateway.streams.lose({POSTPROCESSOR})
        await s.peers.cancelled()
        await rest(s, rid, TextDelta("ab"), end=STOP, usage=USAGE)
        await answer.end()
        assert len(owners.asked) == 2
    refused = Failed(request_id="r", code="lost", message="no worker has it", status=502)
    async with begun() as (s, owners, answer, _):
        owners.answers.append(refused)
        s.gateway.streams.lose({POSTPROCESSOR})
        await answer.end()
        assert answer.events[-1]["error"]["message"] == "no worker has it"


async def test_a_stream_is_not_handed_on_without_end() -> None:
    async with begun() as (s, owners, answer, rid):
        for number in range(1, SETTINGS.max_take_overs + 1):
            s.gateway.streams.lose({POSTPROCESSOR if number == 1 else OTHER})
            await rest(s, rid, TextDelta("ab"), term=number * TERM_STEP)
            with anyio.fail_after(10):
                while len(owners.asked) < number:
                    await anyio.lowlevel.checkpoint()
        s.gateway.streams.lose({OTHER})
        await answer.end()
        assert answer.events[-1]["error"]["code"] == "lost"


async def test_a_gap_before_the_hand_over_is_answered_waits_for_the_answer() -> None:
    async with stack(settings=SETTINGS) as s:
        owners = Owners()
        await s.peers.bus.serve(
            subjects.STREAM, subjects.POSTPROCESSORS, owners.take, max_in_flight=9
        )
        s.tasks.start_soon(s.gateway.take_over.serve)
        go = anyio.Event()

        async def late(prepare: Prepare) -> Reply:
            await s.peers.say(prepare.request_id, TextDelta("b"), seq=1)
            await go.wait()
            accepted = s.peers.accepted(prepare)
            return msgspec.structs.replace(
                accepted, instance=POSTPROCESSOR, handed=encode(HANDED), stream=True
            )

        s.peers.respond = late
        answer = s.visit()
        rid = await s.peers.request()
        await anyio.wait_all_tasks_blocked()
        (stream,) = s.gateway.streams._open.values()
        assert (stream.lost is not None, list(stream.whom_to_ask())) == (True, [])
        go.set()
        await rest(s, rid, TextDelta("ab"), end=STOP, usage=USAGE)
        await answer.end()
        assert (answer.status, content(answer)) == (200, "ab")


async def test_a_word_between_services_is_no_code_of_an_error() -> None:
    async with begun(others=False) as (s, _, answer, rid):
        stopping = Failed(
            request_id=rid, code="unavailable", message="x", error_code=OWNER_STOPPING
        )
        await s.peers.say(rid, failed=stopping)
        await answer.end()
        assert answer.events[-1]["error"]["code"] == "unavailable"


async def test_an_owner_that_lacks_what_was_heard_is_not_believed() -> None:
    async with begun() as (s, _, answer, rid):
        s.gateway.streams.lose({POSTPROCESSOR})
        await rest(s, rid, TextDelta("a"), end=STOP, usage=USAGE)
        await answer.end()
        assert answer.events[-1]["error"]["code"] == "lost"


async def test_a_client_that_leaves_meanwhile_frees_the_new_owner() -> None:
    async with begun() as (s, owners, answer, rid):
        owners.answers.append(Failed(request_id="r", code="overloaded", message="", retryable=True))
        s.gateway.streams.lose({POSTPROCESSOR})
        answer.leave()
        await s.peers.cancelled()
        await answer.end()
        assert len(s.gateway.streams) == 0
        assert s.peers.cancels[-1].request_id == rid


async def test_who_left_while_the_owner_was_dead_has_the_next_one_end_it() -> None:
    async with begun() as (s, owners, answer, rid):
        heard: list[Cancel] = []
        await s.peers.bus.subscribe(
            subjects.control(OTHER), lambda payload: heard.append(decode_cancel(payload))
        )
        answer.leave()
        await answer.end()
        assert s.gateway.streams.owners() == {POSTPROCESSOR}
        s.gateway.streams.lose({POSTPROCESSOR})
        with anyio.fail_after(10):
            while not heard:
                await anyio.lowlevel.checkpoint()
        assert (heard[0].request_id, heard[0].term) == (rid, TERM_STEP)
        assert s.gateway.streams.owners() == {OTHER}
        await rest(s, rid, failed=Failed(request_id=rid, code="cancelled", message=""))
        with anyio.fail_after(10):
            while s.gateway.streams.owners():
                await anyio.lowlevel.checkpoint()
        s.gateway.streams.lose({OTHER})
        assert len(owners.asked) == 1


async def test_a_later_term_that_a_preprocessor_gave_is_heard() -> None:
    async with begun() as (s, _, answer, rid):
        await rest(s, rid, TextDelta("abc"), term=1)
        await s.peers.say(rid, TextDelta("stale"), seq=1, term=0)
        await rest(s, rid, TextDelta("d"), seq=1, term=1, end=STOP, usage=USAGE)
        await answer.end()
        assert content(answer) == "abcd"


async def test_a_preprocessor_that_dies_while_it_is_asked_is_replaced_at_once() -> None:
    settings = GatewaySettings(instance="gw", probe_s=0.01, gone_s=0.0, hand_over_timeout_s=600)
    async with stack(settings=settings) as s:
        pinged = await s.peers.bus.serve(
            subjects.ping("pre-1"), "q", answerer(s.registry), max_in_flight=9
        )
        await s.peers.bus.serve(subjects.ping("post-1"), "q", answerer(s.registry), max_in_flight=9)
        s.tasks.start_soon(s.gateway.peers.watch, s.gateway.streams.lose)

        async def die(prepare: Prepare) -> Reply:
            s.peers.respond = None
            await pinged.stop()
            await anyio.sleep_forever()
            raise AssertionError(prepare)

        s.peers.respond = die
        answer = s.visit()
        rid = await s.peers.request(2)
        assert [(p.request_id, p.term) for p in s.peers.prepared] == [(rid, 0), (rid, TERM_STEP)]
        await s.peers.finish(rid, TextDelta("a"))
        assert (await answer.end()).status == 200


EVENTS: Sequence[Event] = (
    ReasoningDelta("think"),
    TextDelta("see"),
    CallStart(0, "f"),
    ArgumentsDelta(0, '{"a": 1}'),
    CallEnd(0),
    TextDelta("é🚀"),
)


def cut(events: Sequence[Event], sizes: Sequence[int]) -> list[EventDelta]:
    """The same events in other deltas: `sizes` characters each, one call event each."""
    pieces: list[Event] = []
    left = list(sizes) or [1]
    for event in events:
        text = "" if isinstance(event, CallStart | CallEnd) else event.text
        if not text:
            pieces.append(event)
        while text:
            size = left[len(pieces) % len(left)]
            pieces.append(replace_text(event, text[:size]))
            text = text[size:]
    return [EventDelta("r", number, 0, (piece,)) for number, piece in enumerate(pieces)]


def replace_text(event: Event, text: str) -> Event:
    assert not isinstance(event, CallStart | CallEnd)
    return (
        type(event)(event.index, text) if isinstance(event, ArgumentsDelta) else type(event)(text)
    )


def logprob(number: int) -> VisibleLogprob:
    return VisibleLogprob(str(number), -1.0, b"")


def folded(deltas: Sequence[EventDelta]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for event in (event for delta in deltas for event in delta.events):
        kind = type(event).__name__
        text = "" if isinstance(event, CallStart | CallEnd) else event.text
        if found and found[-1][0] == kind:
            found[-1] = (kind, found[-1][1] + text)
        else:
            found.append((kind, text))
    return found


@given(st.lists(st.integers(1, 4), max_size=4), st.lists(st.integers(1, 9), max_size=4), st.data())
def test_what_two_owners_say_together_is_what_one_says(
    first: list[int], second: list[int], data: st.DataObject
) -> None:
    heard, said = Heard(), cut(EVENTS, first)
    got = [heard.take(delta) for delta in said[: data.draw(st.integers(0, len(said)))]]
    heard.start_again()
    got += [heard.take(delta) for delta in cut(EVENTS, second)]
    assert folded(got) == folded(said)
    assert not heard.behind
    assert sum(length(delta.events) for delta in got) == length(EVENTS)


def test_logprobs_are_said_once_and_an_ended_choice_says_nothing_more() -> None:
    heard = Heard()
    heard.take(EventDelta("r", 0, 0, (TextDelta("a"),), (logprob(0), logprob(1))))
    heard.start_again()
    again = heard.take(
        EventDelta("r", 0, 0, (TextDelta("ab"),), tuple(map(logprob, range(3))), ChoiceEnd("stop"))
    )
    assert again.logprobs == (logprob(2),)
    heard.start_again()
    more = EventDelta("r", 0, 0, (TextDelta("ab"),), (logprob(0),), ChoiceEnd("stop"), USAGE)
    assert heard.take(more) == EventDelta("r", 0, 0, usage=USAGE)
