"""Codex, a coding agent that speaks Responses alone: no login, no network but the pipeline."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests import pipeline
from tests.clients import npm
from tests.clients.conftest import call

pytestmark = pytest.mark.clients

RUN_S: Final = 180.0
"""Two commands and an edit, on a busy machine."""

PATCH: Final = """*** Begin Patch
*** Update File: greeting.txt
@@
-helo wörld
+hello wörld
*** End Patch
"""
READ: Final = call("exec_command", cmd="cat greeting.txt", yield_time_ms=30_000)
CLOSE: Final = call("multi_agent_v1__close_agent", target="nobody")

SCRIPT: Final = [
    # The first row found in the prompt wins, and the prompt holds the whole history.
    {"match": "Updated the following files", "text": "The greeting is mended."},
    {
        "match": "invalid agent id nobody",
        "text": f"Now I mend it.\n{call('apply_patch', input=PATCH)}",
    },
    {"match": "Say it as JSON", "text": '{"city": "Bern"}'},
    {"match": "Mend the greeting", "text": f"<think>Read it first.</think>{READ}\n{CLOSE}"},
]

MODEL: Final[dict[str, Any]] = {
    "slug": "demo",
    "display_name": "Demo",
    "base_instructions": "You are a coding agent.",
    "apply_patch_tool_type": "freeform",
    "shell_type": "unified_exec",
    "supports_parallel_tool_calls": True,
    "context_window": 32_768,
    "truncation_policy": {"mode": "bytes", "limit": 10_000},
    "default_reasoning_summary": "none",
    "supported_reasoning_levels": [],
    "default_reasoning_level": None,
    "input_modalities": ["text"],
    "support_verbosity": False,
    "default_verbosity": None,
    "experimental_supported_tools": [],
    "additional_speed_tiers": [],
    "service_tiers": [],
    "supported_in_api": True,
    "visibility": "list",
    "priority": 1,
    "description": None,
    "availability_nux": None,
    "upgrade": None,
}
"""What Codex knows of a model, as its own catalogue has it."""

CONFIGURATION: Final = """
model = "demo"
model_provider = "toolrail"
model_catalog_json = "{home}/models.json"
approval_policy = "never"
web_search = "disabled"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.toolrail]
name = "Toolrail"
base_url = "{base_url}/v1"
env_key = "TOOLRAIL_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    script = tmp_path_factory.mktemp("codex") / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    with pipeline.running(
        *("--script", str(script), "--max-model-len", "32768"),
        *("--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"),
        *("--structural-tag", '{"custom_grammars": true}'),  # of its patch tool
    ) as running:
        yield running.base_url


def run(
    program: Path, base_url: str, folder: Path, *arguments: str, status: int = 0
) -> list[dict[str, Any]]:
    """What happened, in a home and a work folder of its own."""
    home = folder / "home"
    home.mkdir()
    configuration = CONFIGURATION.format(home=home, base_url=base_url)
    (home / "config.toml").write_text(configuration, encoding="utf-8")
    (home / "models.json").write_text(json.dumps({"models": [MODEL]}), encoding="utf-8")
    # Its own sandbox needs what a container may refuse, and what it runs is written above.
    flags = ("--json", "--ephemeral", "--skip-git-repo-check", "--sandbox", "danger-full-access")
    done = subprocess.run(
        [program, "exec", *flags, *arguments],
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "CODEX_HOME": str(home),
            "TMPDIR": str(folder),
            "TOOLRAIL_API_KEY": "none",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def completed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["item"] for event in events if event["type"] == "item.completed"]


def test_it_reads_a_file_and_mends_it(base_url: str, node_modules: Path, tmp_path: Path) -> None:
    """Reasoning, parallel calls, one of them in a namespace, and a custom tool with a grammar."""
    file = tmp_path / "greeting.txt"
    file.write_text("helo wörld\n", encoding="utf-8")
    events = run(npm.codex(node_modules), base_url, tmp_path, "Mend the greeting")
    command, said, change, last = completed(events)
    assert command["aggregated_output"] == "helo wörld\n"
    assert said["text"] == "Now I mend it."
    assert [(Path(made["path"]).name, made["kind"]) for made in change["changes"]] == [
        ("greeting.txt", "update")
    ]
    assert last["text"] == "The greeting is mended."
    assert file.read_text(encoding="utf-8") == "hello wörld\n"
    assert events[-1]["usage"]["reasoning_output_tokens"] > 0


def test_its_last_answer_has_the_form_of_a_schema(
    base_url: str, node_modules: Path, tmp_path: Path
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(
        json.dumps(
            {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            }
        ),
        encoding="utf-8",
    )
    arguments = ("--output-schema", str(schema), "Say it as JSON")
    (answer,) = completed(run(npm.codex(node_modules), base_url, tmp_path, *arguments))
    assert answer["text"] == '{"city": "Bern"}'


def test_what_is_refused_is_told(base_url: str, node_modules: Path, tmp_path: Path) -> None:
    program = npm.codex(node_modules)
    events = run(program, base_url, tmp_path, "--model", "nope", "x", status=1)
    assert events[-1]["type"] == "turn.failed"
    assert "'nope'" in events[-1]["error"]["message"], events[-1]
