"""Whether containers run here at all, with trivial ones; run inside the namespaces.

Two containers on a network of their own, as our services are: without rights, with a read-only
root, with limits; one asks the other by its name, and the machine asks it at a published port.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request

from tests.containers.supplies import BASE

SERVER = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)"
ASK = "import urllib.request as r; r.urlopen('http://probe-server:8000', timeout=5)"
HARDENED = ["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--init"]
START_S = 60.0


def main() -> int:
    podman("rm", "--all", "--force", "--depend")
    podman("network", "prune", "--force")
    podman("network", "create", "probe")
    limits = ["--cpus", "1", "--memory", "200m"] if "without" not in sys.argv else []
    common = [*HARDENED, *limits, "--network", "probe", "--user", "10001"]
    try:
        server = [BASE, "python3", "-c", SERVER]
        health = ["--health-cmd", '["true"]', "--publish", "127.0.0.1:8001:8000"]
        podman("run", "--detach", "--name", "probe-server", *common, *health, *server)
        until(lambda: urllib.request.urlopen("http://127.0.0.1:8001", timeout=5))
        until(lambda: podman("run", "--rm", *common, BASE, "python3", "-c", ASK))
        podman("healthcheck", "run", "probe-server")
        podman("stop", "--time", "5", "probe-server")
    finally:
        podman("rm", "--all", "--force", "--depend")
        podman("network", "rm", "--force", "probe")
    return 0


def podman(*arguments: str) -> str:
    done = subprocess.run(
        ["podman", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=START_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"podman {arguments[0]}: {' '.join(done.stdout.split())[-300:]}")
    return done.stdout


def until(call: object) -> None:
    assert callable(call)
    deadline = time.monotonic() + START_S
    while True:
        try:
            call()
            return
        except (OSError, RuntimeError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        sys.exit(str(error))
