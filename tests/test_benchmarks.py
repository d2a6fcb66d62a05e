from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nats

ROOT = Path(__file__).parents[1]


def test_the_pipeline_benchmark_runs_and_counts_fewer_messages_than_tokens(tmp_path: Path) -> None:
    kept = tmp_path / "results.json"
    flags = ["--streams", "8", "--variants", "frames", "--json", str(kept)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.pipeline", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tables = json.loads(kept.read_text())
    assert list(tables) == [
        "paced, a step every 20 ms",
        "free running",
        "one token a request, free running",
    ]
    (paced,), (free,), (alone,) = tables.values()
    assert paced["messages_per_token"] < 1
    assert free["messages_per_token"] < 1
    assert alone["messages_per_token"] > 1
    assert set(paced["cpu_us"]) == {"gateway", "preprocessor", "postprocessor", "worker", "nats"}
    assert all(us > 0 for us in paced["cpu_us"].values())
    assert "CPU us/tok" in done.stdout


def test_overload_refuses_politely_and_breaks_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "overload.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.overload", "--seconds", "3", "--json", str(kept)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    usual, over = json.loads(kept.read_text()).values()
    assert (usual["refused"], usual["broken"], over["broken"]) == (0, 0, 0)
    assert usual["whole"] > 0
    assert over["whole"] > 0
    assert over["refused"] > 0
    assert "overloaded against not" in done.stdout


def test_a_slot_is_measured_free_after_every_kind_of_leaving(tmp_path: Path) -> None:
    kept = tmp_path / "cancel.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cancel", "--times", "2", "--json", str(kept)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr  # 1: it took long, as a busy machine may
    found = json.loads(kept.read_text())
    assert list(found) == ["before the first token", "in the middle", "two choices", "cancel call"]
    assert {len(seconds) for seconds in found.values()} == {2}
