"""SECURITY.md names tests for what it promises: they are there, and so are the flags it names."""

from __future__ import annotations

import dataclasses
import re

from tests.ci.loading import ROOT
from toolrail.settings import GatewaySettings, PreprocessorSettings

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_every_test_that_it_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", TEXT)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_threat_names_a_test() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("|")][2:]
    assert [row for row in rows if "`tests/" not in row.rsplit("|", 2)[1]] == []


def test_every_flag_that_it_names_is_one() -> None:
    known = {
        field.name
        for r in (GatewaySettings, PreprocessorSettings)
        for field in dataclasses.fields(r)
    }
    flags = {flag.replace("-", "_") for flag in re.findall(r"--([a-z][a-z-]+)", TEXT)}
    assert flags <= known
