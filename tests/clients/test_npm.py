"""The packages `openai`, `ai` and its providers from npm; their tests are in `node/`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import pipeline
from tests.clients import npm
from tests.clients.conftest import SCRIPT, call

pytestmark = pytest.mark.clients

ROWS: Final = [
    {"match": "Ponder", "text": "<think>Bern is higher.</think>Bern is colder."},
    {"match": "Run something", "text": call("run_python", input='print("é")\n')},
    *SCRIPT,
]


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    script = tmp_path_factory.mktemp("npm") / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    flags = ("--tool-call-parser", "hermes", "--reasoning-parser", "qwen3")
    with pipeline.running("--script", str(script), *flags) as running:
        yield f"{running.base_url}/v1"


@pytest.mark.parametrize("package", ["openai-chat", "openai-responses", "ai-sdk"])
def test_package(package: str, base_url: str, node_modules: Path, tmp_path: Path) -> None:
    npm.run_tests(f"{package}.test.mjs", tmp_path, node_modules, {"BASE_URL": base_url})
