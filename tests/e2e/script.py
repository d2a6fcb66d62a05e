"""What the scripted engine says to which prompt."""

from __future__ import annotations

import json
from typing import Any, Final

LONG_TEXT: Final = "Slowly, and in many small steps, a long argument arrives. " * 6
"""More than 300 characters."""


def hermes(name: str, arguments: dict[str, Any]) -> str:
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


SCRIPT: Final[list[dict[str, Any]]] = [
    {"match": "Say hello", "text": "Hello there!", "chunk_tokens": 1},
    {"match": "Write at length", "text": hermes("write", {"text": LONG_TEXT}), "chunk_tokens": 1},
    {
        "match": "Explain, then call",
        "text": f"First I look.\n{hermes('look', {'at': 'the Zürich 🚀'})}",
        "chunk_tokens": 2,
    },
    {
        "match": "Call twice",
        "text": f"{hermes('look', {'at': 'a'})}\n{hermes('look', {'at': 'b'})}",
    },
    {
        "match": "Think, then call",
        "text": f"<think>Where?</think>\n\nI look.\n{hermes('look', {'at': 'é'})}",
        "chunk_tokens": 2,
    },
    {"match": "So far: one, two,", "text": " three, four."},
    {
        "match": "Wrap it wrongly",
        "text": f"Both.\n{hermes('run_python', {'code': '1'})}\n{hermes('look', {'at': 'a'})}",
    },
    {"match": "Break down at once", "token_ids": [], "finish": "error"},
    {"match": "Break down midway", "text": "So far, so good", "finish": "error"},
    {
        "match": "Count a little",
        "text": "1 2 3 4 5 6 7 8 9 " * 5,
        "chunk_tokens": 1,
        "delay_ms": 20,
    },
    {"match": "Count slowly", "text": "1 2 3 4 5 6 7 8 9 " * 40, "chunk_tokens": 1, "delay_ms": 20},
]
