"""What a worker counts, and the engine's own series beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, get_args

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from services.worker.burying import Reason
from services.worker.runs import Run
from toolrail.telemetry import semconv

QUEUE_WAIT_BUCKETS_S: Final = (
    0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip


class WorkerMetrics:
    """One worker's series. Counting never happens per token, only per delta and per run."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.runs = Counter(
            "toolrail_worker_runs",
            "Jobs that left this worker, by how.",
            ["outcome"],
            registry=registry,
        )
        self.dead_letters = Counter(
            "toolrail_worker_dead_letters",
            "Jobs that could not be run, by why; each left a record.",
            ["reason"],
            registry=registry,
        )
        self.redelivered = Counter(
            "toolrail_worker_redeliveries",
            "Deliveries of jobs that had been delivered before: their worker died or went silent.",
            registry=registry,
        )
        self.running = Gauge(
            "toolrail_worker_running", "Jobs that hold a slot now.", registry=registry
        )
        self.slots = Gauge("toolrail_worker_slots", "Jobs that fit at once.", registry=registry)
        self.tokens = Counter(
            "toolrail_worker_output_tokens", "Ids sent to postprocessors.", registry=registry
        )
        self.queue_wait = Histogram(
            "toolrail_worker_queue_wait_seconds",
            "How long a job waited for its turn and in the queue, until its first delivery; the "
            "latter is between two machines' clocks.",
            buckets=QUEUE_WAIT_BUCKETS_S,
            registry=registry,
        )
        self.first_token = Histogram(
            "toolrail_worker_time_to_first_token_seconds",
            "From taking a job off the queue to its first id.",
            buckets=semconv.TIME_TO_FIRST_TOKEN_BUCKETS_S,
            registry=registry,
        )
        self.per_token = Histogram(
            "toolrail_worker_time_per_output_token_seconds",
            "Mean time between the ids of one run, first id excluded.",
            buckets=semconv.TIME_PER_OUTPUT_TOKEN_BUCKETS_S,
            registry=registry,
        )
        # Alerts ask how these rise, and a series that begins with its first event has not risen.
        self.runs.labels("engine")
        for reason in get_args(Reason):
            self.dead_letters.labels(reason)

    def took(self, run: Run) -> None:
        """Count a delivery. Only the first of a job says how long the line is."""
        if run.item.deliveries > 1:
            self.redelivered.inc()
        else:
            self.queue_wait.observe(run.waited_s())


class EngineSeries(Collector):
    """The series that vLLM keeps in the process-wide registry, for the worker's own registry."""

    def collect(self) -> Iterable[Metric]:
        """All series named `vllm:…`, as they stand."""
        for metric in prometheus_client.REGISTRY.collect():
            if metric.name.startswith("vllm:"):
                yield metric
