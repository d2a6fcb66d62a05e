"""What the postprocessor owes its neighbours, on both buses: one body each."""

# ruff: noqa: F811 (an imported fixture is named again by the tests that use it)

from __future__ import annotations

import pytest

from tests.bus.conftest import Connect, Limits, connect, limits  # noqa: F401 (fixtures)
from tests.services.postprocessing import EOS
from tests.services.postprocessor_bench import bench_on, content, stream, turns, until
from toolrail.bus import subjects
from toolrail.events import TextDelta
from toolrail.messages import Accepted, ChoiceEnd, Failed, Output, Usage

pytestmark = pytest.mark.anyio


async def test_ids_of_a_worker_reach_the_gateway_as_events(connect: Connect) -> None:
    async with bench_on(connect) as b:
        reply = await b.gateway.hand_over(stream())
        assert reply == Accepted(
            request_id="r", instance="post-1", control_subject=subjects.control("post-1")
        )
        (job,) = await b.worker.jobs()
        await b.worker.send(b.worker.delta(job, "Hel", cached_tokens=1))
        await b.worker.send(b.worker.delta(job, f"lo{EOS}", finish="stop"))
        last = await b.gateway.last()
        deltas = b.gateway.deltas()
        assert [d.events for d in deltas] == [(TextDelta("Hel"),), (TextDelta("lo"),)]
        assert (last.end, last.usage) == (ChoiceEnd("stop"), Usage(2, 6, 1, 0))
        assert len(b.postprocessor) == 0


async def test_one_frame_in_is_one_frame_out_for_each_gateway(connect: Connect) -> None:
    steps, count = 20, 16
    async with bench_on(connect, queue_order="arrival") as b:
        jobs = await b.opened(*(stream(f"r{n:02}") for n in range(count)))
        before = b.runtime.bus.stats()
        for _ in range(steps):
            await b.worker.send(*(b.worker.delta(job, "x") for job in jobs))
        await until(lambda: len(b.gateway.frames) == steps)
        await turns()
        after = b.runtime.bus.stats()
        assert after.messages_in - before.messages_in == steps
        assert after.messages_out - before.messages_out == steps
        assert all(len(frame.deltas) == count for frame in b.gateway.frames)
        assert b.metric("tokens_total") == steps * count


async def test_stop_strings_cancel_the_run_of_their_choice(connect: Connect) -> None:
    async with bench_on(connect) as b:
        one, two = await b.opened(stream(num_choices=2, output=Output(stop=("END",))))
        await b.worker.send(b.worker.delta(one, "aE"), b.worker.delta(two, "bE"))
        await b.worker.send(b.worker.delta(one, "NDxyz"), b.worker.delta(two, "b"))
        await until(lambda: b.worker.cancels)
        assert [(c.request_id, c.choice) for c in b.worker.cancels] == [("r", 0)]
        await b.worker.send(b.worker.delta(two, "", finish="length"))
        assert (await b.gateway.last()).end == ChoiceEnd("length")
        assert [content(b, choice) for choice in (0, 1)] == ["a", "bEb"]


async def test_a_cancel_reaches_the_workers(connect: Connect) -> None:
    async with bench_on(connect) as b:
        (job,) = await b.opened(stream())
        await b.worker.send(b.worker.delta(job, "a"))
        await b.gateway.cancel()
        failed = (await b.gateway.last()).failed
        assert failed is not None
        assert (failed.code, failed.status) == ("cancelled", 499)
        await until(lambda: b.worker.cancels)
        assert [(c.request_id, c.choice) for c in b.worker.cancels] == [("r", None)]
        assert len(b.postprocessor) == 0


@pytest.mark.parametrize("limits", [Limits(max_queue_jobs=2)])
async def test_a_full_queue_is_told_and_nothing_stays_behind(connect: Connect) -> None:
    async with bench_on(connect) as b:
        reply = await b.gateway.hand_over(stream(num_choices=3))
        assert isinstance(reply, Failed)
        assert (reply.code, reply.status, reply.retryable) == ("overloaded", 429, True)
        assert reply.retry_after_s is not None
        await until(lambda: b.worker.cancels)
        assert [(c.request_id, c.choice) for c in b.worker.cancels] == [("r", None)]
        assert len(b.postprocessor) == 0
