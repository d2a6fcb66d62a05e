"""Our rules and dashboards in a real Prometheus, over a running stack with mixed traffic."""

from __future__ import annotations

import re
import runpy
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest
import yaml

from tests.compose.files import COMPOSE
from tests.compose.test_dashboards import FOREIGN, OF_VLLM, series
from tests.operations.watched import FREE, POINT, POLL_S, Watched, load, program, until_healthy
from tests.operations.watched import watched as watched_stack

pytestmark = pytest.mark.operations

DATA_S: Final = 300.0
FAULT_S: Final = 300.0
"""On a machine of two busy cores; alone it takes a third of it."""
SCALE: Final = 30
"""What rules' times are divided by: five minutes are ten seconds."""
MADE = runpy.run_path(str(COMPOSE / "grafana" / "make_dashboards.py"))
RULES = COMPOSE / "prometheus/alerts.yml"

SETTINGS: Final = {
    "TOOLRAIL_WORKER_WAIT_S": "40",
    "TOOLRAIL_MIGRATION_LIMIT": "10",
    "TOOLRAIL_MAX_WAITING_PER_SLOT": "1",
}


def promtool(*arguments: str) -> None:
    done = subprocess.run(
        [program("promtool"), *arguments],
        cwd=COMPOSE / "prometheus",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def alerts() -> set[str]:
    rules = yaml.safe_load(RULES.read_text("utf-8"))
    return {r["alert"] for group in rules["groups"] for r in group["rules"] if "alert" in r}


def seconds(text: str) -> int:
    return int(text[:-1]) * {"m": 60, "h": 3600}[text[-1]]


def test_each_alert_fires_for_its_fault_and_ends_with_it() -> None:
    files = ("alerts_test.yml", "alerts_days_test.yml")
    fired: dict[str, int] = {}
    resolved: set[str] = set()
    for file in files:
        promtool("test", "rules", file)
        for one in yaml.safe_load((COMPOSE / "prometheus" / file).read_text("utf-8"))["tests"]:
            asked = sorted(one["alert_rule_test"], key=lambda each: seconds(each["eval_time"]))
            began: set[str] = set()
            for each in asked:
                if each["exp_alerts"]:
                    fired[each["alertname"]] = 1
                    began.add(each["alertname"])
                elif each["alertname"] in began:
                    resolved.add(each["alertname"])
    assert set(fired) == alerts()
    assert resolved == alerts()


def test_queries_of_runbooks_and_docs_can_be_asked(watched: Watched) -> None:
    docs = COMPOSE.parent / "docs"
    asked = 0
    for path in [*(docs / "runbooks").glob("*.md"), docs / "operate.md", docs / "metrics.md"]:
        text = path.read_text("utf-8")
        fenced = re.findall(r"```promql\n(.*?)```", text, re.DOTALL)
        # In the text, a query is what holds a call or a choice of labels of a series of ours.
        written = [q for q in re.findall(r"`([^`\n]+)`", text) if re.search(r"\([^)]*toolrail_", q)]
        for query in (*fenced, *written):
            watched.ask(query.strip())  # asserts that it can be parsed
            asked += 1
    assert asked > 30


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    with watched_stack(folder, by=SCALE, settings=SETTINGS) as made:
        yield made


def a_round(watched: Watched) -> None:
    """A request of every outcome. What it comes to on a busy machine is not asked here."""
    watched.post("words")
    watched.post("talk", model="demo-b", stream=True)
    watched.post("call", tools=[POINT])
    watched.post("call", tools=[FREE])
    watched.post("words", tools=[POINT], tool_choice="none")
    watched.post("wrong", tools=[FREE])
    watched.post("odd", tools=[FREE])
    watched.post("cut", tools=[FREE])
    watched.post("words", model="absent", key="careless")
    watched.post("words", temperature=9, key="careless")
    watched.post("break")
    watched.knock()
    watched.leave("slow")


def test_every_panel_has_data(watched: Watched) -> None:
    missing = {}
    for dashboard in MADE["DASHBOARDS"]:
        for panel in dashboard.panels:
            for legend, query in panel.queries.items():
                foreign = series(query) & (FOREIGN - {"ALERTS"}) or OF_VLLM.search(query)
                if panel.source != "prometheus" or foreign:
                    continue  # neither the NATS exporter nor vLLM runs here
                asked = filled(query, "30s")
                missing[f"{dashboard.uid}: {panel.title}: {legend}"] = asked
    assert len(missing) > 80
    deadline = time.monotonic() + DATA_S
    while missing:
        a_round(watched)
        missing = {name: query for name, query in missing.items() if not watched.ask(query)}
        assert time.monotonic() < deadline, missing


def filled(query: str, interval: str) -> str:
    for name, value in (("$__rate_interval", interval), ("$model", ".*"), ("$family", ".*")):
        query = query.replace(name, value)
    return query


# Faults.

QUALITY: Final = {
    "ErrorsBurnFast",
    "ErrorsBurnSteady",
    "ErrorsBurnSlow",
    "FirstEventBurnFast",
    "FirstEventBurnSteady",
    "CallsBurnFast",
    "CallsBurnSteady",
    "CallsTruncated",
    "EngineErrors",
    "MarkersInText",
    "EventLoopLate",
}
WORKERS: Final = {
    "ServiceDown",
    "NoData",
    "NoModel",
    "QueueOld",
    "DeadLetters",
    "Overloaded",
}
ENDS_ELSEWHERE: Final = {"ErrorsBurnSlow", "FirstEventBurnSlow", "CallsBurnSlow", "EventLoopLate"}
"""Promtool shows how they end: six hours are twelve minutes here, and loops may be late for other
reasons on a busy machine."""


def until_fired(watched: Watched, wanted: set[str]) -> None:
    missing = set(wanted)
    deadline = time.monotonic() + FAULT_S
    while missing:
        missing -= watched.firing()
        assert time.monotonic() < deadline, missing
        time.sleep(POLL_S)


def until_quiet(watched: Watched, raised: set[str]) -> None:
    deadline = time.monotonic() + FAULT_S
    while still := watched.firing() & raised - ENDS_ELSEWHERE:
        assert time.monotonic() < deadline, still
        time.sleep(POLL_S)


def good(watched: Watched) -> Any:
    def work(number: int) -> None:
        watched.post("call", tools=[POINT], model=("demo", "demo-b")[number % 2])
        time.sleep(0.1)

    return load(2, work)


def test_faults_raise_their_alerts_and_their_end_ends_them(watched: Watched) -> None:
    late = [("late", {"model": model}, 0.1) for model in ("demo", "demo-b") for _ in range(7)]
    faults: list[tuple[str, dict[str, Any], float]] = [
        *late,  # six seconds each: as many as the slots, to be a good part of all answers
        ("break", {}, 0.2),
        ("wrong", {"tools": [FREE]}, 1.5),
        ("stranger", {"tools": [FREE]}, 1.5),
        ("cut", {"tools": [FREE]}, 1.5),
        ("words", {}, 1.5),
    ]

    def work(number: int) -> None:
        case, more, pause_s = faults[number]
        watched.post(case, **more)
        time.sleep(pause_s)

    def stall(_: int) -> None:
        with watched.services["preprocessor"][0].held():
            time.sleep(0.8)
        time.sleep(4)

    with load(len(faults), work), load(1, stall):
        until_fired(watched, QUALITY)
    with good(watched):
        until_quiet(watched, QUALITY)


def test_the_death_of_all_workers_raises_its_alerts_and_new_ones_end_them(
    watched: Watched,
) -> None:
    workers = watched.services["worker"]
    with ExitStack() as flood:

        def work(number: int) -> None:
            watched.post("slow", model="demo", key=("agents", "batch")[number % 2])
            time.sleep(0.2)  # refused ones come again at once

        flood.enter_context(load(64, work))
        until(watched, 'sum(toolrail_postprocessor_waiting_streams{model="demo"}) > 4')
        until_fired(watched, {"Overloaded"})
        workers[0].kill()
        until(watched, "sum(toolrail_worker_running) > 4")
        for worker in workers[1:]:
            worker.kill()
        until_fired(watched, WORKERS - {"Overloaded"})
    for worker in workers:
        worker.start()
    until_healthy(watched.url, {"demo", "demo-b"}, watched.services)
    with good(watched):
        until_quiet(watched, WORKERS)


def until(watched: Watched, query: str) -> None:
    deadline = time.monotonic() + FAULT_S
    while not watched.ask(query):
        assert time.monotonic() < deadline, query
        time.sleep(POLL_S)
