"""What this service counts. Labels come from closed sets: families, outcomes, reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, TypeAlias, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.postprocessor.checking import Result
from services.postprocessor.choice import Recovery
from services.postprocessor.pace import Line
from services.postprocessor.run import Cause, Drop
from services.postprocessor.stream import Dead
from toolrail.tools import ToolChoice

CallState: TypeAlias = Literal[
    "valid",
    "invalid",
    "unchecked",
    "truncated",
    "malformed",
    "empty",
    "unknown_tool",
    "missing",
]
"""What became of a call; see `choice.CallOutcome`. `valid`: the grammar held its schema, or it was
checked; `invalid`: it was checked and breaks its schema."""

MIGRATION_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 120.0)


class PostprocessorMetrics:
    """One process's series. Counted per frame, per call and per stream, never per token."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.open_streams = Gauge(
            "toolrail_postprocessor_open_streams", "Streams owned now.", registry=registry
        )
        self.streams = Counter(
            "toolrail_postprocessor_streams",
            "Streams that ended, by how: completed, or the code of the failure.",
            ["outcome"],
            registry=registry,
        )
        self.refused = Counter(
            "toolrail_postprocessor_refused",
            "Hand-overs that were not taken, by the code of the failure.",
            ["code"],
            registry=registry,
        )
        self.tokens = Counter(
            "toolrail_postprocessor_tokens", "Ids that came from workers.", registry=registry
        )
        self.frames_in = Counter(
            "toolrail_postprocessor_frames_in", "Frames from workers.", registry=registry
        )
        self.frames_out = Counter(
            "toolrail_postprocessor_frames_out", "Frames to gateways.", registry=registry
        )
        self.dropped = Counter(
            "toolrail_postprocessor_deltas_dropped",
            "Deltas of workers that were not used, by why.",
            ["reason"],
            registry=registry,
        )
        self.taken_over = Counter(
            "toolrail_postprocessor_taken_over",
            "Streams that had another owner before.",
            registry=registry,
        )
        self.wants = Counter(
            "toolrail_postprocessor_resends",
            "Questions to workers for deltas that are missing, or may be.",
            registry=registry,
        )
        self.migrations = Counter(
            "toolrail_postprocessor_migrations",
            "Runs that went on with another worker, by why they left theirs.",
            ["cause"],
            registry=registry,
        )
        self.without_worker = Histogram(
            "toolrail_postprocessor_migration_seconds",
            "From the last ids of the worker that was lost to the first of the next one.",
            buckets=MIGRATION_BUCKETS_S,
            registry=registry,
        )
        self.dead_letters = Counter(
            "toolrail_postprocessor_dead_letters",
            "Requests that nobody could run, by why; each left a record.",
            ["reason"],
            registry=registry,
        )
        self.calls = Counter(
            "toolrail_postprocessor_calls",
            "Tool calls that ended: valid, invalid (breaks its schema), unchecked (nobody looked), "
            "truncated, malformed, empty (lacks all arguments), unknown_tool, missing (was due and "
            "did not come).",
            ["model", "family", "outcome"],
            registry=registry,
        )
        self.recoveries = Counter(
            "toolrail_postprocessor_parser_recoveries",
            "Calls that the end of the output closed instead of their marker (usual for families "
            "without one), and output after a call that was none.",
            ["family", "kind"],
            registry=registry,
        )
        self.checks = Counter(
            "toolrail_postprocessor_checks",
            "Checks of arguments and answers that no grammar held, by family and result.",
            ["family", "result"],
            registry=registry,
        )
        self.markers_in_text = Counter(
            "toolrail_postprocessor_markers_in_text",
            "Control markers in visible text: quoted by the model, or leaked by a parser; under "
            "`none` also calls that no ban kept out.",
            ["family", "tool_choice"],
            registry=registry,
        )
        self.parse_errors = Counter(
            "toolrail_postprocessor_parse_errors",
            "Exceptions while reading output: bugs of ours. Each failed one stream.",
            ["family"],
            registry=registry,
        )
        self.bad_messages = Counter(
            "toolrail_postprocessor_bad_messages",
            "Messages that could not be decoded.",
            registry=registry,
        )
        # A series that begins with its first event has no rate: whoever watches would miss it.
        for cause in get_args(Cause):
            self.migrations.labels(cause)
        for reason in get_args(Dead):
            self.dead_letters.labels(reason)
        for reason in get_args(Drop):
            self.dropped.labels(reason)
        self._met: set[tuple[str, str]] = set()

    @property
    def models(self) -> set[str]:
        """Those that had a stream here."""
        return {model for model, _ in list(self._met)}

    def meet(self, model: str, family: str) -> None:
        """The series of a model and its family begin at zero with the first stream."""
        if (model, family) in self._met:
            return
        self._met.add((model, family))
        for outcome in get_args(CallState):
            self.calls.labels(model, family, outcome)
        for result in get_args(Result):
            self.checks.labels(family, result)
        for kind in get_args(Recovery):
            self.recoveries.labels(family, kind)
        for choice in get_args(ToolChoice):
            self.markers_in_text.labels(family, choice)
        self.parse_errors.labels(family)


class LineCollector(Collector):
    """The line for the workers, read when scraped."""

    def __init__(
        self, metrics: PostprocessorMetrics, lines: Callable[[], Mapping[str, Line]]
    ) -> None:
        self._metrics = metrics
        self._lines = lines

    def collect(self) -> Iterable[Metric]:
        """The lines now; one that is empty, too."""
        waiting = GaugeMetricFamily(
            "toolrail_postprocessor_waiting_streams",
            "Streams of which no worker has begun anything.",
            labels=["model"],
        )
        oldest = GaugeMetricFamily(
            "toolrail_postprocessor_oldest_waiting_seconds",
            "How long the first of them has waited.",
            labels=["model"],
        )
        lines = self._lines()
        for model in self._metrics.models | lines.keys():
            line = lines.get(model, Line())
            waiting.add_metric([model], line.streams)
            oldest.add_metric([model], line.oldest_s)
        yield waiting
        yield oldest
