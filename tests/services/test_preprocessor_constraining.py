"""The checks of one request share a budget: who waits for the answer gets one that helps."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import anyio
import pytest

from services.preprocessor.constraining import Constraining, Step
from toolrail.errors import CallerError, QueueFullError
from toolrail.families import dialect
from toolrail.openai.chat import ChatRequest, check_chat
from toolrail.openai.constraint import Setting
from toolrail.openai.policy import Deployment
from toolrail.structural_tag import TagOptions

pytestmark = pytest.mark.anyio


class Costly:
    """Refuses the first `refusals` tags as too expensive, then never answers."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    async def check(self, tag_json: str) -> bool:
        if not self.refusals:
            await anyio.sleep_forever()
        self.refusals -= 1
        raise CallerError("compiling it takes too much CPU time", code="grammar_too_expensive")


async def here(work: Callable[[], Step]) -> Step:
    return work()


def request() -> ChatRequest:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
        for name in ("one", "two")
    ]
    body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": tools}
    return check_chat(json.dumps(body).encode())


def setting() -> Setting:
    pair = dialect("hermes", None)
    deployment = Deployment.of(pair.family, options=TagOptions(), exclude_tools_when_none=True)
    return Setting(deployment, pair, "hermes", None, "none")


def settled(checks: Costly) -> Awaitable[object]:
    return Constraining(checks, here, budget_s=0.05).settled(request(), setting())


async def test_a_costly_schema_is_the_senders_to_shrink_also_when_the_search_takes_too_long() -> (
    None
):
    with pytest.raises(CallerError) as refused:
        await settled(Costly(refusals=1))
    assert (refused.value.status, refused.value.param) == (400, "tools")
    assert refused.value.code == "grammar_too_expensive"


async def test_without_a_verdict_in_time_the_sender_is_asked_to_come_again() -> None:
    with pytest.raises(QueueFullError):
        await settled(Costly(refusals=0))
