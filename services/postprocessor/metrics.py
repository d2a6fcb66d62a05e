"""What this service counts. Labels come from closed sets: families, outcomes, reasons."""

from __future__ import annotations

from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.postprocessor.checking import Result
from services.postprocessor.choice import CallOutcome
from services.postprocessor.run import Cause
from services.postprocessor.stream import Dead

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
            "Tool calls that ended, by family and by what became of them.",
            ["family", "outcome"],
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
            "Control markers in visible text: quoted by the model, or leaked by a parser.",
            ["family"],
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
        self._families: set[str] = set()

    def meet(self, family: str) -> None:
        """The series of a family begin at zero with its first stream."""
        if family in self._families:
            return
        self._families.add(family)
        for outcome in get_args(CallOutcome):
            self.calls.labels(family, outcome)
        for result in get_args(Result):
            self.checks.labels(family, result)
        self.markers_in_text.labels(family)
        self.parse_errors.labels(family)
