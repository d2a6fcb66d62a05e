"""Build our images and run the compose file, where this machine can: `make test-containers`.

First everything that may fail for the machine's sake: Debian's packages, a base image, wheels, a
trivial container. What fails there is said in one line, "NOT RUN", and ends with status 75. After
that nothing is fetched any more, and what fails is ours: tests/containers decides the status.

State is kept in the cache (`~/.cache/toolrail/containers`), so that only the first run is slow.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.containers import machine, supplies  # noqa: E402

PREPARE_S = 480.0
TESTS_S = 600.0
PROBE_S = 120.0
NOT_RUN = 75
"""EX_TEMPFAIL: neither a success nor a failure of ours."""


def main() -> int:
    clock = machine.Clock(PREPARE_S)
    try:
        with machine.turn(clock):
            return tested(prepare(clock))
    except (machine.NotHereError, OSError) as reason:  # a disk, a folder, a program of the machine
        return not_run(str(reason))


def tested(mode: str) -> int:
    """What the tests say, where containers run."""
    print(f"containers: this machine runs them {mode}", flush=True)
    command = [sys.executable, "-m", "pytest", "-m", "containers", "tests/containers"]
    command += ["-p", "no:cacheprovider", "--durations=5", *sys.argv[1:]]
    try:
        return subprocess.run(
            machine.namespaced(command, mode),
            cwd=ROOT,
            env=machine.environment(),
            stdin=subprocess.DEVNULL,
            timeout=TESTS_S,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        # Every wait in the tests has a deadline of its own, whose end is a failure.
        return not_run(f"this machine is too slow: {TESTS_S:.0f} s were not enough")


def prepare(clock: machine.Clock) -> str:
    """Everything that is fetched or that the machine must be able to do; the mode that it can."""
    machine.install_tools(clock)
    supplies.check_disk()
    machine.configure(machine.LIMITED)
    supplies.collect_wheels(clock)
    supplies.make_base(clock)
    supplies.make_nats(clock)
    reasons = []
    for mode in (machine.LIMITED, machine.WITHOUT_LIMITS):
        machine.configure(mode)
        probe = [sys.executable, "-m", "tests.containers.probe", *mode.split()]
        try:
            machine.attempt(
                machine.namespaced(probe, mode),
                "a trivial container",
                machine.Clock(min(PROBE_S, clock.left_s("a trivial container"))),
                machine.environment(),
            )
        except machine.NotHereError as reason:
            reasons.append(f"{mode}: {reason}")
        else:
            return mode
    raise machine.NotHereError("; ".join(reasons))


def not_run(reason: str) -> int:
    print(f"containers: NOT RUN: images and containers, since {reason}", flush=True)
    return NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
