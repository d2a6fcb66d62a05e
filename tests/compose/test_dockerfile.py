"""The Dockerfile as a linter reads it, and what reaches it of the tree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.compose.files import COMPOSE

ROOT = COMPOSE.parent
TEXT = (COMPOSE / "Dockerfile").read_text("utf-8")


def test_a_linter_finds_nothing() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    command = [str(hadolint), "--no-color", str(COMPOSE / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_stage_begins_at_the_pinned_official_image() -> None:
    assert "\nARG BASE=docker.io/library/python:3.11-slim\n" in TEXT
    bases = re.findall(r"^FROM (\S+) AS (\w+)$", TEXT, re.MULTILINE)
    stages = {name for _, name in bases}
    assert {base for base, _ in bases} - stages == {"${BASE}", "scratch"}


def test_what_is_copied_is_let_in_and_nothing_else_is() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*"
    let_in = {line[1:].rstrip("/") for line in patterns if line.startswith("!")}
    copied: set[str] = set()
    for line in TEXT.splitlines():
        if line.startswith("COPY") and "--from" not in line:
            copied |= {source.rstrip("/") for source in line.split()[1:-1]}
    folders = {source.split("/")[0] for source in copied if source.startswith("services/")}
    assert let_in == {source for source in copied if not source.startswith("services/")} | folders


def test_nobody_runs_as_root() -> None:
    for name in ("service", "worker"):
        stage = TEXT[TEXT.index(f" AS {name}\n") :].split("\nFROM ")[0]
        assert stage.rstrip().endswith("USER 10001") or "\nUSER 10001\n" in stage
