"""Every command and example of the README works as it stands, on a real model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import stack as stacks
from tests.processes import command_line, descendants, until_dead
from toolrail.cli import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8000"


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_every_make_target_and_linked_file_exists(text: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"\bmake ([a-z][a-z-]*)", text))
    assert "setup" in targets or "test" in targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in link:
            assert (ROOT / link).exists(), link


def test_every_command_it_names_exists() -> None:
    named = set(re.findall(r"`toolrail ([a-z]+)", README))
    assert named == set(COMMANDS)


def test_the_map_of_the_tree_is_the_tree() -> None:
    mapped = set(re.findall(r"^\| `([a-z]+)/", README, re.MULTILINE))
    ours = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith((".", "_"))}
    assert mapped | {"compose"} >= ours - {"build", "dist", "node_modules", "scratch"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stacks.Stack]:
    """`make up` as the README says it, but for the port and the place of its data."""
    assert "make up" in blocks("sh")[0].splitlines()
    folder = tmp_path_factory.mktemp("readme")
    stack = stacks.make_up(folder, flags=["--data-dir", str(folder / "nats")])
    try:
        stack.wait_ready(stacks.ENGINE_START_S)
        yield stack
    finally:
        stacks.discard(stack)


@pytest.mark.engine
def test_the_curl_yields_the_call_it_asks_for(made: stacks.Stack) -> None:
    (command,) = [block for block in blocks("sh") if block.startswith("curl")]
    ran = subprocess.run(
        ["bash", "-c", command.replace(ADDRESS, made.base_url)],
        capture_output=True,
        text=True,
        check=True,
    )
    (call,) = json.loads(ran.stdout)["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    arguments = json.loads(call["function"]["arguments"])
    assert set(arguments) == {"city", "unit"}
    assert arguments["unit"] in ("celsius", "fahrenheit")


@pytest.mark.engine
def test_the_python_example_streams_arguments(made: stacks.Stack) -> None:
    (script,) = blocks("python")
    ran = subprocess.run(
        [sys.executable, "-c", script.replace(ADDRESS, made.base_url)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 0 <= json.loads(ran.stdout)["hour"] <= 23


@pytest.mark.engine
def test_nothing_of_the_engine_outlives_a_killed_supervisor(made: stacks.Stack) -> None:
    """Last in this module: it ends what the tests before it used."""
    (worker,) = made.pids("worker")
    assert any("EngineCore" in command_line(pid) for pid in descendants(worker))
    started = descendants(made.process.pid)
    os.kill(psutil.Process(worker).ppid(), signal.SIGKILL)
    for pid in started:
        until_dead(pid)


@pytest.mark.nats
def test_the_scripted_stack_is_up_in_seconds(tmp_path: Path) -> None:
    (line,) = [block for block in blocks("sh") if "ENGINE=scripted" in block]
    flags = re.search(r'ARGS="(.*)"', line)
    assert flags
    stack = stacks.make_up(tmp_path, "ENGINE=scripted", flags=flags[1].split())
    try:
        stack.wait_ready()
        assert len(stack.pids("gateway")) == 2
        assert stack.end() == -signal.SIGINT, "as make itself ends on a Ctrl-C"
    finally:
        stacks.discard(stack)
