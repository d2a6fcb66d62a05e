"""An owner's share of the line for the workers."""

from __future__ import annotations

import pytest

from tests.services.postprocessor_bench import CARD, Bench, bench, stream, turns, until
from toolrail.messages import Accepted, Failed, Stream

pytestmark = pytest.mark.anyio


async def hand_over(b: Bench, request_id: str, **fields: object) -> Accepted | Failed:
    one: Stream = stream(request_id, **fields)
    return await b.gateway.hand_over(one)


async def test_nobody_fills_the_line_alone() -> None:
    async with bench(max_waiting_per_slot=0.5) as b:
        share = CARD.slots // 2
        for number in range(share):
            assert isinstance(await hand_over(b, f"a{number}", owner="a"), Accepted)
        failed = await hand_over(b, "too many", owner="a")
        assert isinstance(failed, Failed)
        assert (failed.code, failed.status, failed.retry_after_s) == ("overloaded", 429, 1)
        assert isinstance(await hand_over(b, "other", owner="b"), Accepted)
        for number in range(share + 2):  # nobody knows whose these are
            assert isinstance(await hand_over(b, f"n{number}"), Accepted)


@pytest.mark.parametrize("how", ["begun", "cancelled"])
async def test_who_waits_no_more_gives_the_place_back(how: str) -> None:
    async with bench(max_waiting_per_slot=0.25) as b:
        (job,) = await b.opened(stream("first", owner="a"))
        assert isinstance(await hand_over(b, "second", owner="a"), Failed)
        if how == "begun":
            await b.worker.send(b.worker.delta(job, "x"), b.worker.delta(job, "y"))
            await until(lambda: b.gateway.frames)
        else:
            await b.gateway.cancel("first")
            await b.gateway.last("first")
        assert isinstance(await hand_over(b, "third", owner="a"), Accepted)
        await b.worker.send(b.worker.delta(job, "z"))
        await turns()
        assert isinstance(await hand_over(b, "fourth", owner="a"), Failed)


async def test_a_stream_that_is_taken_over_is_not_refused() -> None:
    async with bench(max_waiting_per_slot=0.25) as b:
        await b.opened(stream("first", owner="a"))
        reply = await hand_over(b, "second", owner="a", started=(), term=1)
        assert isinstance(reply, Accepted)
