"""Where the end-to-end tests find the product.

`obedient` invents what the structural tag allows, `playing` says what its script says. Both run in
this process; `processes` is the first of them as `toolrail up` runs it, `engine` a real model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import pipeline, stack
from tests.e2e.script import SCRIPT


@pytest.fixture(scope="session")
def inside() -> Iterator[pipeline.Pipeline]:
    """The pipeline behind `obedient`, for what a client cannot see."""
    flags = ("--obey-tag", "--structural-tag", '{"custom_grammars": true}')
    with pipeline.running(*flags) as running:
        yield running


@pytest.fixture(scope="session")
def obedient(inside: pipeline.Pipeline) -> Iterator[httpx.Client]:
    with inside.client() as client:
        yield client


@pytest.fixture(scope="session")
def script_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("script") / "script.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def playing(script_file: Path) -> Iterator[httpx.Client]:
    flags = ("--script", str(script_file), "--reasoning-parser", "qwen3")
    with pipeline.running(*flags) as running, running.client() as client:
        yield client


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stack.Stack]:
    folder = tmp_path_factory.mktemp("stack")
    with stack.running(folder, *stack.scripted("--obey-tag")) as running:
        yield running


@pytest.fixture(
    scope="session",
    params=[
        "obedient",
        pytest.param("processes", marks=pytest.mark.nats),
    ],
)
def served(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """The same test in this process and against the real processes."""
    if request.param == "obedient":
        yield request.getfixturevalue("obedient")
        return
    with request.getfixturevalue("processes").client() as client:
        yield client
