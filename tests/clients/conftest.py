from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import stack
from tests.clients import npm


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


ZURICH = call("get_weather", city="Zürich")
BERN = call("get_weather", city="Bern")

SCRIPT = [
    # The first row found in the prompt wins, and the prompt holds the whole history.
    {"match": "17 degrees", "text": "It is 17 degrees in Zürich."},
    {"match": "Say it as JSON", "text": '{"city": "Bern"}'},
    {"match": "Compare", "text": f"{ZURICH}\n{BERN}"},
    {"match": "How is the weather", "text": ZURICH, "chunk_tokens": 1},
    {"match": "Count", "text": "1 2 3 4 5 6 7 8 9 " * 100, "chunk_tokens": 1, "delay_ms": 20},
]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stack.Stack]:
    """The real processes, with an engine that plays `SCRIPT`."""
    folder = tmp_path_factory.mktemp("clients")
    script = folder / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    with stack.running(folder, *stack.scripted("--script", str(script))) as running:
        yield running


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The folder that holds the client libraries from npm."""
    return npm.installed()
