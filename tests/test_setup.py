"""What `make setup` says when the machine lacks something, and that it does nothing twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SYSTEM_PYTHON = f"{sys.base_prefix}/bin/python3"
NOWHERE = "http://127.0.0.1:9/simple"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout as far as set-up reads it, with an environment as bare as Python makes it."""
    monkeypatch.setenv("TOOLRAIL_CACHE", str(tmp_path / "cache"))
    for name in (".ci/setup.py", "pyproject.toml", "constraints.txt"):
        copy = tmp_path / name
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "services" / "worker", tmp_path / "services" / "worker")
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(SYSTEM_PYTHON)
    (programs / "pip").touch()
    return tmp_path


def setup(tree: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "TOOLRAIL_CACHE")}
    return subprocess.run(
        [SYSTEM_PYTHON, ".ci/setup.py"],
        cwd=tree,
        env=kept | {"HOME": str(tree), "TOOLRAIL_DEVICE": "cpu"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def programs(folder: Path, *names: str) -> str:
    """A PATH on which only these are found."""
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return str(folder)


def module(tree: Path) -> dict[str, Any]:
    script = (tree / ".ci" / "setup.py").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "setup", "__file__": str(tree / ".ci" / "setup.py")}
    exec(compile(script, "setup.py", "exec"), names)
    return names


def refused(ran: subprocess.CompletedProcess[str]) -> str:
    """The one line that says why."""
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert ran.stderr.startswith("setup: ")
    return ran.stderr


def test_a_missing_compiler_is_named(tree: Path) -> None:
    path = programs(tree / "bin", "git")
    assert "no C++ compiler found: install g++" in refused(setup(tree, PATH=path))


def test_a_missing_git_is_named(tree: Path) -> None:
    path = programs(tree / "bin", "c++")
    assert "git is missing" in refused(setup(tree, PATH=path))


def test_a_registry_out_of_reach_is_named(tree: Path) -> None:
    ran = setup(tree, PIP_INDEX_URL=NOWHERE, PIP_RETRIES="0", PIP_CONFIG_FILE=os.devnull)
    assert "no package registry could be reached to install uv" in refused(ran)


def test_a_device_nobody_knows_is_named(tree: Path) -> None:
    assert "TOOLRAIL_DEVICE" in refused(setup(tree, TOOLRAIL_DEVICE="tpu"))


@pytest.mark.parametrize(
    ("free_gib", "told"), [(1, "not enough disk"), (2.5, "not enough disk"), (100, None)]
)
def test_a_full_disk_is_named(tree: Path, free_gib: float, told: str | None) -> None:
    setup_module = module(tree)
    # The disk is the one thing a test cannot fill; what is measured of it is replaced.
    setup_module["shutil"] = _Disk(int(free_gib * (1 << 30)))
    if told is None:
        setup_module["check_disk"]("cpu")
        return
    with pytest.raises(setup_module["MissingError"], match=told):
        setup_module["check_disk"]("cpu")


class _Disk:
    def __init__(self, free: int) -> None:
        self._free = free

    def disk_usage(self, path: Path) -> Any:
        assert path.exists()
        return shutil.disk_usage(path)._replace(free=self._free)


@pytest.mark.parametrize("version", [(3, 9, 2), (3, 10, 13), (3, 14, 0)])
def test_a_python_that_does_not_fit_is_named(tree: Path, version: tuple[int, ...]) -> None:
    setup_module = module(tree)

    class Running:
        platform = "linux"
        version_info = version

    setup_module["sys"] = Running
    with pytest.raises(setup_module["MissingError"], match=r"needs Python 3\.11 to 3\.13"):
        setup_module["check_python"]()


@pytest.fixture
def model(tree: Path) -> Path:
    """The tree as a finished set-up leaves it; a model's directory."""
    (tree / ".venv" / "bin" / "toolrail").touch()
    directory = tree / "cache" / "models" / "demo"
    directory.mkdir(parents=True)
    setup_module = module(tree)
    setup_module["STAMP"].write_text(f"{setup_module['fingerprint']('cpu')}\n{directory}\n")
    return directory


@pytest.mark.usefixtures("model")
def test_a_second_run_does_nothing(tree: Path) -> None:
    ran = setup(tree, PATH="/nowhere")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt", ".ci/setup.py"])
def test_a_changed_dependency_is_noticed(tree: Path, name: str) -> None:
    with (tree / name).open("a") as file:
        file.write("# changed\n")
    assert "C++" in refused(setup(tree, PATH="/nowhere"))


def test_a_model_that_was_deleted_is_noticed(tree: Path, model: Path) -> None:
    model.rmdir()
    assert "C++" in refused(setup(tree, PATH="/nowhere"))
