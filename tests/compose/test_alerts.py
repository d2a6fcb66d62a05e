"""What alerts count is there before the first of it: a series that begins at one has not risen."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from services.gateway.audit.metrics import AuditMeters
from services.gateway.metrics import Meters
from services.postprocessor.metrics import PostprocessorMetrics
from services.preprocessor.compile_check import CompileStats
from services.preprocessor.metrics import CompileCollector
from services.worker.metrics import WorkerMetrics
from tests.compose.files import COMPOSE
from toolrail.bus.port import BusStats
from toolrail.service.metrics import ProcessCollector

COUNTED = re.compile(r"increase\(([a-z_]+_total)(?:\{([^}]*)\})?\[")
MATCHER = re.compile(r'([a-z_]+)(=|=~|!=)"([^"]*)"')


def fresh() -> list[Sample]:
    """The series of services that nobody has asked for anything yet, but for a model's name."""
    registry = CollectorRegistry()
    Meters(registry).meet("m")
    AuditMeters(registry)
    PostprocessorMetrics(registry).meet("m", "hermes")
    WorkerMetrics(registry)
    registry.register(CompileCollector(CompileStats()))
    registry.register(ProcessCollector(lambda: BusStats(0, 0, 0, 0, 0, 0), lambda: 0))
    return [sample for metric in registry.collect() for sample in metric.samples]


def counted() -> Iterator[tuple[str, dict[str, list[str]]]]:
    """What rules count: the series, and the values of its labels that they name."""
    groups = yaml.safe_load((COMPOSE / "prometheus" / "alerts.yml").read_text("utf-8"))["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        for name, inside in COUNTED.findall(rule["expr"]):
            wanted = MATCHER.findall(inside)
            yield name, {label: value.split("|") for label, how, value in wanted if how != "!="}


def test_what_alerts_count_begins_at_zero() -> None:
    samples = fresh()
    asked: set[str] = set()
    for name, labels in counted():
        asked.add(name)
        mine = [sample for sample in samples if sample.name == name]
        assert mine, name
        assert all(sample.value == 0 for sample in mine)
        for label, values in labels.items():
            there = {sample.labels[label] for sample in mine}
            assert set(values) <= there, (name, label)
    assert len(asked) > 8


def test_failures_that_spend_the_budget_begin_at_zero_for_each_code_and_model() -> None:
    failures = [sample for sample in fresh() if sample.name == "toolrail_errors_total"]
    codes = {sample.labels["code"] for sample in failures}
    assert codes == {
        "overloaded", "deadline", "unavailable", "lost", "engine", "model_output", "internal"
    }  # fmt: skip
    for model in ("", "m"):
        mine = [sample for sample in failures if sample.labels["model"] == model]
        assert len(mine) == 2 * len(codes)  # with a status, and in the middle of a stream
