"""A stack of processes with faults on demand, and the real Prometheus that watches it."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import yaml

from tests.compose.files import COMPOSE
from tests.compose.processes import END_S, process
from tests.e2e.script import hermes
from tests.e2e.tools import ask, tool
from tests.operations.exporter import NatsExporter
from toolrail.api_keys import hash_of, new_key
from toolrail.bus.embedded import EmbeddedNats

START_S: Final = 240.0
POLL_S: Final = 0.5
TIMEOUT_S: Final = 90.0
KEYS: Final = ("agents", "batch", "careless")
DURATION: Final = re.compile(r"\b(\d+)([smhd])\b")
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
TLS: Final = ssl.create_default_context()
"""One for all clients: to make it costs more than a request."""

POINT_SCHEMA: Final = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "label": {"type": "string", "pattern": "^[a-z]+$"}},
    "required": ["x"],
}
POINT: Final = tool("point", POINT_SCHEMA, strict=None)
FREE: Final = tool("point", POINT_SCHEMA, strict=False)
"""Its arguments are not held, only checked."""

# The template's own words, tools among them, are part of the prompt: hence `case`.
SCRIPT: Final[Sequence[Mapping[str, Any]]] = [
    {"match": "case break", "token_ids": [], "finish": "error"},
    {"match": "case wrong", "text": hermes("point", {"x": "no"}), "chunk_tokens": 4},
    {"match": "case nothing", "text": hermes("point", {}), "chunk_tokens": 4},
    {"match": "case stranger", "text": hermes("pint", {"x": 1}), "chunk_tokens": 4},
    {"match": "case odd", "text": hermes("point", {"x": 1}).replace("1", "one") + " and on"},
    {"match": "case cut", "text": hermes("point", {"x": 1})[:30], "finish": "length"},
    {"match": "case call", "text": hermes("point", {"x": 1}), "chunk_tokens": 2, "delay_ms": 5},
    {"match": "case late", "text": "At last.", "ttft_ms": 6000},
    {"match": "case slow", "text": "word " * 400, "chunk_tokens": 1, "delay_ms": 40},
    {"match": "case drip", "text": "word " * 40, "chunk_tokens": 1, "delay_ms": 200},
    # With logprobs, a few megabytes a second: more than is kept for a bus that is away.
    {
        "match": "case flood",
        "text": "word " * 2500,
        "chunk_tokens": 100,
        "delay_ms": 60,
        "ttft_ms": 4000,
    },
    {"match": "case talk", "text": "Some words, one by one. " * 4, "delay_ms": 10, "ttft_ms": 60},
    {"match": "", "text": "Some words and <think> in the middle of them.", "chunk_tokens": 1},
]


LOCAL_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given: set[int] = set()


def lasting_port() -> int:
    """A free port that stays free while who listens there is dead.

    It is below those that the kernel gives to connections: one that it gave away could not be
    listened on again, and who calls a dead server at such a port may be connected to himself.
    """
    lowest = int(LOCAL_PORTS.read_text("ascii").split()[0])
    for port in random.sample(range(max(1024, lowest - 10_000), lowest), 200):
        with socket.socket() as probe, suppress(OSError):
            if port not in _given:
                probe.bind(("127.0.0.1", port))
                _given.add(port)
                return port
    raise AssertionError(f"no free port below {lowest}")


def program(name: str) -> str:
    """Where Debian's package has put it."""
    found = shutil.which(name)
    assert found, f"{name} is missing: install Debian's package prometheus"
    return found


@dataclass(frozen=True)
class Pace:
    """How much faster than in life the time of rules runs, so that minutes are seconds.

    by: what windows and waits are divided by.
    longest_s: none is longer then; hours and days are as short as the tests.
    of: alerts with a divisor of their own.
    """

    by: int
    longest_s: float = math.inf
    of: Mapping[str, int] = field(default_factory=dict[str, int])


def scaled(rules: Mapping[str, Any], pace: Pace) -> dict[str, Any]:
    """The rules at that pace. Thresholds stay as they are, those in seconds too."""
    made: dict[str, Any] = json.loads(json.dumps(rules))
    for rule in (rule for group in made["groups"] for rule in group["rules"]):
        by = pace.of.get(rule.get("alert", ""), pace.by)

        def shorter(match: re.Match[str], by: int = by) -> str:
            life_s = int(match[1]) * SECONDS[match[2]]
            return f"{round(1000 * min(life_s / by, pace.longest_s))}ms"

        rule["expr"] = re.sub(
            r"(?<=\[)[^\]]+(?=\])|(?<=offset )\w+",
            lambda found, shorter=shorter: DURATION.sub(shorter, found[0]),
            rule["expr"],
        )
        if "for" in rule:
            rule["for"] = DURATION.sub(shorter, rule["for"])
    return made


@dataclass
class Service:
    """One process of a service, which can be killed and started again at the same address."""

    name: str
    port: int
    command: list[str]
    environment: dict[str, str]
    log: Path
    running: subprocess.Popen[bytes] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        """Start it; the end of the stack stops it."""
        log = self.log.with_suffix(f".{time.monotonic_ns()}.log")
        self.running = self._stack.enter_context(process(self.command, self.environment, log))

    def kill(self) -> None:
        """End it without a word."""
        assert self.running is not None
        self.running.kill()
        self.running.wait(END_S)

    def end(self) -> None:
        """Tell it to stop."""
        if self.running is not None and self.running.poll() is None:
            self.running.terminate()

    def stop(self) -> None:
        """End whatever of it runs."""
        self._stack.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """It does nothing during the block, as when it gets no CPU."""
        assert self.running is not None
        os.kill(self.running.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.running.pid, signal.SIGCONT)


@dataclass
class Watched:
    """A running stack, and the Prometheus that watches it."""

    api: httpx.Client
    url: str
    services: dict[str, list[Service]]
    keys: dict[str, str]
    bus: EmbeddedNats
    exporter: NatsExporter

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The answer of Prometheus, now."""
        answer = self.api.get("/api/v1/query", params={"query": query})
        assert answer.status_code == 200, (query, answer.text)
        return answer.json()["data"]["result"]

    def ask_range(self, query: str, start_s: float, end_s: float, step_s: float) -> Any:
        """Its answers over time."""
        params = {"query": query, "start": start_s, "end": end_s, "step": step_s}
        answer = self.api.get("/api/v1/query_range", params=params)
        assert answer.status_code == 200, (query, answer.text)
        return answer.json()["data"]["result"]

    def firing(self) -> set[str]:
        """Names of the alerts that fire now."""
        found = self.ask('ALERTS{alertstate="firing"}')
        return {each["metric"]["alertname"].removeprefix("Toolrail") for each in found}

    @contextmanager
    def client(self, key: str = "agents") -> Iterator[httpx.Client]:
        """A client of the gateway."""
        headers = {"authorization": f"Bearer {self.keys[key]}"}
        with httpx.Client(
            base_url=self.url, timeout=TIMEOUT_S, headers=headers, verify=TLS
        ) as client:
            yield client

    def post(
        self, case: str, key: str = "agents", timeout_s: float = TIMEOUT_S, **more: Any
    ) -> int:
        """The status of a request of that case in the script; 0 where the connection broke.

        The client leaves after `timeout_s`.
        """
        body = ask(f"case {case}", **more)
        with self.client(key) as client, suppress(httpx.TransportError):
            answer = client.post("/v1/chat/completions", json=body, timeout=timeout_s)
            return answer.status_code
        return 0

    def knock(self) -> int:
        """The status of a request with a key that nobody knows."""
        with (
            httpx.Client(base_url=self.url, timeout=TIMEOUT_S, verify=TLS) as client,
            suppress(httpx.TransportError),
        ):
            return client.get("/v1/models", headers={"authorization": "Bearer no"}).status_code
        return 0

    def leave(self, case: str) -> None:
        """Take a few lines of a stream, and leave."""
        body = ask(f"case {case}", stream=True)
        with (
            self.client() as client,
            suppress(httpx.TransportError),
            client.stream("POST", "/v1/chat/completions", json=body) as response,
        ):
            for number, _ in enumerate(response.iter_lines()):
                if number > 6:
                    return


@contextmanager
def load(threads: int, work: Callable[[int], None]) -> Iterator[None]:
    """`work` with the thread's number, again and again in threads, during the block."""
    over = threading.Event()

    def run(number: int) -> None:
        while not over.is_set():
            work(number)

    running = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in running:
            thread.join(120)


@contextmanager
def watched(
    folder: Path, pace: Pace, *, settings: Mapping[str, str], exporter: bool = False
) -> Iterator[Watched]:
    """The stack: all services, two workers of one model and one of another, and Prometheus.

    The other one has many slots. `settings`: of all services, as variables. `exporter`: whether
    Prometheus is told of NATS.
    """
    script = folder / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), "utf-8")
    keys, records = {}, []
    for name in KEYS:
        keys[name], key_id = new_key()
        records.append({"id": key_id, "name": name, "hash": hash_of(keys[name])})
    (folder / "keys.json").write_text(json.dumps({"keys": records}), "utf-8")
    with ExitStack() as running:
        bus = EmbeddedNats(folder / "nats", lasting_port(), monitoring=True)
        running.callback(lambda: anyio.run(bus.stop))
        anyio.run(bus.start, START_S)
        watcher = NatsExporter(bus, lasting_port())
        running.callback(watcher.stop)
        if exporter:
            watcher.start()
        gateway_port = lasting_port()
        engine = ["--engine", "scripted", "--script", str(script)]
        wanted = [
            (
                "gateway",
                ["--port", str(gateway_port), "--api-keys-file", str(folder / "keys.json")],
            ),
            ("preprocessor", []),
            ("postprocessor", []),
            ("worker", engine),
            ("worker", engine),
            ("worker", [*engine, "--served-model-name", "demo-b", "--slots", "64"]),
        ]
        services: dict[str, list[Service]] = {}
        for number, (name, flags) in enumerate(wanted):
            port = lasting_port()
            environment = {
                "TOOLRAIL_NATS_URL": bus.url,
                "TOOLRAIL_METRICS_PORT": str(port),
                "TOOLRAIL_LOG_FORMAT": "json",
                **settings,
            }
            command = ["-m", f"services.{name}", *flags]
            log = folder / f"{name}-{number}"
            one = Service(name, port, command, environment, log)
            running.callback(one.stop)
            one.start()
            services.setdefault(name, []).append(one)
        # All at once: one after another would be six drains.
        running.callback(lambda: [one.end() for some in services.values() for one in some])
        prometheus_port = lasting_port()
        others = {"nats": watcher.port} if exporter else {}
        running.enter_context(prometheus(folder, prometheus_port, services, others, pace))
        api = running.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{prometheus_port}", timeout=60)
        )
        gateway_url = f"http://127.0.0.1:{gateway_port}"
        until_healthy(gateway_url, {"demo", "demo-b"}, services)
        yield Watched(api, gateway_url, services, keys, bus, watcher)


def prometheus(
    folder: Path,
    port: int,
    services: Mapping[str, Sequence[Service]],
    others: Mapping[str, int],
    pace: Pace,
) -> Any:
    """With our rules and our way to name services; only discovery by DNS is replaced.

    `others`: ports of what else is asked, by the names of their jobs.
    """
    config = yaml.safe_load((COMPOSE / "prometheus/prometheus.yml").read_text("utf-8"))
    (job,) = (job for job in config["scrape_configs"] if job["job_name"] == "toolrail")
    job.pop("dns_sd_configs")
    job.pop("relabel_configs")
    job["static_configs"] = [
        {"targets": [f"127.0.0.1:{one.port}" for one in some], "labels": {"service": name}}
        for name, some in services.items()
    ]
    rules = yaml.safe_load((COMPOSE / "prometheus/alerts.yml").read_text("utf-8"))
    (folder / "alerts.yml").write_text(yaml.safe_dump(scaled(rules, pace)), "utf-8")
    wanted = [one for one in config["scrape_configs"] if one["job_name"] in others]
    for one in wanted:
        one["static_configs"] = [{"targets": [f"127.0.0.1:{others[one['job_name']]}"]}]
    config["scrape_configs"] = [job, *wanted]
    config["rule_files"] = [str(folder / "alerts.yml")]
    # As in the stack where times are as there. A scrape may take as long as the interval.
    interval = "5s" if pace.by == 1 else "2s"
    config["global"] = {"scrape_interval": interval, "evaluation_interval": interval}
    config["global"]["scrape_timeout"] = interval
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


def until_healthy(url: str, models: set[str], services: Mapping[str, Sequence[Service]]) -> None:
    """Until the gateway serves these models.

    What gives up its start, as on a machine that is too busy, is started again, as by a supervisor.
    """
    deadline = time.monotonic() + START_S
    while True:
        with suppress(httpx.TransportError, ValueError):
            if set(httpx.get(f"{url}/health", timeout=10).json()["models"]) == models:
                return
        for one in (one for some in services.values() for one in some):
            if one.running is not None and one.running.poll() is not None:
                one.start()
        if time.monotonic() > deadline:
            folder = services["gateway"][0].log.parent
            logs = "\n".join(p.read_text(errors="replace")[-1500:] for p in folder.glob("*.log"))
            raise AssertionError(logs)
        time.sleep(POLL_S)
