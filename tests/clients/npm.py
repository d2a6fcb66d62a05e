"""Client libraries from npm: installed once into the cache, run by the node of a wheel.

The scripts are in `node/`, with the exact versions of what they import. They run in a folder of
their own, where a link stands for `node_modules`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.ci.loading import script

SOURCES: Final = Path(__file__).with_name("node")

INSTALL_S: Final = 300.0
"""Most of it is Codex: 130 MB of download."""

RUN_S: Final = 120.0
"""One file of tests, on a busy machine."""

_PACKAGES: Final = script("node_packages")
_CODEX: Final = "node_modules/@openai/codex-linux-*/vendor/*/bin/codex"


def installed() -> Path:
    """The folder that holds `node_modules`, made unless it is there."""
    try:
        return _PACKAGES.installed(SOURCES, _CODEX, INSTALL_S)
    except _PACKAGES.NotInstalledError as error:
        reason = f"npm could not install the clients; is the registry reached? {error}"
        pytest.fail(reason, pytrace=False)


def codex(folder: Path) -> Path:
    """The program itself: what starts it in node would only look for it."""
    return next(folder.glob(_CODEX))


def run_tests(name: str, folder: Path, modules: Path, environment: Mapping[str, str]) -> None:
    """Run the tests in `node/<name>`. Fails unless all of them held."""
    for source in SOURCES.glob("*.mjs"):
        shutil.copy(source, folder)
    (folder / "node_modules").symlink_to(modules / "node_modules")
    command = [_PACKAGES.NODE, "--test", "--test-isolation=none", "--test-reporter=tap", name]
    done = _PACKAGES.run(command, folder, RUN_S, environment)
    counts = dict(re.findall(r"^# (tests|pass) (\d+)$", done.stdout, re.MULTILINE))
    assert done.returncode == 0, done.stdout
    assert counts["pass"] == counts["tests"] != "0", done.stdout
