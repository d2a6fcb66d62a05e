"""Our rules and dashboards in a real Prometheus, over a running stack with mixed traffic.

The tests of faults raise alerts one after another and go on at once: the last one waits until none
of them fires, which takes as long as the longest window, once.
"""

from __future__ import annotations

import itertools
import re
import runpy
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import anyio
import pytest
import yaml

from tests import otlp
from tests.compose.files import COMPOSE
from tests.compose.test_dashboards import FOREIGN, OF_VLLM, series
from tests.operations.watched import (
    FREE,
    POINT,
    POLL_S,
    START_S,
    Pace,
    Watched,
    load,
    program,
    until_healthy,
)
from tests.operations.watched import watched as watched_stack

pytestmark = pytest.mark.operations

DATA_S: Final = 300.0
FAULT_S: Final = 300.0
"""On a machine of two busy cores; alone it takes a third of it."""
AGAIN_S: Final = 30.0
"""What a fault is given to raise its alerts before it is made again."""
PACE: Final = Pace(30, longest_s=60, of={"ToolrailRestarts": 10})
"""Five minutes are ten seconds, and hours and days are a minute; that one leaves a busy machine the
time to start processes twice."""
MADE = runpy.run_path(str(COMPOSE / "grafana" / "make_dashboards.py"))
RULES = COMPOSE / "prometheus/alerts.yml"
HERE: Final = {"ALERTS", "up", "gnatsd_varz_slow_consumers"}
"""Series of others that are here."""

SETTINGS: Final = {
    "TOOLRAIL_WORKER_WAIT_S": "40",
    "TOOLRAIL_MIGRATION_LIMIT": "10",
    "TOOLRAIL_MAX_WAITING_PER_SLOT": "1",
    "TOOLRAIL_STRUCTURAL_TAG": '{"custom_grammars": true}',
    "TOOLRAIL_TRACE_SAMPLE_RATIO": "0.2",
    "TOOLRAIL_AUDIT": "otlp",
    "TOOLRAIL_AUDIT_CONTENT": "none",
    "TOOLRAIL_AUDIT_RETRY_S": "3",
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
def collector() -> Iterator[otlp.Receiver]:
    """What takes spans and audit records."""
    with otlp.receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory, collector: otlp.Receiver
) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    settings = SETTINGS | {"TOOLRAIL_OTLP_ENDPOINT": collector.url}
    with watched_stack(folder, PACE, settings=settings, exporter=True) as made:
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
    empty: dict[str, str] = {}
    for dashboard in MADE["DASHBOARDS"]:
        for panel in dashboard.panels:
            for legend, query in panel.queries.items():
                foreign = series(query) & (FOREIGN - HERE) or OF_VLLM.search(query)
                if panel.source != "prometheus" or foreign:
                    continue  # neither vLLM nor the whole of NATS' exporter runs here
                asked = filled(query, "30s")
                empty[f"{dashboard.uid}: {panel.title}: {legend}"] = asked
    assert len(empty) > 80
    deadline = time.monotonic() + DATA_S
    while empty:
        a_round(watched)
        empty = {name: query for name, query in empty.items() if not watched.ask(query)}
        assert time.monotonic() < deadline, empty


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
    "FirstEventBurnSlow",
    "CallsBurnFast",
    "CallsBurnSteady",
    "CallsBurnSlow",
    "CallsTruncated",
    "CompileRefusals",
    "EngineErrors",
    "MarkersInText",
    "EventLoopLate",
    "SpansLost",
    "AuditRecordsLost",
}
WORKERS: Final = {
    "ServiceDown",
    "NoData",
    "NoModel",
    "QueueOld",
    "DeadLetters",
    "Overloaded",
}
MOVES: Final = {"Migrations", "Redeliveries", "Restarts"}
BUS: Final = {"BusSlow", "BusDrops", "SlowConsumer", "WatcherDown"}
LIVE: Final = QUALITY | WORKERS | MOVES | BUS

PROMTOOL_ALONE: Final = {"ParserBug", "CacheFull", "PrefixHitsFell"}
"""A bug that we do not know of, and series of an engine that does not run here."""
ENDS_ELSEWHERE: Final = {"EventLoopLate"}
"""Promtool shows how it ends: loops may be late for other reasons on a busy machine."""


def until(watched: Watched, query: str) -> None:
    deadline = time.monotonic() + FAULT_S
    while not watched.ask(query):
        assert time.monotonic() < deadline, query
        time.sleep(POLL_S)


def missing(watched: Watched, wanted: set[str], wait_s: float) -> set[str]:
    """Those of `wanted` that did not fire within `wait_s`."""
    deadline = time.monotonic() + wait_s
    left = set(wanted)
    while left := left - watched.firing():
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    return left


def until_fired(watched: Watched, wanted: set[str]) -> None:
    left = missing(watched, wanted, FAULT_S)
    assert not left, left


def test_all_alerts_are_raised_here_or_said_not_to_be() -> None:
    assert not LIVE & PROMTOOL_ALONE
    assert alerts() == {f"Toolrail{name}" for name in LIVE | PROMTOOL_ALONE}


def test_the_death_of_all_workers_raises_its_alerts(watched: Watched) -> None:
    workers = watched.services["worker"]
    with ExitStack() as flood:

        def work(number: int) -> None:
            watched.post("slow", model="demo", key=("agents", "batch")[number % 2])
            time.sleep(1)  # refused ones come again soon

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


def test_workers_that_die_again_and_again_raise_their_alerts(watched: Watched) -> None:
    """One of them with streams under way, and with jobs that it has not begun."""
    workers = watched.services["worker"]
    busy = f'toolrail_worker_running{{instance="127.0.0.1:{workers[-1].port}"}} > 45'

    def work(number: int) -> None:
        watched.post("late" if number < 24 else "drip", model="demo-b")
        time.sleep(0.1)

    def again() -> None:
        for worker in workers:
            worker.kill()
        until(watched, 'sum(up{service="worker"}) == 0')
        for worker in workers:
            worker.start()
        until(watched, f'sum(up{{service="worker"}}) == {len(workers)}')

    deadline = time.monotonic() + FAULT_S
    left = MOVES - {"Restarts"}
    with load(60, work):
        while left:
            until(watched, busy)
            again()
            left = missing(watched, left, AGAIN_S)
            assert time.monotonic() < deadline, left
    while missing(watched, {"Restarts"}, 3 * POLL_S):
        again()
        assert time.monotonic() < deadline
    until_healthy(watched.url, {"demo", "demo-b"}, watched.services)


def test_a_bus_that_dies_and_a_client_that_does_not_read_raise_their_alerts(
    watched: Watched,
) -> None:
    with unread(watched) as send:
        deadline = time.monotonic() + FAULT_S
        while not watched.exporter.numbers().get("slow_consumers"):
            send()
            assert time.monotonic() < deadline
    until_fired(watched, {"SlowConsumer"})

    def work(_: int) -> None:
        watched.post("flood", model="demo-b", logprobs=True, top_logprobs=20, timeout_s=10)
        time.sleep(0.5)

    deadline = time.monotonic() + FAULT_S
    left = BUS - {"SlowConsumer"}
    while left:
        with load(32, work):
            until(watched, "sum(toolrail_worker_running) > 20")
            watched.bus.kill()
            watched.exporter.stop()
            left = missing(watched, left, AGAIN_S)
        watched.exporter.start()
        anyio.run(watched.bus.start, START_S)
        until_healthy(watched.url, {"demo", "demo-b"}, watched.services)
        assert time.monotonic() < deadline, left


@contextmanager
def unread(watched: Watched) -> Iterator[Callable[[], None]]:
    """A client of the bus that reads nothing, and what sends it seven megabytes."""
    address = ("127.0.0.1", watched.bus.port)
    hello = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
    payload = b"x" * (7 << 20)
    with (
        socket.create_connection(address, timeout=FAULT_S) as reader,
        socket.create_connection(address, timeout=FAULT_S) as writer,
    ):
        reader.sendall(hello + b"SUB unread 1\r\nPING\r\n")
        heard = b""
        while b"PONG" not in heard:
            heard += reader.recv(4096)
            assert heard
        writer.sendall(hello)
        yield lambda: writer.sendall(b"PUB unread %d\r\n%b\r\n" % (len(payload), payload))


def test_faults_of_quality_raise_their_alerts(watched: Watched, collector: otlp.Receiver) -> None:
    late = [("late", {"model": model}, 0.1) for model in ("demo", "demo-b") for _ in range(7)]
    faults: list[tuple[str, dict[str, Any], float]] = [
        *late,  # six seconds each, to be a good part of all answers
        ("break", {}, 0.2),
        ("wrong", {"tools": [FREE]}, 1.5),
        ("stranger", {"tools": [FREE]}, 1.5),
        ("cut", {"tools": [FREE]}, 1.5),
        ("words", {}, 1.5),
    ]
    numbers = itertools.count()

    def work(number: int) -> None:
        case, more, pause_s = faults[number]
        watched.post(case, **more)
        time.sleep(pause_s)

    def stall(_: int) -> None:
        with watched.services["preprocessor"][0].held():
            time.sleep(0.8)
        time.sleep(4)

    def refused(_: int) -> None:
        watched.post("words", tools=[hostile(next(numbers))], key="careless")
        time.sleep(1)

    collector.status = 403
    try:
        with load(len(faults), work), load(1, stall), load(1, refused):
            until_fired(watched, QUALITY)
    finally:
        collector.status = 200


def hostile(number: int) -> dict[str, Any]:
    """A tool whose grammar costs the more, the longer its text; another one for each number."""
    lark = f'start: "{number}" a b a b\na: "a"*\nb: "a"*'
    grammar = {"syntax": "lark", "definition": lark}
    return {
        "type": "custom",
        "custom": {"name": "code", "format": {"type": "grammar", "grammar": grammar}},
    }


def test_all_that_was_raised_ends_with_its_fault(watched: Watched) -> None:
    def good(number: int) -> None:
        watched.post("call", tools=[POINT], model=("demo", "demo-b")[number % 2])
        time.sleep(0.1)

    raised = watched.ask('count by (alertname) (max_over_time(ALERTS{alertstate="firing"}[1h]))')
    names = {each["metric"]["alertname"].removeprefix("Toolrail") for each in raised}
    assert names >= LIVE, "the tests before this one raise them"
    deadline = time.monotonic() + FAULT_S
    with load(2, good):
        while still := watched.firing() & LIVE - ENDS_ELSEWHERE:
            assert time.monotonic() < deadline, still
            time.sleep(POLL_S)
