"""The `toolrail` command itself: finding subcommands and saying what is wrong in one line."""

from __future__ import annotations

import importlib.metadata
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from toolrail.cli import COMMANDS, main


def test_help_lists_every_command_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, text in COMMANDS.items():
        assert f"  {name}" in shown
        assert text in shown


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == importlib.metadata.version("toolrail")


def test_an_unknown_command_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prase"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "prase" in said
    assert "parse" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main([name, "--help"])
    except SystemExit as leaving:
        status = leaving.code
    assert status in (0, None)
    assert f"toolrail {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--bogus", "1"], "--bogus"),
        (["--slots", "many"], "--slots"),
        (["--structural-tag", '{"scop": "always"}'], "--structural-tag"),
        (["--otlp-endpoint", "x", "--heartbeat-s", "-1"], "--heartbeat-s"),
        (["--status-file", "/nowhere/status.json"], "--status-file"),
    ],
)
def test_up_refuses_a_wrong_flag_before_it_starts_anything(
    flags: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--port", "0", "--engine", "scripted", *flags]) == 2
    said = capsys.readouterr().err
    assert said.startswith("toolrail up: ")
    assert named in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("replicas", ["gateway=0", "gateway=x", "router=1", "gateway"])
def test_up_refuses_replicas_it_cannot_run(
    replicas: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["up", "--replicas", replicas])
    assert "--replicas" in capsys.readouterr().err


def test_up_says_that_the_port_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["up", "--engine", "scripted", "--port", port]) == 2
    assert f"--port: cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["65536", "99999", "-1"])
def test_up_listens_on_no_other_port_than_the_one_asked_for(
    port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--engine", "scripted", f"--port={port}"]) == 2
    assert capsys.readouterr().err == f"toolrail up: --port: must be 0 to 65535, not {port}\n"


def test_a_reader_that_has_left_is_no_error_of_the_installed_command() -> None:
    command = Path(sys.executable).with_name("toolrail")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as nobody_reads:
        ran = subprocess.run(
            [command, "--help"], stdout=nobody_reads, stderr=subprocess.PIPE, check=False
        )
    assert (ran.returncode, ran.stderr) == (0, b"")
