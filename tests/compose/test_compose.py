"""The compose files against what they start: our flags, our paths, the bus's own check."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compose.files import COMPOSE, OURS, read, stack
from toolrail.bus.embedded import MAX_PAYLOAD_BYTES, server_binary
from toolrail.flags import load
from toolrail.settings import (
    CommonSettings,
    GatewaySettings,
    PostprocessorSettings,
    PreprocessorSettings,
    WorkerSettings,
)

SETTINGS: dict[str, type[CommonSettings]] = {
    "gateway": GatewaySettings,
    "preprocessor": PreprocessorSettings,
    "postprocessor": PostprocessorSettings,
    "worker": WorkerSettings,
}
GPU = {"TOOLRAIL_MODEL": "/models/own/m", "TOOLRAIL_TOOL_CALL_PARSER": "hermes"}
STACKS: dict[str, dict[str, Any]] = {
    "one host": stack(),
    "gpu": stack("compose.gpu.yaml", environment=GPU),
    "cluster": stack("compose.cluster.yaml"),
    "secrets": stack("compose.secrets.yaml"),
    "scripted": stack("compose.scripted.yaml"),
    "podman": stack("compose.podman.yaml"),
    "offline": stack("compose.offline.yaml", environment={"TOOLRAIL_WHEELS": "/wheels"}),
    "audit": stack("compose.audit.yaml"),
}

pytestmark = pytest.mark.parametrize("name", STACKS)


def settings(service: str, described: dict[str, Any]) -> CommonSettings:
    """What the service would run with in its container."""
    command, environment = described["command"], described.get("environment", {})
    assert command[:3] == ["python", "-m", f"services.{service}"]
    assert all(isinstance(value, str) for value in environment.values())
    return load(SETTINGS[service], command[3:], environment)


def test_every_service_of_ours_starts_with_flags_that_it_has(name: str) -> None:
    services = STACKS[name]["services"]
    for service in OURS:
        found = settings(service, services[service])
        assert {url.split(":")[1].strip("/") for url in found.nats_url.split(",")} <= set(services)
        assert found.metrics_host == "0.0.0.0"
        assert found.drain_s < seconds(services[service]["stop_grace_period"])


def seconds(written: str) -> float:
    assert written.endswith("s")
    return float(written[:-1])


def test_prometheus_asks_every_service_where_it_answers(name: str) -> None:
    (job,) = (
        job
        for job in read("prometheus/prometheus.yml")["scrape_configs"]
        if job["job_name"] == "toolrail"
    )
    (found,) = job["dns_sd_configs"]
    assert found["names"] == list(OURS)
    for service in OURS:
        assert settings(service, STACKS[name]["services"][service]).metrics_port == found["port"]


def test_images_are_pinned_and_bounded_and_ours_hardened(name: str) -> None:
    for service, described in STACKS[name]["services"].items():
        assert re.search(r":(v?\d[\w.-]*|local)$", described["image"]), service
        limits = described["deploy"]["resources"]["limits"]
        assert {"cpus", "memory"} <= limits.keys()
        assert "privileged" not in described
        for port in described.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{service} is open to the network"
        if service in OURS:
            assert described["read_only"]
            assert described["cap_drop"] == ["ALL"]
            assert described["healthcheck"]["test"][0] == "CMD"


def test_what_is_mounted_or_copied_is_in_the_tree(name: str) -> None:
    for described in STACKS[name]["services"].values():
        for volume in described.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (COMPOSE / source).exists(), source
            else:
                assert source in STACKS[name]["volumes"]
    for line in (COMPOSE / "Dockerfile").read_text(encoding="utf-8").splitlines():
        if line.startswith("COPY") and "--from" not in line and "${" not in line:
            for source in line.split()[1:-1]:
                assert (COMPOSE.parent / source).exists(), source


def test_the_bus_accepts_its_configuration(name: str, tmp_path: Path) -> None:
    described = STACKS[name]["services"]["nats"]
    config = described["command"][1]
    mounted = [v.split(":")[0] for v in described["volumes"] if v.split(":")[1] == config]
    text = (COMPOSE / mounted[0]).read_text(encoding="utf-8")
    assert f"max_payload: {MAX_PAYLOAD_BYTES >> 20}MB" in text
    copy = tmp_path / "nats.conf"
    copy.write_text(text.replace('"/data"', f'"{tmp_path}"'), encoding="utf-8")
    done = subprocess.run(
        [str(server_binary()), "-t", "-c", str(copy)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
