"""Containers on a machine without Docker, without a registry, and with whatever rights it has.

Everything is kept in one folder of the cache and runs in namespaces of its own: nothing of the
machine's containers, networks or processes is touched, and what runs there ends with the process
that entered them. Only the standard library is used here: the probe runs before anything else does.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CACHE: Final = Path(os.environ.get("TOOLRAIL_CACHE") or Path.home() / ".cache" / "toolrail")
STATE: Final = CACHE / "containers"
PACKAGES: Final = {
    "podman": "podman",
    "buildah": "buildah",
    "crun": "crun",
    "iptables": "iptables",
    "ip": "iproute2",
    "debootstrap": "debootstrap",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "catatonit": "catatonit",
}
"""What must be there, and Debian's package that brings it."""

WITHOUT_LIMITS: Final = "without limits"
LIMITED: Final = "with limits"


class NotHereError(Exception):
    """This machine cannot do it; the message says what it lacks."""


class Clock:
    """The time that is left for making ready; what takes longer counts as not to be had here."""

    def __init__(self, limit_s: float) -> None:
        self._end = time.monotonic() + limit_s

    def left_s(self, what: str) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise NotHereError(f"there was no time left for {what}")
        return left


def attempt(
    command: Sequence[str | Path],
    what: str,
    clock: Clock,
    environment: Mapping[str, str] | None = None,
) -> str:
    """The output of a command of the machine. Raises NotHereError where it fails or is too slow."""
    try:
        done = subprocess.run(
            list(map(str, command)),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=clock.left_s(what),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotHereError(f"{what} took too long") from None
    except OSError as error:
        raise NotHereError(f"{what} failed: {error}") from error
    if done.returncode:
        raise NotHereError(f"{what} failed: {last_line(done.stdout)}")
    return done.stdout


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def missing() -> list[str]:
    """Debian's packages that are not installed."""
    return [package for name, package in PACKAGES.items() if not _found(name)]


def _found(name: str) -> bool:
    return Path(name).exists() if name.startswith("/") else shutil.which(name) is not None


def install_tools(clock: Clock) -> None:
    """Debian's packages, where they are missing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NotHereError("it takes root on Linux")
    if not missing():
        return
    if not shutil.which("apt-get"):
        raise NotHereError(f"this is no Debian, and {', '.join(missing())} are not installed")
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    attempt(["apt-get", "update", "-q"], "apt-get update", clock, quiet)
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing()]
    attempt(command, "apt-get install", clock, quiet)
    if missing():
        raise NotHereError(f"Debian's packages did not bring {', '.join(missing())}")


@contextmanager
def turn(clock: Clock) -> Iterator[None]:
    """The only run that uses the folder, during the block; what a killed one left is cleared."""
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                clock.left_s("its turn: another run of these tests goes on")
                time.sleep(1)
        for path in (STATE / "tmp").glob("*"):
            if not path.name.startswith("buildah-cache"):
                shutil.rmtree(path, ignore_errors=True)
        yield


def configure(mode: str) -> None:
    """Write the configuration of podman and buildah for `mode`."""
    STATE.mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "networks", "run"):
        (STATE / name).mkdir(exist_ok=True)
    runtime = STATE / "crun"
    runtime.write_text(_RUNTIME.format(python=sys.executable, crun=shutil.which("crun")))
    runtime.chmod(0o755)
    (STATE / "containers.conf").write_text(
        "[containers]\n"
        "default_ulimits = []\n"
        'cgroupns = "host"\n'
        f"init_path = {json.dumps(shutil.which('catatonit'))}\n"
        + ('cgroups = "disabled"\n' if mode == WITHOUT_LIMITS else "")
        + "[engine]\n"
        'cgroup_manager = "cgroupfs"\n'
        'events_logger = "file"\n'
        'runtime = "crun"\n'
        "[engine.runtimes]\n"
        f"crun = [{json.dumps(str(runtime))}]\n"
        "[network]\n"
        'network_backend = "netavark"\n'
        f"network_config_dir = {json.dumps(str(STATE / 'networks'))}\n"
    )
    (STATE / "storage.conf").write_text(
        "[storage]\n"
        'driver = "overlay"\n'
        f"graphroot = {json.dumps(str(STATE / 'storage'))}\n"
        f"runroot = {json.dumps(str(STATE / 'run'))}\n"
    )
    (STATE / "mode").write_text(mode)


def environment() -> dict[str, str]:
    """The environment in which podman and buildah find that configuration."""
    return os.environ | {
        "CONTAINERS_CONF": str(STATE / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(STATE / "storage.conf"),
        "BUILDAH_ISOLATION": "chroot",
        "TMPDIR": str(STATE / "tmp"),
        # There is no systemd to run health checks; who wants them asks for them.
        "DISABLE_HC_SYSTEMD": "true",
    }


def namespaced(command: Sequence[str], mode: str) -> list[str]:
    """The command, in namespaces of its own: no network but its own, and no process outlives it."""
    unshared = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [*unshared, "bash", "-euc", _ENTER[mode], "enter", str(STATE / "run"), *command]


# crun takes no hybrid of both kinds of control groups: the older kind alone knows limits here.
_ENTER: Final = {
    LIMITED: """
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs "$1"
if mountpoint -q /sys/fs/cgroup/unified; then umount -l /sys/fs/cgroup/unified; fi
ip link set lo up
shift
exec "$@"
""",
    WITHOUT_LIMITS: """
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs "$1"
umount -l /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup || mount -t tmpfs tmpfs /sys/fs/cgroup
ip link set lo up
shift
exec "$@"
""",
}

# Who may not raise limits of processes cannot start a container that asks for it: nobody asks.
_RUNTIME: Final = """\
#!{python} -IS
import json, os, sys
arguments = sys.argv[1:]
for number, argument in enumerate(arguments):
    name, _, bundle = argument.partition("=")
    if name in ("--bundle", "-b"):
        path = os.path.join(bundle or arguments[number + 1], "config.json")
        with open(path) as file:
            config = json.load(file)
        for unwanted in ("rlimits", "oomScoreAdj"):
            config["process"].pop(unwanted, None)
        with open(path, "w") as file:
            json.dump(config, file)
os.execv("{crun}", ["crun", *arguments])
"""
