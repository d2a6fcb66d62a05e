"""The parts of `toolrail up` that need no process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from toolrail.cli import up
from toolrail.cli.supervisor import Life
from toolrail.flags import load
from toolrail.settings import GatewaySettings

LIFE = Life(service="worker", slot="worker-2", instance="worker-2-abc123", pid=4711)


def test_the_status_file_holds_addresses_and_processes_and_nothing_half_written(
    tmp_path: Path,
) -> None:
    file = tmp_path / "status.json"
    file.write_text("an older one, and longer than what follows" * 20)
    up._write_status(file, "http://127.0.0.1:1", "nats://a:secret@127.0.0.1:2", [LIFE])
    assert json.loads(file.read_text()) == {
        "base_url": "http://127.0.0.1:1",
        "nats_url": "nats://127.0.0.1:2",
        "processes": [{"service": "worker", "instance": "worker-2-abc123", "pid": 4711}],
    }
    assert list(tmp_path.iterdir()) == [file]


def test_a_status_file_that_cannot_be_written_any_more_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    up._write_status(tmp_path / "gone" / "status.json", "http://a", "nats://b", [LIFE])
    assert "cannot write" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "shown"),
    [("[1] 2026/11/29 [INF] Server is ready", False), ("[1] 2026/11/29 [WRN] slow", True)],
)
def test_of_nats_only_what_matters_is_shown(
    line: str, *, shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    up._log_what_matters("nats", line)
    assert bool(capsys.readouterr().out) is shown


def test_settings_of_the_gateways_reach_them() -> None:
    flags = ["--engine", "scripted", "--port", "0", "--tool-call-dispatch"]
    flags += ["--named-choice-finish-reason", "stop", "--slots", "2"]
    options, worker = up._parser().parse_known_args(flags)
    made = up._stack(options, worker)
    made.listener.close()
    shutil.rmtree(made.data_directory or "")
    assert "--slots" in made.worker_flags
    settings = load(GatewaySettings, made.gateway_flags, {})
    assert (settings.tool_call_dispatch, settings.reasoning_dispatch) == (True, False)
    assert settings.named_choice_finish_reason == "stop"
