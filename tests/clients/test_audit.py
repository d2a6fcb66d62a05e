"""What real clients asked and got stands in the audit records of a running stack, all of it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests import stack
from tests.clients.conftest import SCRIPT

pytestmark = pytest.mark.clients

TOOL = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ASK = "How is the weather? I am jane@example.com."
CALL = {"type": "call", "name": "get_weather", "arguments": json.dumps({"city": "Zürich"})}
PATIENCE_S = 60.0


@dataclass
class Audited:
    """A running stack with two gateways, and the folder of their records."""

    stack: stack.Stack
    folder: Path

    def records(self, count: int) -> list[dict[str, Any]]:
        """All records, once there are so many."""
        deadline = time.monotonic() + PATIENCE_S
        while len(found := self.read()) < count:
            assert time.monotonic() < deadline, (len(found), self.stack.tail())
            time.sleep(0.05)
        return found

    def read(self) -> list[dict[str, Any]]:
        """Those that are whole: a gateway may be writing the next one."""
        files = sorted(self.folder.glob("audit*.jsonl"))
        lines = [line for file in files for line in file.read_bytes().split(b"\n")[:-1]]
        return [json.loads(line) for line in lines]


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[Audited]:
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    records = tmp_path / "records"
    records.mkdir()
    flags = stack.scripted("--script", str(script), "--replicas", "gateway=2")
    with stack.running(tmp_path, *flags, "--audit", f"file:{records}/audit.jsonl") as running:
        yield Audited(running, records)


def test_every_api_and_all_that_was_asked_until_the_end(audited: Audited) -> None:
    base_url = audited.stack.base_url
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0) as client:
        chat: Any = {
            "model": "demo",
            "messages": [{"role": "user", "content": ASK}],
            "tools": [{"type": "function", "function": TOOL}],
        }
        assert client.chat.completions.create(**chat).choices[0].message.tool_calls
        with client.chat.completions.stream(**chat) as chunks:
            assert chunks.get_final_completion().choices[0].finish_reason == "tool_calls"
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(**chat, temperature=-1)
        response: Any = {"model": "demo", "input": ASK, "tools": [{"type": "function", **TOOL}]}
        assert client.responses.create(**response).output[0].type == "function_call"
        with client.responses.stream(**response) as events:
            assert events.get_final_response().status == "completed"
        later = client.responses.create(**response, background=True)
    with anthropic.Anthropic(base_url=base_url, api_key="none", max_retries=0) as client:
        schema = TOOL["parameters"]
        message: Any = {
            "model": "demo",
            "max_tokens": 500,
            "messages": [{"role": "user", "content": ASK}],
            "tools": [{"name": "get_weather", "input_schema": schema}],
        }
        assert client.messages.create(**message).stop_reason == "tool_use"
        with client.messages.stream(**message) as events:
            assert events.get_final_message().stop_reason == "tool_use"
    records = audited.records(9)

    assert len(records) == 9
    assert "jane@example.com" not in str(records)
    assert [record["redacted"]["email"] for record in records if record["kind"] == "request"]
    answers = [record for record in records if record["response"] is not None]
    assert sorted((r["api"], r["kind"], r["stream"]) for r in answers) == [
        ("chat", "request", False),
        ("chat", "request", True),
        ("messages", "request", False),
        ("messages", "request", True),
        ("responses", "background", False),
        ("responses", "request", False),
        ("responses", "request", True),
    ]
    for record in answers:
        assert record["response"]["choices"][0]["items"] == [CALL]
        assert record["usage"]["completion_tokens"] > 0
        assert record["enforcement"]["held_by"]
        assert record["hand_overs"] == 0
    (refused,) = [record for record in records if record["error"] is not None]
    assert (refused["status"], refused["error"]["param"]) == (400, "temperature")
    (begun,) = [record for record in records if record["response"] is record["error"] is None]
    assert later.id in {begun["response_id"], *(r["response_id"] for r in answers)}

    begun_and_ended(audited)


def begun_and_ended(audited: Audited) -> None:
    """A client in the middle of a stream when the stack gets its Ctrl-C."""
    before = len(audited.read())
    with openai.OpenAI(base_url=f"{audited.stack.base_url}/v1", api_key="none") as client:
        chunks = client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "Count"}], stream=True
        )
        for chunk in chunks:
            if chunk.choices[0].delta.content:
                break
        assert audited.stack.end() == 0
        with contextlib.suppress(openai.APIError):
            list(chunks)
    records = audited.read()
    assert len(records) == before + 1
    (last,) = [record for record in records if "Count" in str(record["request"])]
    assert last["response"]["choices"][0]["items"][0]["text"].startswith("1 2")
