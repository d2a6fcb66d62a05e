"""What this service counts. Labels come from closed sets: stages, outcomes, codes."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from time import perf_counter
from typing import Final, Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from services.preprocessor.compile_check import CompileStats
from services.preprocessor.constraining import Settled
from services.preprocessor.models import ServedModel
from toolrail.openai.chat import ChatRequest

Stage: TypeAlias = Literal["parse", "render", "tokenize", "constrain", "hand_over"]

_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class PreprocessorMetrics:
    """One process's series, counted per request."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "toolrail_preprocessor_requests",
            "Requests, by what became of them: accepted, or the code of the failure.",
            ["outcome"],
            registry=registry,
        )
        self.held_by = Counter(
            "toolrail_preprocessor_held_by",
            "Accepted requests, by what holds their output, and by their tool choice.",
            ["family", "kind", "tool_choice"],
            registry=registry,
        )
        self.calls_forbidden = Counter(
            "toolrail_preprocessor_calls_forbidden",
            "Accepted requests that offer tools under `tool_choice: none`: whether the prompt "
            "shows the tools (kept: its prefix stays) and whether the grammar bans calls of them.",
            ["family", "tools", "calls"],
            registry=registry,
        )
        self.relaxed = Counter(
            "toolrail_preprocessor_relaxed_schemas",
            "Schemas of callable tools that no grammar holds.",
            registry=registry,
        )
        self.keywords = Counter(
            "toolrail_preprocessor_keywords",
            "Keywords of the schemas of accepted requests, by what becomes of them.",
            ["family", "status"],
            registry=registry,
        )
        self.stages = Histogram(
            "toolrail_preprocessor_stage_seconds",
            "Wall time of one step of preparing a request.",
            ["stage"],
            buckets=_SECONDS,
            registry=registry,
        )

    @contextmanager
    def stage(self, name: Stage) -> Generator[None]:
        """Times a step, whether it succeeds or not."""
        begun = perf_counter()
        try:
            yield
        finally:
            self.stages.labels(name).observe(perf_counter() - begun)

    def accepted(self, settled: Settled, request: ChatRequest, model: ServedModel) -> None:
        """Counts a request that went on to `model`."""
        report, choice = settled.constraint.report, request.choice.mode
        family = model.dialect.family.name if model.dialect.family is not None else "none"
        self.requests.labels("accepted").inc()
        self.held_by.labels(family, report.held_by, choice).inc()
        self.relaxed.inc(sum(tool.free_because is not None for tool in report.tools))
        for status, count in settled.keywords.items():
            self.keywords.labels(family, status).inc(count)
        if choice == "none" and request.tools:
            tools = "excluded" if model.deployment.exclude_tools_when_none else "kept"
            calls = "banned" if report.held_by == "structural_tag" else "free"
            self.calls_forbidden.labels(family, tools, calls).inc()


class CompileCollector(Collector):
    """The compile check's counts, read when scraped."""

    def __init__(self, stats: CompileStats) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """The counts now."""
        checks = CounterMetricFamily(
            "toolrail_preprocessor_compile_checks",
            "Compile checks, by how they were answered.",
            labels=["answer"],
        )
        for answer in ("hits", "joined", "compiled", "refused"):
            checks.add_metric([answer], getattr(self._stats, answer))
        yield checks
        yield CounterMetricFamily(
            "toolrail_preprocessor_compile_processes_replaced",
            "Compile processes that were killed, died or retired.",
            self._stats.replaced,
        )
