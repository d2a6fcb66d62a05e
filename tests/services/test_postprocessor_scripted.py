"""With a real worker and its scripted engine in the place of the hand-played one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.services.postprocessor_bench import Bench, bench, content, stream, until
from tests.services.worker_kit import scripted, working
from toolrail.bus.memory import MemoryBroker
from toolrail.messages import ChoiceEnd, Output, Sampling

pytestmark = pytest.mark.anyio

TEXT = "The quick brown 🦊 jumps, naïvely, over 犬. " * 3


@asynccontextmanager
async def pipeline(*rows: dict[str, Any]) -> AsyncGenerator[Bench]:
    """A postprocessor and a worker that plays `rows`."""
    broker = MemoryBroker()
    async with bench(broker=broker) as b, working(scripted(*rows), broker=broker):
        assert b.worker.pull is not None
        await b.worker.pull.stop()
        yield b


@pytest.mark.parametrize("chunk_tokens", [1, 3, [1, 7, 2], 1000])
async def test_text_survives_any_stepping(chunk_tokens: object) -> None:
    row = {"match": "", "text": TEXT, "chunk_tokens": chunk_tokens}
    async with pipeline(row) as b:
        await b.gateway.hand_over(stream(sampling=Sampling(max_tokens=1000)))
        last = await b.gateway.last()
        assert (content(b, 0), last.end) == (TEXT, ChoiceEnd("stop"))
        assert last.usage is not None
        assert last.usage.completion_tokens == len(TEXT.encode()) + 1  # one id a byte, and the end


async def test_a_cut_inside_a_character_shows_that_it_was_cut() -> None:
    async with pipeline({"match": "", "text": "ab犬"}) as b:
        await b.gateway.hand_over(stream(sampling=Sampling(max_tokens=4)))
        last = await b.gateway.last()
        assert (content(b, 0), last.end) == ("ab\ufffd", ChoiceEnd("length"))


async def test_a_stop_string_frees_the_engine() -> None:
    endless = {"match": "", "text": "x" * 500 + "STOP" + "y" * 4000, "chunk_tokens": 5}
    async with pipeline(endless) as b:
        await b.gateway.hand_over(
            stream(num_choices=2, output=Output(stop=("STOP",)), sampling=Sampling(max_tokens=4500))
        )
        last = await b.gateway.last()
        assert [content(b, choice) for choice in (0, 1)] == ["x" * 500] * 2
        assert last.end == ChoiceEnd("stop", "STOP")
        await until(lambda: b.metric("deltas_dropped_total", reason="unknown_stream"))
        assert b.metric("tokens_total") < 2 * 4500


async def test_choices_stream_side_by_side() -> None:
    async with pipeline({"match": "", "text": TEXT, "chunk_tokens": 4}) as b:
        await b.gateway.hand_over(stream(num_choices=4, sampling=Sampling(max_tokens=1000)))
        last = await b.gateway.last()
        assert [content(b, choice) for choice in range(4)] == [TEXT] * 4
        assert [d.seq for d in b.gateway.deltas()] == list(range(len(b.gateway.deltas())))
        assert last.usage is not None
        assert last.usage.completion_tokens == 4 * (len(TEXT.encode()) + 1)


async def test_an_engine_that_fails_a_run_fails_its_stream() -> None:
    async with pipeline({"match": "", "text": "some words", "finish": "error"}) as b:
        await b.gateway.hand_over(stream())
        failed = (await b.gateway.last()).failed
        assert failed is not None
        assert (failed.code, failed.status) == ("engine", 500)
