"""Our rules and dashboards in a real Prometheus, over a running stack with mixed traffic."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from benchmarks.processes import free_port
from tests.compose.files import COMPOSE, OURS
from tests.compose.processes import END_S, nats, process
from tests.compose.test_dashboards import FOREIGN, series
from tests.e2e.script import hermes
from tests.e2e.tools import SCHEMAS, ask, tool

pytestmark = pytest.mark.operations

START_S = 120.0
DATA_S = 120.0
POLL_S = 0.5
MADE = runpy.run_path(str(COMPOSE / "grafana" / "make_dashboards.py"))

SCRIPT = [
    {"match": "break", "token_ids": [], "finish": "error"},
    {"match": "cut", "text": hermes("point", {"x": 1})[:30], "finish": "length"},
    {"match": "call", "text": hermes("point", {"x": 1, "y": 2}), "chunk_tokens": 1},
    {"match": "slow", "text": "word " * 400, "chunk_tokens": 1, "delay_ms": 30},
    {"match": "", "text": "Some words and <tool_call> in the middle of them.", "chunk_tokens": 1},
]
POINT = tool("point", SCHEMAS["nested_object"])


def program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is missing: install Debian's package prometheus"
    return found


def test_each_alert_fires_for_its_fault_and_not_without() -> None:
    done = subprocess.run(
        [program("promtool"), "test", "rules", "alerts_test.yml"],
        cwd=COMPOSE / "prometheus",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rules = yaml.safe_load((COMPOSE / "prometheus/alerts.yml").read_text("utf-8"))
    tests = yaml.safe_load((COMPOSE / "prometheus/alerts_test.yml").read_text("utf-8"))
    alerts = {r["alert"] for group in rules["groups"] for r in group["rules"] if "alert" in r}
    fired = {
        each["alertname"]
        for one in tests["tests"]
        for each in one["alert_rule_test"]
        if each["exp_alerts"]
    }
    assert fired == alerts


@dataclass
class Watched:
    """A stack under load, and the Prometheus that watches it."""

    api: httpx.Client
    workers: list[subprocess.Popen[bytes]]
    gateway_url: str

    def ask(self, query: str) -> list[dict[str, Any]]:
        answer = self.api.get("/api/v1/query", params={"query": query})
        assert answer.status_code == 200, (query, answer.text)
        return answer.json()["data"]["result"]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    script = folder / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), "utf-8")
    with ExitStack() as running:
        url = running.enter_context(nats(folder / "nats"))
        gateway_port = free_port()
        targets: dict[str, list[str]] = {service: [] for service in OURS}
        flags = {
            "worker": ["--engine", "scripted", "--script", str(script)],
            "gateway": ["--port", str(gateway_port)],
        }
        workers = []
        for number, service in enumerate([*OURS, "worker"]):
            port = free_port()
            targets[service].append(f"127.0.0.1:{port}")
            command = ["-m", f"services.{service}", *flags.get(service, [])]
            environment = {"TOOLRAIL_NATS_URL": url, "TOOLRAIL_METRICS_PORT": str(port)}
            log = folder / f"{service}-{number}.log"
            one = running.enter_context(process(command, environment, log))
            if service == "worker":
                workers.append(one)
        prometheus_port = free_port()
        running.enter_context(prometheus(folder, prometheus_port, targets))
        api = running.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{prometheus_port}", timeout=30)
        )
        gateway_url = f"http://127.0.0.1:{gateway_port}"
        until_healthy(gateway_url, folder)
        yield Watched(api, workers, gateway_url)


def prometheus(folder: Path, port: int, targets: dict[str, list[str]]) -> Any:
    """With our rules and our way to name services; only discovery by DNS is replaced."""
    config = yaml.safe_load((COMPOSE / "prometheus/prometheus.yml").read_text("utf-8"))
    (job,) = (job for job in config["scrape_configs"] if job["job_name"] == "toolrail")
    job.pop("dns_sd_configs")
    job.pop("relabel_configs")
    job["static_configs"] = [
        {"targets": listed, "labels": {"service": service}} for service, listed in targets.items()
    ]
    config["scrape_configs"] = [job]
    config["rule_files"] = [str(COMPOSE / "prometheus/alerts.yml")]
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")
    command = [
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
    ]
    return process(
        ["-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])", *command],
        {},
        folder / "prometheus.log",
    )


def until_healthy(url: str, folder: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", timeout=10).status_code == 200:
                return
        if time.monotonic() > deadline:
            logs = "\n".join(p.read_text(errors="replace")[-1500:] for p in folder.glob("*.log"))
            raise AssertionError(logs)
        time.sleep(POLL_S)


def traffic(url: str) -> None:
    """A round of every kind of outcome."""
    strict = POINT | {"function": POINT["function"] | {"strict": False}}
    with httpx.Client(base_url=url, timeout=60) as client:

        def post(text: str, **more: Any) -> int:
            return client.post("/v1/chat/completions", json=ask(text, **more)).status_code

        assert post("words") == 200
        assert post("call it", tools=[POINT]) == 200
        assert post("call it", tools=[strict]) == 200
        assert post("cut it", tools=[POINT]) == 200
        assert post("words", model="absent") == 404
        assert post("words", temperature=9) == 400
        assert post("break down") == 500
        with client.stream(
            "POST", "/v1/chat/completions", json=ask("slow", stream=True)
        ) as response:
            for number, _ in enumerate(response.iter_lines()):
                if number > 6:
                    break  # and leave


def until_told(watched: Watched, queries: dict[str, str]) -> None:
    """Until each query has an answer, under traffic."""
    missing = dict(queries)
    deadline = time.monotonic() + DATA_S
    while True:
        traffic(watched.gateway_url)
        missing = {name: query for name, query in missing.items() if not watched.ask(query)}
        if not missing:
            return
        assert time.monotonic() < deadline, missing
        time.sleep(POLL_S)


def test_every_panel_has_data(watched: Watched) -> None:
    queries = {}
    for dashboard in MADE["DASHBOARDS"]:
        for panel in dashboard.panels:
            for legend, query in panel.queries.items():
                if panel.source != "prometheus" or series(query) & FOREIGN:
                    continue  # the NATS exporter is not to be had here
                for name, value in (
                    ("$__rate_interval", "30s"),
                    ("$model", ".*"),
                    ("$family", ".*"),
                ):
                    query = query.replace(name, value)  # noqa: PLW2901
                queries[f"{dashboard.uid}: {panel.title}: {legend}"] = query
    assert len(queries) > 45
    until_told(watched, queries)


def test_faults_of_a_running_stack_raise_their_alerts(watched: Watched) -> None:
    """That each also ends, `alerts_test.yml` shows without waiting for it."""

    def firing(name: str) -> list[dict[str, Any]]:
        alerts = watched.api.get("/api/v1/alerts").json()["data"]["alerts"]
        return [each for each in alerts if each["labels"]["alertname"] == name]

    deadline = time.monotonic() + DATA_S
    while not firing("ToolrailErrorsBurnFast"):
        traffic(watched.gateway_url)  # one in seven of those that count fails
        assert time.monotonic() < deadline
    watched.workers[-1].kill()
    watched.workers[-1].wait(END_S)
    while not [each for each in firing("ToolrailServiceDown") if each["state"] == "pending"]:
        assert time.monotonic() < deadline + DATA_S
        time.sleep(POLL_S)
    down = firing("ToolrailServiceDown")
    assert {each["labels"]["service"] for each in down} == {"worker"}
