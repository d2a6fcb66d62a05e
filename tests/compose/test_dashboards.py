"""Dashboards and alerts: as their source says, and about series that our services have."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests import pipeline
from tests.compose.files import COMPOSE

MADE: dict[str, Any] = runpy.run_path(str(COMPOSE / "grafana" / "make_dashboards.py"))
FOREIGN = {
    "jetstream_consumer_num_pending",
    "jetstream_consumer_num_redelivered",
    "gnatsd_varz_slow_consumers",
    "up",
}
"""Series of the NATS exporter and of Prometheus itself."""

SERIES = re.compile(r"(?<![:\w$\"])([a-z][a-z0-9_]*_[a-z0-9_]+|up)(?=[{\[\s),]|$)")
FUNCTIONS = {"histogram_quantile", "label_values"}


@pytest.fixture(scope="module")
def known() -> Iterator[set[str]]:
    with pipeline.running("--obey-tag") as running:
        names: set[str] = set(FOREIGN)
        for registry in running.metrics.values():
            for metric in registry.collect():
                kind, name = metric.type, metric.name
                suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
                names |= {name + suffix for suffix in suffixes.get(kind, ("",))}
        # Those of every process, which the pipeline in one process has no endpoint for.
        yield names | {
            "toolrail_event_loop_lag_seconds",
            "toolrail_bus_messages_total",
            "toolrail_bus_payload_bytes_total",
            "toolrail_bus_reconnects_total",
            "toolrail_bus_dropped_total",
            "toolrail_trace_spans_dropped_total",
        }


def series(query: str) -> set[str]:
    without_labels = re.sub(r"\b(by|without) \([^)]*\)", "", re.sub(r"\{[^}]*\}", "{", query))
    return set(SERIES.findall(without_labels)) - FUNCTIONS


def test_the_files_are_what_their_source_makes() -> None:
    folder = COMPOSE / "grafana" / "dashboards"
    made = {f"{each.uid}.json": MADE["rendered"](each) for each in MADE["DASHBOARDS"]}
    assert {path.name: path.read_text("utf-8") for path in folder.glob("*.json")} == made


def test_panels_ask_for_series_that_exist(known: set[str]) -> None:
    asked = 0
    for dashboard in MADE["DASHBOARDS"]:
        for panel in dashboard.panels:
            if panel.source != "prometheus":
                continue
            for query in (*panel.queries.values(), *dashboard.variables.values()):
                assert series(query), query
                assert series(query) <= known, (dashboard.uid, panel.title)
                asked += 1
    assert asked > 40


def test_alerts_ask_for_series_that_exist_and_have_runbooks(known: set[str]) -> None:
    groups = yaml.safe_load((COMPOSE / "prometheus" / "alerts.yml").read_text("utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    for rule in rules:
        query = rule["expr"]
        for name in recorded:
            query = query.replace(name, "")
        assert series(query) <= known, rule
        assert series(query) or any(name in rule["expr"] for name in recorded)
        if "alert" in rule:
            assert (COMPOSE.parent / rule["annotations"]["runbook"]).is_file(), rule["alert"]


def test_panels_have_one_query_at_least_and_say_what_they_show() -> None:
    for path in (COMPOSE / "grafana" / "dashboards").glob("*.json"):
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            assert panel["targets"]
            assert panel["description"]
            assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
