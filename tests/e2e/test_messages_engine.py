"""Messages with a real engine: a forced call is valid, and the prompt is counted as it is used."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests import stack as stacks

pytestmark = pytest.mark.engine

SCHEMA = {
    "type": "object",
    "properties": {
        "level": {"type": "integer", "minimum": 0, "maximum": 9},
        "unit": {"enum": ["celsius", "fahrenheit"]},
    },
    "required": ["level"],
    "additionalProperties": False,
}
REQUEST: dict[str, Any] = {
    "model": "demo-think",
    "max_tokens": 400,
    "messages": [{"role": "user", "content": "Set the level."}],
    "tools": [{"name": "set_level", "strict": True, "input_schema": SCHEMA}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "thinking": {"type": "disabled"},
}


def test_a_forced_call_is_valid_streamed_and_not(engine: stacks.Stack) -> None:
    with engine.client() as client:
        client.timeout = 300
        counted = client.post(
            "/v1/messages/count_tokens",
            json={name: REQUEST[name] for name in ("model", "messages", "tools", "thinking")},
        ).json()
        whole = client.post("/v1/messages", json=REQUEST).json()
        assert whole["stop_reason"] == "tool_use", whole
        (used,) = [block for block in whole["content"] if block["type"] == "tool_use"]
        jsonschema.validate(used["input"], SCHEMA)
        usage = whole["usage"]
        total = usage["input_tokens"] + usage["cache_read_input_tokens"]
        assert counted["input_tokens"] == total

        events = client.post("/v1/messages", json={**REQUEST, "stream": True}).text
        data = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")]
        assert data[-1] == {"type": "message_stop"}
        written = "".join(event.get("delta", {}).get("partial_json", "") for event in data)
        jsonschema.validate(json.loads(written), SCHEMA)
