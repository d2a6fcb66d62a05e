"""Dashboards and alerts: as their source says, about series that we have, and fit to be read."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
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
    "ALERTS",
}
"""Series of the NATS exporter and of Prometheus itself."""

SERIES = re.compile(r"(?<![:\w$\"])([a-z][a-z0-9_]*_[a-z0-9_]+|up|ALERTS)(?=[{\[\s),]|$)")
OF_VLLM = re.compile(r"vllm:[a-z_]+")
FUNCTIONS = {"histogram_quantile", "label_values"}
UNITS = {"short", "none", "s", "percentunit", "reqps", "cps", "pps", "Bps", "bytes"}


def dashboards() -> dict[str, dict[str, Any]]:
    folder = COMPOSE / "grafana" / "dashboards"
    return {path.stem: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            yield f"{name}: {panel['title']}", panel


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((COMPOSE / "prometheus" / "alerts.yml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


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
        yield names | {"toolrail_event_loop_lag_seconds", "toolrail_bus_round_trip_seconds"}


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
                assert series(query) or OF_VLLM.search(query), query
                assert series(query) <= known, (dashboard.uid, panel.title)
                asked += 1
    assert asked > 80


def test_alerts_ask_for_series_that_exist_and_have_runbooks(known: set[str]) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        query = rule["expr"]
        for name in recorded:
            query = query.replace(name, "")
        assert series(query) <= known, rule
        assert series(query) or OF_VLLM.search(query) or query != rule["expr"]


def test_series_of_vllm_are_in_its_source() -> None:
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    source = "".join(
        path.read_text("utf-8") for path in (Path(spec.origin).parent / "v1/metrics").glob("*.py")
    )
    queries = [q for d in MADE["DASHBOARDS"] for p in d.panels for q in p.queries.values()]
    names = {name for q in [*queries, *(r["expr"] for r in rules())] for name in OF_VLLM.findall(q)}
    assert len(names) >= 3
    for name in names:
        assert f'"{name.removesuffix("_total")}"' in source, name


# What a person on call needs of each panel.


def test_each_panel_says_what_it_shows_in_which_unit_and_what_it_means_when_empty() -> None:
    for name, panel in panels():
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["targets"], name
        assert panel["description"].endswith("."), name
        assert defaults["unit"] in UNITS, name
        assert defaults["noValue"], name
        for target in panel["targets"]:
            if panel["datasource"]["type"] == "prometheus":
                assert target["legendFormat"], name
        if panel["type"] == "timeseries":
            assert panel["options"]["legend"]["showLegend"], name


def test_a_unit_fits_what_is_asked() -> None:
    for name, panel in panels():
        unit = panel["fieldConfig"]["defaults"]["unit"]
        queries = " ".join(target.get("expr", "") for target in panel["targets"])
        if "_seconds_bucket" in queries and "histogram_quantile" in queries:
            assert unit == "s", name
        if unit in ("reqps", "cps", "pps", "Bps"):
            assert "rate(" in queries, name
        if unit == "percentunit":
            assert "/" in queries or "_perc" in queries, name


def test_panels_lie_side_by_side_and_none_upon_another() -> None:
    for name, dashboard in dashboards().items():
        taken: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24, name
            cells = {(at["x"] + dx, at["y"] + dy) for dx in range(at["w"]) for dy in range(at["h"])}
            assert not cells & taken, (name, panel["title"])
            taken |= cells


def test_no_data_source_instance_or_address_is_written_into_a_dashboard() -> None:
    for name, dashboard in dashboards().items():
        variables = {each["name"]: each for each in dashboard["templating"]["list"]}
        text = json.dumps(dashboard["panels"])
        for source in re.findall(r'"uid": "([^"]*)"', text):
            assert re.fullmatch(r"\$\{(metrics|traces|logs)\}", source), (name, source)
            assert variables[source[2:-1]]["type"] == "datasource", name
        assert not re.search(r"https?://|instance=|\d+\.\d+\.\d+\.\d+", text), name


def test_each_variable_is_used_and_each_that_is_used_is_there() -> None:
    for name, dashboard in dashboards().items():
        declared = {each["name"] for each in dashboard["templating"]["list"]}
        used = set(re.findall(r"\$\{?([a-z_]+)\}?", json.dumps(dashboard)))
        assert used - {"__rate_interval", "__all"} == declared, name


def test_each_alert_has_a_runbook_that_names_it_and_that_a_panel_links_to() -> None:
    links = [link["url"] for _, panel in panels() for link in panel.get("links", ())]
    linked = {url.removeprefix("${runbooks}/") for url in links}
    for rule in rules():
        if "alert" in rule:
            path = COMPOSE.parent / rule["annotations"]["runbook"]
            assert f"`{rule['alert']}`" in path.read_text("utf-8"), rule["alert"]
            assert path.name in linked, rule["alert"]
    for file in linked:
        assert (COMPOSE.parent / "docs/runbooks" / file).is_file()
