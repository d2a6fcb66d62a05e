"""Requests for tests, in the shape that clients send."""

from __future__ import annotations

import json
from typing import Any

USER = {"role": "user", "content": "What is the weather in Paris?"}
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def function(name: str = "get_weather", parameters: Any = WEATHER, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def call(call_id: str = "call_1", name: str = "get_weather", arguments: Any = '{"city": "Paris"}'):
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [USER], **fields}).encode()
