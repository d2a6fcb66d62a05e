"""Fuzz one target guided by coverage: `python -m tests.fuzz.guided TARGET --minutes 30`.

Needs atheris, which is not among the project's dependencies (`.venv/bin/pip install atheris`): it
mutates the bytes that Hypothesis draws from, and keeps those that reach new code. Slower for each
input than `python -m tests.fuzz`, and worth it over hours. `--corpus FOLDER` keeps what it learnt.
Ends with the first fault, shown as the input that it is; its bytes go to `--corpus` as `crash-*`.
"""

# ruff: noqa: T201 (a command says what it does)
from __future__ import annotations

import argparse
import importlib
import logging
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, note, settings


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("target", metavar="TARGET")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--corpus", type=Path, default=None)
    chosen = parser.parse_args()
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        print("fuzz: atheris is missing: .venv/bin/pip install atheris")
        return 1
    logging.getLogger().addHandler(logging.NullHandler())
    with atheris.instrument_imports(include=["toolrail", "services"]):
        from tests.fuzz.table import TARGETS  # noqa: PLC0415 (imported instrumented)
    target = TARGETS[chosen.target]

    @settings(suppress_health_check=list(HealthCheck), deadline=None, database=None)
    @given(target.inputs)
    def fuzz(value: object) -> None:
        note(f"input: {value!r}")
        target.check(value)

    corpus = chosen.corpus or Path(tempfile.mkdtemp(prefix="toolrail-corpus-"))
    corpus.mkdir(parents=True, exist_ok=True)
    # Inputs longer than libFuzzer's first guesses: a drawn text takes hundreds of bytes.
    flags = [f"-max_total_time={int(60 * chosen.minutes)}", "-max_len=8192", "-len_control=0"]
    flags.append(f"-artifact_prefix={corpus}/")
    atheris.Setup([sys.argv[0], *flags, str(corpus)], fuzz.hypothesis.fuzz_one_input)  # type: ignore[attr-defined]
    atheris.Fuzz()  # ends the process
    return 0


if __name__ == "__main__":
    sys.exit(main())
