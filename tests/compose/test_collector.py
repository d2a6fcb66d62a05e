"""The collector's file, as far as it can be read without the collector."""

from __future__ import annotations

from typing import Any

import yaml

from tests.compose.files import COMPOSE
from toolrail.telemetry import semconv

CONFIG: dict[str, Any] = yaml.safe_load((COMPOSE / "otel/collector.yaml").read_text("utf-8"))
NAMES = {value for value in vars(semconv).values() if isinstance(value, str)}


def test_pipelines_name_what_is_there_and_nothing_is_left_over() -> None:
    for kind in ("receivers", "processors", "exporters"):
        used = {name for each in CONFIG["service"]["pipelines"].values() for name in each[kind]}
        assert used == CONFIG[kind].keys()
    assert set(CONFIG["service"]["extensions"]) == CONFIG["extensions"].keys()


def test_memory_is_bounded_first_and_batches_come_last() -> None:
    for pipeline in CONFIG["service"]["pipelines"].values():
        first, *_, last = pipeline["processors"]
        assert (first, last) == ("memory_limiter", "batch")


def test_whole_traces_of_what_went_wrong_are_kept() -> None:
    sampling = CONFIG["processors"]["tail_sampling"]
    policies = {policy["name"]: policy for policy in sampling["policies"]}
    assert policies.keys() == {"failed", "slow", "moved", "taken-over", "rest"}
    for policy in policies.values():
        assert policy.keys() == {"name", "type", policy["type"]}
        key = policy[policy["type"]].get("key")
        assert key is None or key in NAMES, "no span of ours has it"
    kept = sampling["decision_cache"]
    assert min(kept.values()) > sampling["num_traces"], "what ends late follows the decision"


def test_prometheus_keeps_what_leads_to_traces() -> None:
    stack = yaml.safe_load((COMPOSE / "compose.yaml").read_text("utf-8"))
    assert "--enable-feature=exemplar-storage" in stack["services"]["prometheus"]["command"]
