"""The images: what they hold, what they do not, and what we add to the base."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.containers.compose import ROOT, Stack, podman
from tests.containers.conftest import DECOYS
from tests.containers.supplies import BASE

pytestmark = pytest.mark.containers

IMAGES = {
    "toolrail-gateway:local": 80,
    "toolrail-preprocessor:local": 100,
    "toolrail-postprocessor:local": 80,
    "toolrail-worker-scripted:local": 100,
}
"""And the megabytes that each may add to the base."""
HEAVY = ("torch", "vllm", "transformers", "numpy", "triton", "huggingface_hub", "uv")
LIST = "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if u.find_spec(n)))"
FILES = "import os; [print(os.path.join(d, f)) for d, _, fs in os.walk('/app') for f in fs]"


def image(name: str) -> dict[str, Any]:
    (found,) = json.loads(podman("image", "inspect", name))
    return found


def python(name: str, code: str, *arguments: str) -> list[str]:
    return podman("run", "--rm", "--read-only", name, "python", "-c", code, *arguments).split()


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_adds_little_to_its_base(built: Stack, name: str) -> None:
    added = (image(name)["Size"] - image(BASE)["Size"]) / 1e6
    assert 5 < added < IMAGES[name]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_holds_no_engine_and_nothing_of_the_machine(built: Stack, name: str) -> None:
    assert python(name, LIST, *HEAVY, "toolrail") == ["toolrail"]
    files = python(name, FILES)
    assert not [path for path in files if path.endswith(DECOYS)]
    assert not [path for path in files if "/tests/" in path]
    # Neither the wheels' place nor that of an index is remembered.
    said = json.dumps(image(name))
    assert "index" not in said
    assert str(ROOT) not in said


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_runs_as_a_user_without_rights(built: Stack, name: str) -> None:
    config = image(name)["Config"]
    assert config["User"] == "10001"
    assert config["WorkingDir"] == "/app"
    assert {"PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=/app"} <= set(config["Env"])


def test_code_is_compiled_so_that_a_read_only_root_starts_fast(built: Stack) -> None:
    files = set(python("toolrail-gateway:local", FILES))
    sources = [path for path in files if path.endswith(".py")]
    assert len(sources) > 100
    for path in sources:
        folder, _, name = path.rpartition("/")
        assert f"{folder}/__pycache__/{name.removesuffix('.py')}.cpython-311.pyc" in files


def test_the_command_line_is_there(built: Stack) -> None:
    assert "doctor" in podman(
        "run", "--rm", "--read-only", "toolrail-gateway:local", "toolrail", "-h"
    )
