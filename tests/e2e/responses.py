"""Reading a Responses stream strictly, as the field's clients do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.published_answers import check, check_response_events

PATH: Final = "/v1/responses"

_CONTENT: Final = {"reasoning": "reasoning_text", "message": "output_text"}
_GROWTH: Final = {
    "reasoning": ("reasoning_text", "text"),
    "message": ("output_text", "text"),
    "function_call": ("function_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
}
_ENDS: Final = ("completed", "incomplete", "failed")


@dataclass
class Item:
    """One item of a stream, while its events come."""

    first: dict[str, Any]
    parts: list[str] = field(default_factory=list[str])
    done: list[str] = field(default_factory=list[str])
    last: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        return self.first["type"]


def create(client: httpx.Client, request: dict[str, Any]) -> dict[str, Any]:
    """The response of a request that does not stream."""
    answer = client.post(PATH, json=request)
    assert answer.status_code == 200, answer.text
    check("Response", answer.json())
    return answer.json()


def stream(client: httpx.Client, request: dict[str, Any]) -> dict[str, Any]:
    """The response at the end of a stream whose every event kept the rules."""
    return follow(list(events(client, request)))


def events(client: httpx.Client, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every event, checked alone."""
    with client.stream("POST", PATH, json={**request, "stream": True}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                assert event["type"] == name
                check_response_events([event])
                yield event
            else:
                assert not line or line.startswith(":"), line


def follow(told: list[dict[str, Any]]) -> dict[str, Any]:
    """The final response; every rule that clients rely on is asserted on the way."""
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    kinds = [event["type"].removeprefix("response.") for event in told]
    assert kinds[:2] == ["created", "in_progress"]
    assert kinds[-1] in _ENDS
    assert not set(kinds[2:-1]) & {"created", "in_progress", *_ENDS}
    responses = [event["response"] for event in told if "response" in event]
    for member in ("id", "created_at", "model", "tools", "tool_choice", "instructions"):
        assert len({json.dumps(response[member]) for response in responses}) == 1, member
    items: list[Item] = []
    for event, kind in zip(told[2:-1], kinds[2:-1], strict=True):
        _take(items, event, kind)
    final = responses[-1]
    assert final["status"] == kinds[-1]
    if final["status"] != "failed":
        assert final["output"] == [item.last for item in items], "an item is still open at the end"
    return final


def _take(items: list[Item], event: dict[str, Any], kind: str) -> None:
    if kind == "output_item.added":
        assert event["output_index"] == len(items)
        assert not items or items[-1].last is not None, "two items are open"
        items.append(Item(event["item"]))
        return
    assert event["output_index"] == len(items) - 1
    item = items[-1]
    if kind == "output_item.done":
        _end(item, event["item"])
        return
    assert item.last is None
    assert event["item_id"] == item.first["id"]
    growth, member = _GROWTH[item.kind]
    match kind.split("."):
        case [name, "delta"]:
            assert name == growth
            item.parts.append(event["delta"])
        case ["content_part", "added"]:
            assert not item.parts
            assert event["part"]["type"] == _CONTENT[item.kind]
            item.done.append(kind)
        case ["content_part", "done"]:
            assert event["part"]["text"] == "".join(item.parts)
            item.done.append(kind)
        case [name, "done"]:
            assert name == growth
            assert event[member] == "".join(item.parts)
            item.done.append(kind)
        case _:
            raise AssertionError(kind)


def _end(item: Item, last: dict[str, Any]) -> None:
    """It is over, in full."""
    growth, member = _GROWTH[item.kind]
    for name in ("type", "id", "call_id", "name", "namespace"):
        assert last.get(name) == item.first.get(name), name
    whole = "".join(item.parts)
    if item.kind in _CONTENT:
        assert last["content"][0]["text"] == whole
        expected = ["content_part.added", f"{growth}.done", "content_part.done"]
    else:
        assert item.first[member] == ""
        assert last[member] == whole
        expected = [f"{growth}.done"] if last.get("status") != "incomplete" else []
    assert item.done == expected
    item.last = last
