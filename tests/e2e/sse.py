"""Reading a Chat Completions stream strictly, as the field's clients do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.published_answers import check_chunk


@dataclass
class Call:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        return "".join(self.arguments)


@dataclass
class Turn:
    """One choice of a stream; every rule that clients rely on is asserted on the way."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list[Call])
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    chunks: int = 0


def stream(client: httpx.Client, request: dict[str, Any]) -> Turn:
    """The only choice of a streamed request."""
    turn = Turn()
    heads: set[tuple[str, int, str]] = set()
    for chunk in chunks(client, {**request, "stream": True}):
        assert "error" not in chunk, chunk
        assert chunk["object"] == "chat.completion.chunk"
        heads.add((chunk["id"], chunk["created"], chunk["model"]))
        turn.chunks += 1
        turn.usage = chunk.get("usage") or turn.usage
        for choice in chunk["choices"]:
            assert choice["index"] == 0
            assert turn.finish_reason is None, "a delta after the end"
            _fold(turn, choice["delta"])
            turn.finish_reason = choice.get("finish_reason")
    assert len(heads) == 1, "id, created and model are the same in every chunk"
    assert turn.finish_reason is not None
    return turn


def chunks(client: httpx.Client, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every event's object; the last is followed by `[DONE]`, or tells of an error."""
    done = False
    with client.stream("POST", "/v1/chat/completions", json=request) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if not line.startswith("data: "):
                assert not line or line.startswith(":"), line
                continue
            assert not done, f"after the end: {line}"
            if line == "data: [DONE]":
                done = True
            else:
                chunk = json.loads(line.removeprefix("data: "))
                check_chunk(chunk)
                done = "error" in chunk
                yield chunk
    assert done


def _fold(turn: Turn, delta: dict[str, Any]) -> None:
    turn.content += delta.get("content") or ""
    turn.reasoning += delta.get("reasoning_content") or ""
    for part in delta.get("tool_calls", ()):
        function = part["function"]
        if part["index"] == len(turn.calls):
            assert part["type"] == "function"
            turn.calls.append(Call(part["id"], function["name"]))
        else:
            assert part["index"] < len(turn.calls), "a gap in the indexes"
            assert set(part) == {"index", "function"}, "only the first delta names the call"
            assert set(function) == {"arguments"}
        turn.calls[part["index"]].arguments.append(function["arguments"])
