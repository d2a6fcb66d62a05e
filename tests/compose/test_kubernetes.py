"""The Kubernetes objects: valid, about processes that exist, and consistent with each other."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.compose.files import COMPOSE, OURS
from tests.compose.test_compose import SETTINGS
from toolrail.flags import load

FOLDER = COMPOSE / "kubernetes"
CUSTOM = {"ScaledObject", "Kustomization"}
"""Kinds whose schemas are not Kubernetes' own."""


def objects(folder: str = "base") -> list[dict[str, Any]]:
    found = []
    for path in sorted((FOLDER / folder).glob("*.yaml")):
        found += [each for each in yaml.safe_load_all(path.read_text("utf-8")) if each]
    return found


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in objects() if each["kind"] == kind}


def container(name: str) -> dict[str, Any]:
    (found,) = of_kind("Deployment")[name]["spec"]["template"]["spec"]["containers"]
    return found


def common() -> dict[str, str]:
    (kustomization,) = (each for each in objects() if each["kind"] == "Kustomization")
    (generated,) = kustomization["configMapGenerator"]
    return dict(line.split("=", 1) for line in generated["literals"])


def test_objects_are_what_kubernetes_takes() -> None:
    checked = 0
    for each in objects():
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, "1.31", strict=True)
            checked += 1
    assert checked > 15


def test_a_kustomization_names_every_file() -> None:
    for folder in ("base", "gpu"):
        (kustomization,) = (e for e in objects(folder) if e["kind"] == "Kustomization")
        patches = [patch["path"] for patch in kustomization.get("patches", ())]
        named = {name for name in (*kustomization["resources"], *patches) if "/" not in name}
        there = {path.name for path in (FOLDER / folder).glob("*.yaml")} - {"kustomization.yaml"}
        assert named == there


@pytest.mark.parametrize("service", OURS)
def test_a_deployment_runs_a_service_with_settings_that_it_has(service: str) -> None:
    deployment = of_kind("Deployment")[service]
    pod = deployment["spec"]["template"]["spec"]
    ours = container(service)
    assert ours["command"] == ["python", "-m", f"services.{service}"]
    own = {each["name"]: each["value"] for each in ours["env"] if "value" in each}
    settings = load(SETTINGS[service], [], common() | own)
    assert settings.drain_s < pod["terminationGracePeriodSeconds"]
    ports = {each["name"]: each["containerPort"] for each in ours["ports"]}
    assert settings.metrics_port == ports["metrics"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probe in ours:
            asked = ours[probe]["httpGet"]
            assert asked["port"] in ports
            assert asked["path"] in ("/live", "/health", "/metrics")


@pytest.mark.parametrize("service", OURS)
def test_what_selects_a_service_finds_it(service: str) -> None:
    labels = of_kind("Deployment")[service]["spec"]["template"]["metadata"]["labels"]
    budget = of_kind("PodDisruptionBudget")[service]["spec"]["selector"]["matchLabels"]
    assert budget.items() <= labels.items()
    assert of_kind("Deployment")[service]["spec"]["selector"]["matchLabels"] == labels
    scalers = of_kind("HorizontalPodAutoscaler") | of_kind("ScaledObject")
    assert scalers[service]["spec"]["scaleTargetRef"]["name"] == service


@pytest.mark.parametrize("service", OURS)
def test_pods_have_no_rights(service: str) -> None:
    pod = of_kind("Deployment")[service]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"]
    own = container(service)["securityContext"]
    assert own["readOnlyRootFilesystem"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert not own["allowPrivilegeEscalation"]
    assert "memory" in container(service)["resources"]["limits"]


def test_everything_that_is_not_allowed_is_forbidden() -> None:
    policies = of_kind("NetworkPolicy")
    everything = policies.pop("nothing-else")["spec"]
    assert everything == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert set(policies) == {"gateway-from-outside", "metrics", "bus-names-and-traces"}
