"""The line before the preprocessor's work."""

from __future__ import annotations

import anyio
import pytest
from prometheus_client import CollectorRegistry

from services.preprocessor.metrics import PreprocessorMetrics
from services.preprocessor.turns import Turns
from tests.services.postprocessor_bench import turns, until
from toolrail.messages import Failed, Prepare, decode_reply, encode

pytestmark = pytest.mark.anyio


class Line:
    """A line whose handler takes until `release`."""

    def __init__(self, at_once: int, max_waiting: int, timeout_s: float = 60) -> None:
        self.release = anyio.Event()
        self.inside: list[bytes] = []
        self.answers: list[bytes] = []
        self.turns = Turns(
            self.handle,
            PreprocessorMetrics(CollectorRegistry()),
            at_once=at_once,
            max_waiting=max_waiting,
            timeout_s=timeout_s,
        )

    async def handle(self, payload: bytes) -> bytes:
        self.inside.append(payload)
        await self.release.wait()
        return b"done"

    async def ask(self, payload: bytes) -> None:
        self.answers.append(await self.turns.answer(payload))


async def test_more_than_at_once_wait_and_more_than_may_wait_are_told() -> None:
    line = Line(2, 1)
    last = encode(Prepare(request_id="r", body=b"{}", reply_subject="g"))
    async with anyio.create_task_group() as tasks:
        for payload in (b"a", b"b", b"c", last):
            tasks.start_soon(line.ask, payload)
            await turns()
        assert (line.inside, line.turns.waiting) == ([b"a", b"b"], 1)
        (refused,) = line.answers
        failed = decode_reply(refused)
        assert isinstance(failed, Failed)
        assert (failed.request_id, failed.code, failed.status) == ("r", "overloaded", 429)
        assert failed.retry_after_s == 1
        line.release.set()
        await until(lambda: line.answers[1:] == [b"done"] * 3)
    assert line.turns.waiting == 0


async def test_who_waits_too_long_is_told_and_holds_nothing() -> None:
    line = Line(1, 1, timeout_s=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.ask, b"a")
        await turns()
        await line.ask(b"b")
        assert isinstance(decode_reply(line.answers[0]), Failed)
        assert line.turns.waiting == 0
        line.release.set()
    assert line.answers[1] == b"done"


async def test_who_is_cancelled_while_waiting_leaves_the_line() -> None:
    line = Line(1, 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.ask, b"a")
        await turns()
        with anyio.move_on_after(0):
            await line.ask(b"b")
        assert line.turns.waiting == 0
        line.release.set()
