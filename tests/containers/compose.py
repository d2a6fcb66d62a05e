"""The compose files under podman-compose: built from a copy of the tree, run service by service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.compose.files import OURS
from tests.containers.supplies import BASE, ROOT, WHEELS

SERVICES: Final = ("nats", *OURS)
"""Those whose images can be had here: not what watches them."""

FILES: Final = (
    "compose.yaml",
    "compose.scripted.yaml",
    "compose.offline.yaml",
    "compose.podman.yaml",
    "compose.secrets.yaml",
)
BUILD_S: Final = 400.0
COMMAND_S: Final = 180.0
HEALTHY_S: Final = 180.0
"""A service on a machine that does other things as well."""


def copy_of_the_tree(target: Path) -> None:
    """What a clone under a strict umask has: nobody but its owner may read it."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / name)
            (target / name).chmod(source.stat().st_mode & 0o700)
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(0o700)


@dataclass
class Stack:
    """A project of podman-compose in a tree of its own.

    Attributes:
        tree: the copy of the repository.
        api_key: what the gateway asks for.
    """

    tree: Path
    api_key: str = ""

    def compose(self, *arguments: str, timeout_s: float = COMMAND_S) -> str:
        files = [word for name in FILES for word in ("-f", str(self.tree / "compose" / name))]
        command = [str(Path(sys.executable).with_name("podman-compose")), *files, *arguments]
        told = {
            "TOOLRAIL_BASE": BASE,
            "TOOLRAIL_WHEELS": str(WHEELS),
            "TOOLRAIL_OTLP_ENDPOINT": "",
            "TOOLRAIL_MODELS": str(self.tree / "script"),
            "TOOLRAIL_SCRIPT": "/models/own/script.jsonl",
        }
        return run(command, timeout_s, os.environ | told)[0]

    def containers(self, service: str) -> list[str]:
        """Names of a service's containers, running or not."""
        label = f"label=com.docker.compose.service={service}"
        return sorted(podman("ps", "-a", "--filter", label, "--format", "{{.Names}}").split())

    def inspect(self, container: str) -> dict[str, Any]:
        (found,) = json.loads(podman("inspect", container))
        return found

    def inside(self, container: str, *command: str) -> str:
        return podman("exec", container, *command)

    def wait_healthy(self, services: Sequence[str]) -> None:
        """Until each container's own health check says so; podman runs it when asked."""
        for container in (one for service in services for one in self.containers(service)):
            self.until(lambda one=container: healthy(one), f"{container} is healthy", container)

    def until(self, holds: Callable[[], bool], what: str, container: str = "") -> None:
        deadline = time.monotonic() + HEALTHY_S
        while not holds():
            late = f"not so after {HEALTHY_S} s: {what}"
            assert time.monotonic() < deadline, f"{late}\n{container and self.log(container)}"
            time.sleep(0.5)

    def log(self, container: str) -> str:
        command = ["podman", "logs", "--tail", "60", container]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return done.stdout


def remove_all() -> None:
    """Every container, the youngest first: those that depend on others before these."""
    for container in podman("ps", "--all", "--quiet").split():
        podman("rm", "--force", "--depend", "--ignore", container)


def healthy(container: str) -> bool:
    done = subprocess.run(
        ["podman", "healthcheck", "run", container],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=COMMAND_S,
        check=False,
    )
    return done.returncode == 0


def podman(*arguments: str) -> str:
    return run(["podman", *arguments])[0]


def run(
    command: Sequence[str],
    timeout_s: float = COMMAND_S,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, str]:
    """What it wrote to standard output and to standard error, unless it failed."""
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
    said = f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    assert done.returncode == 0, f"{' '.join(command[:8])} …\n{said}"
    return done.stdout, done.stderr
