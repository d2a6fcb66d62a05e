"""Set up this tree: one `.venv` with everything in it, and the demo models in the cache.

Run by the system's Python with nothing but its standard library: `python3 .ci/setup.py`, normally
through `make setup`. Takes no input. It says in one line what is missing when something is, and
does nothing (in a moment) when everything is in place.

`TOOLRAIL_DEVICE=cpu|gpu` overrides the look for an NVIDIA GPU.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

OLDEST = (3, 11)
NEWEST = (3, 13)
PREFERRED = "python3.11"  # what the pins were resolved for
UV = "uv==0.13.9"  # plain pip has no overrides; uv comes from the same registry
FETCH_TIMEOUT_S = 1200

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "toolrail-setup.txt"
CACHE = Path(os.environ.get("TOOLRAIL_CACHE") or Path.home() / ".cache" / "toolrail")
MODELS = {"demo": [], "demo-think": ["--think"]}  # and how services.worker.demo_model makes them
GIB = 1 << 30

# vLLM does not need these for text models on a CPU, and the CPU builds of torch have no matching
# releases of the first three; triton alone is a gigabyte.
UNWANTED_ON_CPU = ("torchvision", "torchaudio", "torchcodec", "triton")

NETWORK_TROUBLE = re.compile(
    r"error sending request|failed to fetch|dns error|connection (refused|reset|timed)"
    r"|network is unreachable|name resolution|max retries|no route to host|proxyerror|timed out"
    r"|could not find a version that satisfies the requirement uv",
    re.IGNORECASE,
)


class MissingError(Exception):
    """Something the machine lacks; the message says it in one line."""


def main() -> int:
    os.chdir(ROOT)
    # Two set-ups at once (`make up` beside `make test`) take turns.
    with open(__file__, encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            setup()
        except MissingError as missing:
            print(f"setup: {missing}", file=sys.stderr, flush=True)
            return 1
    return 0


def setup() -> None:
    device = found_device()
    wanted = fingerprint(device)
    if is_current(wanted):
        return
    check_python()
    check_tools()
    check_disk(device)
    make_venv()
    install_uv()
    install(device)
    compile_packages()
    models = make_models()
    STAMP.write_text("\n".join([wanted, *models]) + "\n", encoding="utf-8")
    say("done")


# What is there already.


def is_current(wanted: str) -> bool:
    """Whether the last set-up was this one, and what it made is still there."""
    try:
        made, *models = STAMP.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return False
    return made == wanted and all(map(os.path.exists, (VENV / "bin" / "toolrail", *models)))


def fingerprint(device: str) -> str:
    """Changes when the environment must be brought up to date."""
    digest = hashlib.sha256()
    models = ROOT / "services" / "worker"
    for path in (
        ROOT / "pyproject.toml",
        constraints(device),
        Path(__file__),
        models / "demo_model.py",
        *sorted((models / "demo").glob("*.*")),
    ):
        digest.update(path.read_bytes())
    return f"{device} {ROOT} {CACHE} {digest.hexdigest()}"


def constraints(device: str) -> Path:
    return ROOT / ("constraints-gpu.txt" if device == "gpu" else "constraints.txt")


def found_device() -> str:
    chosen = os.environ.get("TOOLRAIL_DEVICE", "")
    if chosen in ("cpu", "gpu"):
        return chosen
    if chosen:
        raise MissingError(f"TOOLRAIL_DEVICE is {chosen!r}, it can be cpu or gpu")
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "cpu"
    return "gpu" if listed.returncode == 0 and "GPU" in listed.stdout else "cpu"


# What the machine must have.


def check_python() -> None:
    if sys.platform != "linux":
        raise MissingError(f"needs Linux, this is {sys.platform}")
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        raise MissingError(
            f"needs Python {dotted(OLDEST)} to {dotted(NEWEST)} (best {dotted(OLDEST)}) on PATH, "
            f"found {dotted(sys.version_info[:3])}"
        )
    try:
        import ensurepip  # noqa: F401, PLC0415 - Debian packs it apart
    except ImportError:
        raise MissingError(
            "this Python cannot make virtual environments: install python3-venv"
        ) from None


def check_tools() -> None:
    # The engine compiles small C++ kernels while it runs.
    if not any(map(shutil.which, (os.environ.get("CXX") or "c++", "g++", "clang++"))):
        raise MissingError("no C++ compiler found: install g++")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise MissingError("Python's C headers are missing: install python3-dev")
    if not shutil.which("git"):
        raise MissingError("git is missing: install git")


def check_disk(device: str) -> None:
    needs: dict[int, list[object]] = {}
    environment = (14 if device == "gpu" else 3) * GIB
    uv_cache = Path(os.environ.get("UV_CACHE_DIR") or Path.home() / ".cache" / "uv")
    for place, size, there in (
        (VENV, environment, STAMP.exists()),
        (uv_cache, 0 if filesystem(uv_cache) == filesystem(VENV) else environment, False),
        (CACHE, GIB, (CACHE / "models").exists()),
    ):
        if there or not size:
            continue
        need = needs.setdefault(filesystem(place), [0, existing(place)])
        need[0] += size
    for size, place in needs.values():
        free = shutil.disk_usage(place).free
        if free < size:
            raise MissingError(
                f"not enough disk: {place} has {free / GIB:.1f} GiB free, "
                f"{size / GIB:.0f} GiB are needed"
            )


def filesystem(path: Path) -> int:
    return existing(path).stat().st_dev


def existing(path: Path) -> Path:
    """The path, or its nearest ancestor that exists."""
    path = path.absolute()
    return next(p for p in (path, *path.parents) if p.exists())


# What it makes.


def make_venv() -> None:
    running = VENV / "bin" / "pip"
    if PYTHON.exists() and running.exists():
        return
    say(f"making .venv with Python {dotted(sys.version_info[:3])}")
    done = subprocess.run(
        [sys.executable, "-m", "venv", str(VENV)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MissingError(f"could not make .venv: {last_line(done.stdout + done.stderr)}")


def install_uv() -> None:
    say(f"installing {UV}")
    run(
        [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV],
        "uv",
        shown=False,
    )


def install(device: str) -> None:
    say(f"installing toolrail with engine-{device} and everything for development")
    command = [str(VENV / "bin" / "uv"), "pip", "install", "--python", str(PYTHON)]
    command += ["--constraints", str(constraints(device)), "-e", f".[dev,engine-{device}]"]
    with tempfile.TemporaryDirectory() as folder:
        if device == "cpu":
            overrides = Path(folder) / "overrides.txt"
            overrides.write_text(cpu_overrides(), encoding="utf-8")
            command += ["--overrides", str(overrides), *torch_source()]
        run(command, "the packages")


def compile_packages() -> None:
    """Byte code of all packages, once, where Python is told not to write it when it first imports.

    Else every process of every test compiles what it imports: more than half of an engine's start.
    A package may hold files that no Python reads, so that compiling cannot be held to succeed.
    """
    if not sys.dont_write_bytecode:
        return
    say("compiling the packages")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    found = subprocess.run(
        [str(PYTHON), "-c", where], capture_output=True, text=True, check=True
    ).stdout.strip()
    subprocess.run([str(PYTHON), "-m", "compileall", "-qq", "-j", "0", found], check=False)


def cpu_overrides() -> str:
    return "".join(f"{name}; sys_platform == 'never'\n" for name in UNWANTED_ON_CPU)


def torch_source() -> list[str]:
    """Where uv finds torch's CPU build: the folder of `PIP_FIND_LINKS` that holds it, if one does.

    uv does not read pip's variables; and without such a folder it knows the place itself.
    """
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    for folder in os.environ.get("PIP_FIND_LINKS", "").split():
        if any(Path(folder).glob(f"torch-*+cpu-{tag}-*.whl")):
            return ["--find-links", folder]
    return ["--torch-backend", "cpu"]


def make_models() -> list[str]:
    """The directories of the demo models, converted unless they are there."""
    for name, flags in MODELS.items():
        say(f"making the model {name}")
        done = subprocess.run(
            [str(PYTHON), "-m", "services.worker.demo_model", *flags],
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise MissingError(f"could not make the model {name}, see the line above")
    where = "from toolrail.settings import model_directory as d; import sys; "
    where += "print(*map(d, sys.argv[1:]), sep='\\n')"
    listed = subprocess.run(
        [str(PYTHON), "-c", where, *MODELS], capture_output=True, text=True, check=True
    )
    return listed.stdout.splitlines()


# Helpers.


def run(command: list[str], what: str, *, shown: bool = True) -> None:
    """Run it, passing its output on; a failure becomes one line that names the cause."""
    lines: list[str] = []
    try:
        process = subprocess.Popen(
            command,
            env=registry_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise MissingError(f"could not run {command[0]}: {error}") from error
    with process:
        for line in process.stdout or ():
            lines.append(line.strip())
            if shown:
                print(f"  {line}", end="", flush=True)
    if process.returncode == 0:
        return
    output = "\n".join(lines)
    if "no space left" in output.lower():
        raise MissingError(f"the disk filled up while installing {what}")
    if NETWORK_TROUBLE.search(output):
        raise MissingError(f"no package registry could be reached to install {what}")
    raise MissingError(f"could not install {what}: {last_line(output)}")


def registry_environment() -> dict[str, str]:
    """The environment, with an index that only pip was told of handed on to uv."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment.setdefault("PIP_RETRIES", "2")
    environment.setdefault("UV_NO_PROGRESS", "1")
    if not any(name in environment for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")):
        index = environment.get("PIP_INDEX_URL") or configured_index()
        if index:
            environment["UV_DEFAULT_INDEX"] = index
    return environment


def configured_index() -> str:
    """`index-url` of pip's own configuration files, or nothing."""
    if not PYTHON.exists():
        return ""
    listed = subprocess.run(
        [str(PYTHON), "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    return listed.stdout.strip() if listed.returncode == 0 else ""


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def say(line: str) -> None:
    print(f"setup: {line}", flush=True)


def better_python() -> str | None:
    """The Python the pins were made for, when this is another one and that one works."""
    if sys.version_info[:2] == OLDEST or os.environ.get("TOOLRAIL_SETUP_PYTHON"):
        return None
    path = shutil.which(PREFERRED)
    if not path:
        return None
    # A version manager's shim may be on PATH for a Python that is not there.
    works = subprocess.run([path, "-c", "pass"], capture_output=True, check=False)
    return path if works.returncode == 0 else None


if __name__ == "__main__":
    other = better_python()
    if other:
        os.environ["TOOLRAIL_SETUP_PYTHON"] = other
        os.execv(other, [other, __file__])
    raise SystemExit(main())
