"""Keys of a running stack: made by the command, followed in their file, and seen nowhere."""

from __future__ import annotations

import contextlib
import io
import time
from pathlib import Path

import httpx
import psutil
import pytest

from tests import stack as stacks
from tests.processes import command_line, descendants
from toolrail.cli import main

pytestmark = pytest.mark.nats

PROMPT = "a prompt that nobody else may read"
ASK = {"model": "demo", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 5}
PATIENCE_S = 60.0


def made(file: Path, *flags: str) -> str:
    """A new key, whose entry is now in the file."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(["key", "new", "somebody", *flags]) == 0
    beside = file.with_suffix(".new")
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    beside.write_text(before + out.getvalue(), encoding="utf-8")
    beside.replace(file)
    return next(word for word in err.getvalue().split() if word.startswith("tr_"))


def status(client: httpx.Client, key: str) -> int:
    headers = {"authorization": f"Bearer {key}"}
    return client.post("/v1/chat/completions", json=ASK, headers=headers).status_code


def test_keys_of_a_running_stack(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    first = made(file)
    flags = stacks.scripted("--api-keys-file", str(file), "--log-level", "DEBUG")
    with stacks.running(tmp_path, *flags) as stack, stack.client() as client:
        assert client.get("/v1/models").status_code == 401
        assert status(client, first) == 200
        second = made(file, "--model", "another")
        deadline = time.monotonic() + PATIENCE_S
        while (found := status(client, second)) == 401:
            assert time.monotonic() < deadline, "the new key was not taken over"
            time.sleep(0.1)
        assert found == 403
        titles: list[str] = []
        for pid in descendants(stack.process.pid):
            with contextlib.suppress(psutil.Error):  # some come and go
                titles.append(command_line(pid))
        assert any("services.gateway" in title for title in titles)
        log = stack.tail()
    assert PROMPT not in log
    for key in (first, second):
        assert key[-20:] not in log
        assert not any(key[-20:] in title for title in titles)
