"""Requests of every kind there is, over every API: whole, refused, failed, left, cancelled.

For tests that look at what requests leave behind. The scripted engine is to be given `SCRIPT`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx

from benchmarks.mixed_load import TOOL

Kind: TypeAlias = Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]

SCRIPT: Final = (
    {"match": "Ramble", "text": "on and on " * 1000, "delay_ms": 20},
    {"match": "Break", "text": "Half of a", "finish": "error"},
)


def write_script(folder: Path) -> str:
    """The file for `--script`."""
    file = folder / "script.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    return str(file)


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "demo", "messages": [{"role": "user", "content": text}], **more}


def post(path: str, status: int, body: dict[str, Any]) -> Kind:
    async def send(client: httpx.AsyncClient) -> None:
        answer = await client.post(path, json=body)
        assert answer.status_code == status, answer.text

    return send


def chat(status: int, text: str, **more: Any) -> Kind:
    return post("/v1/chat/completions", status, said(text, **more))


def leave(**more: Any) -> Kind:
    """Read a little of an answer, then go."""

    async def send(client: httpx.AsyncClient) -> None:
        body = said("Ramble", stream=True, **more)
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            assert response.status_code == 200
            async for _ in response.aiter_raw(1):
                return

    return send


async def background(client: httpx.AsyncClient) -> None:
    """Cancelled, wherever it is by then, and deleted."""
    body = {"model": "demo", "input": "Ramble", "background": True}
    made = await client.post("/v1/responses", json=body)
    assert made.status_code == 200, made.text
    path = f"/v1/responses/{made.json()['id']}"
    cancelled = await client.post(f"{path}/cancel")
    assert cancelled.status_code == 200, cancelled.text
    deleted = await client.delete(path)
    assert deleted.status_code == 200, deleted.text


CALL: Final[dict[str, Any]] = {
    "tools": [TOOL],
    "tool_choice": "required",
    "parallel_tool_calls": False,
}
KINDS: Final[Sequence[Kind]] = (
    chat(200, "Hello", max_tokens=4),
    chat(200, "Hello", stream=True, max_tokens=4),
    chat(200, "Hello", n=2, logprobs=True, max_tokens=4),
    chat(200, "Hello", **CALL),
    chat(200, "Hello", stream=True, **CALL),
    chat(400, "Hello", n=-1),
    chat(500, "Break"),
    chat(200, "Break", stream=True),
    leave(),
    leave(n=2),
    post("/v1/responses", 200, {"model": "demo", "input": "Hello", "store": False}),
    post("/v1/messages", 200, said("Hello", max_tokens=8)),
    background,
)


async def run(client: httpx.AsyncClient, count: int) -> None:
    """So many requests, one after another, of all kinds in turn."""
    for kind in itertools.islice(itertools.cycle(KINDS), count):
        await kind(client)
