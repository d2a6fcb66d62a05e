"""The pins and the declared dependencies belong together."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
ENGINES = {"constraints.txt": "engine-cpu", "constraints-gpu.txt": "engine-gpu"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def declared(engine: str) -> dict[str, str]:
    """Names and conditions of everything that set-up asks for, but for this project itself."""
    extras = [group for name, group in EXTRAS.items() if not name.startswith("engine-")]
    wanted = [*PROJECT["dependencies"], *EXTRAS[engine], *(one for g in extras for one in g)]
    found = [re.match(r"([\w.-]+)(?:\[[\w,-]*\])?\s*([^;]*)", one) for one in wanted]
    return {normal(m[1]): m[2].strip() for m in found if m and normal(m[1]) != "toolrail"}


@pytest.mark.parametrize("name", ENGINES)
def test_every_declared_dependency_is_pinned_within_its_bounds(name: str) -> None:
    pinned = pins(name)
    for dependency, bound in declared(ENGINES[name]).items():
        assert dependency in pinned, f"{dependency} has no pin: run `make pin`"
        version = pinned[dependency]
        operator, wanted = bound[:2], bound[2:]
        assert operator in ("==", ">="), bound
        fits = parts(version) >= parts(wanted) if operator == ">=" else version == wanted
        assert fits, f"{dependency}=={version} is pinned, {bound} declared: run `make pin`"


def parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


@pytest.mark.parametrize("name", ENGINES)
def test_pins_are_exact_and_name_no_place(name: str) -> None:
    for dependency, version in pins(name).items():
        assert re.fullmatch(r"[a-z0-9-]+", dependency)
        assert re.fullmatch(r"[\w.]+", version), "a local version fits one build only"


def test_both_engines_and_the_preprocessor_hold_the_same_grammar_engine() -> None:
    assert {pins(name)["xgrammar"] for name in ENGINES} == {"0.2.8"}
    for extra in ("preprocessor", "engine-cpu", "engine-gpu"):
        assert "xgrammar==0.2.8" in EXTRAS[extra]
