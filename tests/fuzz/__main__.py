"""Fuzz for a while: `python -m tests.fuzz --minutes 30 [TARGET …]`, or `make fuzz MINUTES=30`.

The targets take turns, each turn with inputs that were never drawn before. A fault ends its target,
is shrunk and shown; `--seed` draws the same again. Exits with 1 where there was one.
"""

# ruff: noqa: T201 (a command says what it does)
from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import traceback
import warnings

from tests.fuzz.table import TARGETS
from tests.fuzz.target import Target

TURN_S = 10.0
"""About how long a target is at it before the next one is; known after its first turn."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--minutes", type=float, default=5.0, help="for all of them together")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    chosen = parser.parse_args()
    unknown = set(chosen.targets) - set(TARGETS)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    warnings.simplefilter("error")
    logging.getLogger().addHandler(logging.NullHandler())
    print(f"fuzz: seed {chosen.seed}", flush=True)
    left = [TARGETS[name] for name in chosen.targets or TARGETS]
    return fuzz(left, time.monotonic() + 60 * chosen.minutes, chosen.seed)


def fuzz(left: list[Target], until: float, seed: int) -> int:
    """Let the targets take turns until the time is over or none is left."""
    faults = 0
    turn_size = {target.name: target.bounded for target in left}
    total = dict.fromkeys(turn_size, 0)
    turn = 0
    while left and time.monotonic() < until:
        target = left.pop(0)
        began = time.monotonic()
        turn += 1
        try:
            target.run(turn_size[target.name], drawn_with=seed + turn)
        except Exception:  # noqa: BLE001 (whatever it is, it is a fault)
            faults += 1
            print(f"fuzz: {target.name}: a fault, with --seed {seed + turn - 1}", flush=True)
            traceback.print_exc()
            continue
        left.append(target)
        total[target.name] += turn_size[target.name]
        took = max(time.monotonic() - began, 0.01)
        turn_size[target.name] = max(10, int(turn_size[target.name] * min(TURN_S / took, 4)))
        print(f"fuzz: {target.name}: {total[target.name]} inputs", flush=True)
    print(f"fuzz: {sum(total.values())} inputs, {faults} faults", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
