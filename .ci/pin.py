"""Write constraints.txt and constraints-gpu.txt: exact versions of all that `make setup` installs.

Run through `make pin` after a change of dependencies in pyproject.toml. Versions already pinned
stay as they are while they fit; `make pin PIN=--upgrade` takes the newest of everything.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETUP = runpy.run_path(str(ROOT / ".ci" / "setup.py"))
HEADER = """\
# Exact versions of everything `make setup` installs{kind}; written by `make pin`.
# Constraints, not requirements: what nobody asks for is not installed.
"""


def main() -> None:
    for device, name, kind in (
        ("cpu", "constraints.txt", ""),
        ("gpu", "constraints-gpu.txt", " on a machine with an NVIDIA GPU"),
    ):
        path = ROOT / name
        pins = resolved(device, path)
        path.write_text(HEADER.format(kind=kind, name=name) + pins, encoding="utf-8")
        print(f"{name}: {len(pins.splitlines())} pins")


def resolved(device: str, before: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pins.txt"
        # uv keeps what the output file holds already.
        out.write_bytes(before.read_bytes() if before.exists() else b"")
        command = [ROOT / ".venv/bin/uv", "pip", "compile", "pyproject.toml"]
        command += ["--extra", "dev", "--extra", f"engine-{device}", "--python-version", "3.11"]
        command += ["--python-platform", "x86_64-unknown-linux-gnu", "--output-file", out]
        command += ["--no-annotate", "--no-header", "--quiet", *sys.argv[1:]]
        if device == "cpu":
            overrides = Path(folder) / "overrides.txt"
            overrides.write_text(SETUP["cpu_overrides"](), encoding="utf-8")
            command += ["--overrides", overrides, *SETUP["torch_source"]()]
        subprocess.run(
            list(map(str, command)), cwd=ROOT, env=SETUP["registry_environment"](), check=True
        )
        # A local version (`+cpu`) names one build; whoever has another build of it fits as well.
        lines = [line.split("+")[0] for line in out.read_text(encoding="utf-8").splitlines()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
