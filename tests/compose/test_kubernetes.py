"""The Kubernetes objects: valid, about processes that exist, and consistent with each other."""

from __future__ import annotations

import runpy
from functools import cache
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.compose.files import COMPOSE, OURS
from tests.compose.test_compose import SETTINGS
from toolrail.flags import load

FOLDER = COMPOSE / "kubernetes"
FOLDERS = ("base", "gpu", "keda", "monitoring")
CUSTOM = {"ScaledObject", "PodMonitor", "Kustomization", "Component"}
"""Kinds whose schemas are not Kubernetes' own."""


@cache
def objects(folder: str = "base") -> tuple[dict[str, Any], ...]:
    found: list[dict[str, Any]] = []
    for path in sorted((FOLDER / folder).glob("*.yaml")):
        found += [each for each in yaml.safe_load_all(path.read_text("utf-8")) if each]
    return tuple(found)


def of_kind(kind: str, folder: str = "base") -> dict[str, dict[str, Any]]:
    return {e["metadata"]["name"]: e for e in objects(folder) if e["kind"] == kind}


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
    for folder in FOLDERS:
        (kustomization,) = (
            e for e in objects(folder) if e["kind"] in ("Kustomization", "Component")
        )
        patches = [patch["path"] for patch in kustomization.get("patches", ()) if "path" in patch]
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
    # Time for endpoints to forget the pod, then the drain, and some to close.
    before = 5 if "lifecycle" in ours else 0
    assert before + settings.drain_s + 10 <= pod["terminationGracePeriodSeconds"]
    ports = {each["name"]: each["containerPort"] for each in ours["ports"]}
    assert settings.metrics_port == ports["metrics"]
    asked = {
        probe: ours[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")
    }
    assert {probe: each["path"] for probe, each in asked.items()} == {
        "startup": "/ready",  # so that a roll-out waits for a worker's model
        "liveness": "/live",
        "readiness": "/ready",
    }
    assert all(each["port"] == "metrics" for each in asked.values())


@pytest.mark.parametrize("service", OURS)
def test_what_selects_a_service_finds_it(service: str) -> None:
    labels = of_kind("Deployment")[service]["spec"]["template"]["metadata"]["labels"]
    budget = of_kind("PodDisruptionBudget")[service]["spec"]["selector"]["matchLabels"]
    assert budget.items() <= labels.items()
    assert of_kind("Deployment")[service]["spec"]["selector"]["matchLabels"] == labels
    scalers = of_kind("HorizontalPodAutoscaler")
    assert set(scalers) == set(OURS) - {"worker"}
    for scaler in (scalers.get(service), of_kind("ScaledObject", "keda")[service]):
        assert scaler is None or scaler["spec"]["scaleTargetRef"]["name"] == service


@pytest.mark.parametrize("service", OURS)
def test_pods_have_no_rights(service: str) -> None:
    pod = of_kind("Deployment")[service]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["priorityClassName"] in of_kind("PriorityClass")
    spread = {each["topologyKey"] for each in pod["topologySpreadConstraints"]}
    assert spread == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    for volume in pod["volumes"]:
        assert "sizeLimit" in volume.get("emptyDir", {"sizeLimit": ""}), volume
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


def test_the_base_asks_for_nothing_that_a_cluster_may_lack() -> None:
    kinds = {
        each["apiVersion"].split("/")[0] for each in objects() if each["kind"] != "Kustomization"
    }
    assert kinds <= {"v1", "apps", "autoscaling", "batch", "networking.k8s.io", "policy"} | {
        "scheduling.k8s.io"
    }


def test_workers_scale_on_what_waits_and_the_others_on_late_loops() -> None:
    queries = {
        name: [t["metadata"].get("query", "") for t in scaler["spec"]["triggers"]]
        for name, scaler in of_kind("ScaledObject", "keda").items()
    }
    assert any("waiting_streams" in query for query in queries.pop("worker"))
    for name, asked in queries.items():
        assert any("event_loop_lag" in q and f'service="{name}"' in q for q in asked), name


def test_pods_are_asked_for_their_metrics_under_the_names_of_the_alerts() -> None:
    spec = of_kind("PodMonitor", "monitoring")["toolrail"]["spec"]
    (selected,) = spec["selector"]["matchExpressions"]
    assert selected["values"] == list(OURS)
    (endpoint,) = spec["podMetricsEndpoints"]
    given = {each["targetLabel"]: each.get("replacement") for each in endpoint["relabelings"]}
    assert given == {"job": "toolrail", "service": None}
    rule = runpy.run_path(str(FOLDER / "prometheus_rule.py"))["prometheus_rule"]()
    alerts = [r["alert"] for g in rule["spec"]["groups"] for r in g["rules"] if "alert" in r]
    assert len(alerts) > 10
