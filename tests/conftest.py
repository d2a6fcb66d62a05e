from __future__ import annotations

import gc
import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests import otlp
from tests import stack as stacks
from tests.cost import Cost

# The same examples in every run, so that a change that is not at fault does not fail; HYPOTHESIS
# set to `random` in the environment draws new ones. How long one takes is the machine's affair.
_PATIENT: Final = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("random", _PATIENT)
settings.register_profile("steady", _PATIENT, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS", "steady"))

ENGINE_FLAGS: Final = (
    *("--model", "demo-think"),
    *("--structural-tag", '{"custom_grammars": true}'),
)
"""The demo whose vocabulary has reasoning and call markers as single tokens, as real models do."""

HEAVY: Final = {
    "clients/test_anthropic.py": "clients",
    "clients/test_anthropic_agent_loop.py": "clients",
    "clients/test_audit.py": "clients",
    "clients/test_langchain.py": "clients",
    "clients/test_litellm.py": "clients",
    "clients/test_openai_agents.py": "clients",
    "clients/test_pydantic_ai.py": "clients",
    "containers/test_stack.py": "containers",
    "e2e/test_engine_agent_loop.py": "engine",
}
"""Modules, each of one mark, that import what takes seconds: a run without the mark need not."""

# What collecting makes is no garbage, and to look for it again and again is a third of the work.
gc.disable()

_ENGINE: Final = pytest.StashKey[stacks.Stack]()
_SPANS: Final = pytest.StashKey[otlp.Receiver]()
_OPEN: Final = pytest.StashKey[ExitStack]()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Cost())


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """Tests marked `anyio` run on the loop that the services run on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> stacks.Stack:
    """The whole stack with a real engine, one for all tests marked `engine`."""
    stack = request.config.stash[_ENGINE]
    stack.wait_ready(stacks.ENGINE_START_S)
    return stack


@pytest.fixture(scope="session")
def engine_spans(request: pytest.FixtureRequest, engine: stacks.Stack) -> otlp.Receiver:
    """What that stack traces."""
    del engine
    return request.config.stash[_SPANS]


@pytest.fixture
def engine_to_end(engine: stacks.Stack) -> stacks.Stack:
    """The same, for the one test that ends it; it runs last of all."""
    return engine


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    mark = HEAVY.get("/".join(collection_path.parts[-2:]))
    if mark and f"not {mark}" in config.option.markexpr:
        return True
    return None  # whoever is asked next decides


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs the real engine comes last: the engine starts first, beside everything else."""

    def place(item: pytest.Item) -> tuple[bool, bool]:
        return item.get_closest_marker("engine") is not None, "engine_to_end" in _names(item)

    items.sort(key=place)


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()  # what is there now lives to the end, and is not looked through again
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
    # By the mark too: a mere parameter may be called the same.
    wanted = any(
        item.get_closest_marker("engine") and "engine" in _names(item) for item in session.items
    )
    if wanted and not session.config.option.collectonly:
        folder = Path(tempfile.mkdtemp(prefix="toolrail-engine-"))
        stash = session.config.stash
        stash[_OPEN] = ExitStack()
        stash[_SPANS] = spans = stash[_OPEN].enter_context(otlp.receiver())
        stash[_ENGINE] = stacks.start(folder, *ENGINE_FLAGS, "--otlp-endpoint", spans.url)


def _names(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A test that was skipped did not hold: here everything must be able to run."""
    if stack := session.config.stash.get(_ENGINE, None):
        stacks.discard(stack)
        session.config.stash[_OPEN].close()
        shutil.rmtree(stack.status_file.parent, ignore_errors=True)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and reporter.stats.get("skipped") and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line("a test was skipped, which counts as a failure", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
