"""A mixed load of requests, and a strict judge of what becomes of each.

Whatever happens to the services, a request must end in one of these ways: a complete and correct
answer; an error object with a status; an error event as the last of a stream. A fourth way, a
connection that breaks, is left to a gateway that is killed.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import anyio
import httpx
import jsonschema

from services.worker.scripted.script import FIXED_SENTENCE

Fate: TypeAlias = Literal["answered", "refused", "failed", "cut"]

REFUSALS: Final = frozenset({404, 429, 502, 503, 504})
CODES: Final = frozenset({"unavailable", "overloaded", "lost", "deadline", "model_not_found"})
"""Not found is what a preprocessor says that was restarted while no worker was there."""
PATIENCE_S: Final = 240.0
"""No request takes as long, whatever happens; a hung one is a failed test."""

_WORDS: Final = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": 8},
    "minItems": 3,
    "maxItems": 6,
}
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"words": _WORDS, "deep": {"type": "boolean"}},
    "required": ["words", "deep"],
    "additionalProperties": False,
}
TOOL: Final = {
    "type": "function",
    "function": {"name": "note", "strict": True, "parameters": SCHEMA},
}


def request(rng: random.Random) -> dict[str, Any]:
    """One of the kinds that there are, streamed or not."""
    kind = rng.choice(["text", "choices", "call", "call", "object"])
    body: dict[str, Any] = {
        "model": "demo",
        "messages": [{"role": "user", "content": f"Do it ({rng.random()})."}],
    }
    if rng.random() < 0.7:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if kind == "choices":
        body |= {"n": 2, "logprobs": True, "top_logprobs": 1}
    elif kind == "call":
        body |= {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    elif kind == "object":
        named = {"name": "note", "strict": True, "schema": SCHEMA}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    return body


@dataclass
class Choice:
    """What came of one choice."""

    content: str = ""
    names: list[str] = field(default_factory=list[str])
    arguments: list[str] = field(default_factory=list[str])
    logprobs: int = 0
    finish_reason: str | None = None


@dataclass
class Tally:
    """How the requests ended."""

    fates: Counter[Fate] = field(default_factory=Counter[Fate])
    codes: Counter[str] = field(default_factory=Counter[str])

    @property
    def total(self) -> int:
        """All of them."""
        return self.fates.total()

    def __str__(self) -> str:
        return f"{dict(self.fates)} {dict(self.codes)}"


class Load:
    """Sends requests and judges their answers. `started`: how many were sent so far."""

    def __init__(self, base_url: str, seed: int, *, keep_alive: bool = True) -> None:
        kept = None if keep_alive else 0
        self._client = httpx.AsyncClient(
            base_url=base_url,
            timeout=httpx.Timeout(PATIENCE_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=kept),
            trust_env=False,
        )
        self._rng = random.Random(seed)
        self.started = 0
        self.tally = Tally()

    async def run(
        self, concurrency: int, more: Callable[[], bool], on_start: Callable[[int], None]
    ) -> None:
        """Keep `concurrency` requests going while there are `more`; `on_start` hears of each."""

        async def client() -> None:
            while more():
                self.started += 1
                on_start(self.started)
                with anyio.fail_after(PATIENCE_S):
                    fate = await self._send(request(self._rng))
                self.tally.fates[fate] += 1
                if fate != "answered":
                    await anyio.sleep(self._rng.uniform(0.5, 2.0))  # as clients do

        async with self._client, anyio.create_task_group() as tasks:
            for _ in range(concurrency):
                tasks.start_soon(client)

    async def _send(self, body: dict[str, Any]) -> Fate:
        try:
            if body.get("stream"):
                return await self._streamed(body)
            response = await self._client.post("/v1/chat/completions", json=body)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.ConnectError):
            return "cut"
        if response.status_code != 200:
            return self._refused(response.status_code, response.json())
        answer = response.json()
        judge(body, _choices(answer), answer["usage"])
        return "answered"

    async def _streamed(self, body: dict[str, Any]) -> Fate:
        choices = [Choice() for _ in range(body.get("n", 1))]
        usage: dict[str, Any] | None = None
        async with self._client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                return self._refused(response.status_code, json.loads(await response.aread()))
            async for data in _events(response):
                assert usage is None or data == "[DONE]", "something follows the usage"
                if data == "[DONE]":
                    assert usage is not None
                    judge(body, choices, usage)
                    return "answered"
                chunk = json.loads(data)
                if "error" in chunk:
                    self._error(chunk)
                    return "failed"
                for part in chunk["choices"]:
                    _fold(choices[part["index"]], part)
                usage = chunk["usage"]
        raise AssertionError("a stream that was complete for HTTP has no end")

    def _refused(self, status: int, body: Any) -> Fate:
        assert status in REFUSALS, (status, body)
        self._error(body)
        return "refused"

    def _error(self, body: Any) -> None:
        assert set(body) == {"error"}, body
        assert body["error"]["code"] in CODES, body
        self.tally.codes[body["error"]["code"]] += 1


async def _events(response: httpx.Response) -> AsyncIterator[str]:
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")
        else:
            assert not line or line.startswith(":"), line


def _fold(choice: Choice, part: dict[str, Any]) -> None:
    assert choice.finish_reason is None, "a choice goes on after its end"
    delta = part["delta"]
    choice.content += delta.get("content") or ""
    for call in delta.get("tool_calls") or ():
        function = call["function"]
        if call["index"] == len(choice.names):
            choice.names.append(function["name"])
            choice.arguments.append("")
        choice.arguments[call["index"]] += function["arguments"]
    choice.logprobs += len((part["logprobs"] or {}).get("content") or ())
    choice.finish_reason = part["finish_reason"]


def _choices(answer: dict[str, Any]) -> list[Choice]:
    found: list[Choice] = []
    for one in answer["choices"]:
        message = one["message"]
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        found.append(
            Choice(
                message["content"] or "",
                [call["name"] for call in calls],
                [call["arguments"] for call in calls],
                len((one["logprobs"] or {}).get("content") or ()),
                one["finish_reason"],
            )
        )
    return found


def judge(body: dict[str, Any], choices: list[Choice], usage: dict[str, Any]) -> None:
    """Whether an answer is complete and right: nothing lost, nothing twice."""
    assert len(choices) == body.get("n", 1)
    assert usage["prompt_tokens"] > 0
    for choice in choices:
        if "tools" in body:
            assert choice.finish_reason == "tool_calls", choice
            assert choice.names == ["note"], choice
            jsonschema.validate(json.loads(choice.arguments[0]), SCHEMA)
        elif "response_format" in body:
            assert choice.finish_reason == "stop", choice
            jsonschema.validate(json.loads(choice.content), SCHEMA)
        else:
            assert (choice.content, choice.finish_reason) == (FIXED_SENTENCE, "stop"), choice
    if body.get("logprobs"):
        # Each choice has one id more than logprobs: that of its end.
        counts = {choice.logprobs for choice in choices}
        assert {usage["completion_tokens"] // len(choices) - 1} == counts, (usage, choices)
