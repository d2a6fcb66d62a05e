"""One tree, built and started once for all tests here: `make test-containers` makes it possible."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.compose import (
    BUILD_S,
    OURS,
    SERVICES,
    Stack,
    copy_of_the_tree,
    podman,
    remove_all,
    run,
)
from tests.containers.machine import STATE

DECOYS = (".env", ".venv/bin/python", "compose/secrets/grafana_admin_password", "model.safetensors")
"""Files beside the sources that no image may hold."""

GATEWAY = "toolrail-gateway:local"
NEW_KEY = ("toolrail", "key", "new", "tests")
SLOW = " ".join(f"word{number}" for number in range(120))
"""What the worker says in its time, to who asks for something slow: 40 ms a token, for seconds."""


@pytest.fixture(scope="package")
def built(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """The images, from a clone that only its owner may read, with files that are not for them."""
    assert os.environ.get("CONTAINERS_CONF") == str(STATE / "containers.conf"), (
        "these tests run through `make test-containers`"
    )
    remove_all()
    podman("volume", "prune", "--force")
    # Of yesterday's builds; today's are this one's cache.
    podman("image", "prune", "--force", "--filter", "until=24h")
    tree = tmp_path_factory.mktemp("clone")
    copy_of_the_tree(tree)
    for name in DECOYS:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("decoy")
    row = {"match": "slowly", "text": SLOW, "delay_ms": 40}
    (tree / "script").mkdir()
    (tree / "script" / "script.jsonl").write_text(json.dumps(row) + "\n")
    stack = Stack(tree)
    for service in OURS:
        stack.compose("build", service, timeout_s=BUILD_S)
    return stack


@pytest.fixture(scope="package")
def stack(built: Stack) -> Iterator[Stack]:
    """Everything of ours and the bus, healthy, with the API key of a file."""
    entry_text, shown = run(["podman", "run", "--rm", "--read-only", GATEWAY, *NEW_KEY])
    secrets: Path = built.tree / "compose" / "secrets"
    entry = secrets / "api_keys.toml"
    entry.write_text(entry_text)
    # As compose.secrets.yaml says: the services' user reads it.
    os.chown(entry, 10001, 10001)
    built.api_key = shown.split()[-1]
    try:
        built.compose("up", "--detach", "--no-build", "nats")
        built.wait_healthy(["nats"])
        built.compose("up", "--detach", "--no-build", *SERVICES)
        built.wait_healthy(SERVICES)
        yield built
    finally:
        remove_all()
