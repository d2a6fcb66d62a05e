"""Messages requests for tests, in the shape that clients send."""

from __future__ import annotations

import json
from typing import Any

USER = {"role": "user", "content": "What is the weather in Paris?"}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def body(**fields: Any) -> bytes:
    given = {"model": "m", "max_tokens": 64, "messages": [USER], **fields}
    return json.dumps({name: value for name, value in given.items() if value is not ...}).encode()


def tool(name: str = "get_weather", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Weather.", "input_schema": SCHEMA, **more}


def use(call_id: str = "toolu_1", name: str = "get_weather", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def result(call_id: str = "toolu_1", content: Any = "17 degrees", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}
