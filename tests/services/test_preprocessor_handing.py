"""Handing streams to postprocessors, one of which dies with the question."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from prometheus_client import CollectorRegistry

from services.preprocessor.handing import Postprocessors
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.directory import Directory
from toolrail.errors import DeadlineError, NoRespondersError
from toolrail.messages import (
    Accepted,
    Instance,
    Sampling,
    Stream,
    decode_stream,
    encode,
)
from toolrail.service.liveness import Asking, answerer

pytestmark = pytest.mark.anyio

STREAM = Stream(
    request_id="r",
    model="m",
    card="c",
    sampling=Sampling(max_tokens=9),
    reply_subject="gw",
    term=16,
)


async def test_a_stream_is_handed_to_another_when_the_one_that_took_it_dies() -> None:
    broker = MemoryBroker()
    bus, dying, other = (broker.connect() for _ in range(3))
    here = Instance(service="postprocessor", instance="post-1", pid=1)
    await bus.instances.put("postprocessor.post-1", encode(here))
    directory = Directory(bus)
    await directory.start()
    asking = Asking(bus, directory, "postprocessor", probe_s=0.01, gone_s=0)
    terms: list[int] = []

    async def accept(payload: bytes) -> bytes:
        terms.append(decode_stream(payload).term)
        return encode(Accepted(request_id="r", instance="post-2"))

    async def die(payload: bytes) -> bytes:
        terms.append(decode_stream(payload).term)
        await other.serve(subjects.STREAM, subjects.POSTPROCESSORS, accept, max_in_flight=9)
        await dying.close()
        await anyio.sleep_forever()
        return b""

    await dying.serve(subjects.STREAM, subjects.POSTPROCESSORS, die, max_in_flight=9)
    await dying.serve(subjects.ping("post-1"), "q", answerer(CollectorRegistry()), max_in_flight=9)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking.watch)
        postprocessors = Postprocessors(asking, timeout_s=20)
        reply, handed = await postprocessors.take(STREAM, left_s=600)
        assert isinstance(reply, Accepted)
        assert reply.instance == "post-2"
        assert (terms, decode_stream(handed).term) == ([16, 17], 17)
        tasks.cancel_scope.cancel()
    await directory.stop()


async def test_one_that_connects_anew_is_waited_for_and_one_that_is_gone_is_not() -> None:
    broker = MemoryBroker()
    bus, other = broker.connect(), broker.connect()
    directory = Directory(bus)
    await directory.start()
    asked = 0

    async def request(gone_s: float) -> bytes:
        asking = Asking(bus, directory, "postprocessor", probe_s=1, gone_s=gone_s)
        return await asking.request("s", b"", timeout_s=60)

    async def answer(payload: bytes) -> bytes:
        nonlocal asked
        asked += 1
        return payload

    with pytest.raises(NoRespondersError):  # nobody is registered
        await request(gone_s=60)
    here = Instance(service="postprocessor", instance="post-1", pid=1)
    await bus.instances.put("postprocessor.post-1", encode(here))
    await anyio.wait_all_tasks_blocked()
    with pytest.raises(NoRespondersError):
        await request(gone_s=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(request, 60)
        await anyio.wait_all_tasks_blocked()
        await other.serve("s", "q", answer, max_in_flight=1)
    assert asked == 1
    await directory.stop()


async def test_nobody_there_and_nobody_in_time_are_told_apart() -> None:
    bus = MemoryBroker().connect()
    asking = Asking(bus, Directory(bus), "postprocessor", probe_s=1, gone_s=1)
    postprocessors = Postprocessors(asking, timeout_s=0.01)
    with pytest.raises(NoRespondersError):
        await postprocessors.take(STREAM, left_s=600)

    async def never(payload: bytes) -> bytes:
        await anyio.sleep_forever()
        return payload

    await bus.serve(subjects.STREAM, subjects.POSTPROCESSORS, never, max_in_flight=9)
    with pytest.raises(DeadlineError):
        await postprocessors.take(STREAM, left_s=600)
    await bus.close()
