"""What this process counts. Every label comes from a closed set or from the served models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.gateway.answer import Tally
from toolrail.messages import FailureCode
from toolrail.telemetry import semconv

_REQUEST_BUCKETS_S: Final[Sequence[float]] = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip


FAULTS: Final[Mapping[FailureCode, str]] = {
    "invalid_request": "client",
    "not_found": "client",
    "cancelled": "client",
    "overloaded": "capacity",
    "deadline": "capacity",
    "unavailable": "infrastructure",
    "lost": "infrastructure",
    "engine": "engine",
    "model_output": "model",
    "internal": "toolrail",
}
"""Where to look first for a failure of that code."""


class Meters:
    """The gateway's meters in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.requests = Counter(
            "toolrail_http_requests",
            "Answered requests; status 499: the client left first.",
            ["route", "method", "status"],
            registry=registry,
        )
        self.in_flight = Gauge(
            "toolrail_http_requests_in_flight",
            "Requests being answered.",
            ["route"],
            registry=registry,
        )
        self.duration = Histogram(
            "toolrail_http_request_duration_seconds",
            "From the first byte of a request to the last of its answer.",
            ["route"],
            buckets=_REQUEST_BUCKETS_S,
            registry=registry,
        )
        self.time_to_first_event = Histogram(
            "toolrail_time_to_first_event_seconds",
            "From the last byte of a request to its first event from the engine.",
            ["model"],
            buckets=(*semconv.TIME_TO_FIRST_TOKEN_BUCKETS_S, 30.0, 60.0, 120.0, 300.0),
            registry=registry,
        )
        self.between_chunks = Histogram(
            "toolrail_inter_chunk_seconds",
            "Between two writes of one stream; a write holds all chunks of a wake-up.",
            ["model"],
            buckets=(0.001, 0.0025, 0.005, *semconv.TIME_PER_OUTPUT_TOKEN_BUCKETS_S, 5.0, 10.0),
            registry=registry,
        )
        self.tokens = Counter(
            "toolrail_tokens",
            "Tokens of finished requests; prompt includes cached, completion includes reasoning.",
            ["model", "kind"],
            registry=registry,
        )
        self.finished = Counter(
            "toolrail_choices_finished",
            "Choices by the finish reason that the client saw.",
            ["model", "reason"],
            registry=registry,
        )
        self.calls = Counter(
            "toolrail_tool_calls",
            "Tool calls: `complete` ones were delivered, `incomplete` ones were cut or malformed.",
            ["model", "outcome"],
            registry=registry,
        )
        self.disconnects = Counter(
            "toolrail_client_disconnects",
            "Clients that left, by what they left: the hand-over, the wait or the stream.",
            ["stage"],
            registry=registry,
        )
        self.errors = Counter(
            "toolrail_errors",
            "Failures told to clients: whose fault, of which model (if it came that far), with "
            "which code, and whether output had begun.",
            ["fault", "model", "code", "stage"],
            registry=registry,
        )
        self.refusals = Counter(
            "toolrail_refusals",
            "Requests refused for their API key: missing, unknown, expired, forbidden, or one of "
            "its limits: requests, tokens, concurrency.",
            ["reason"],
            registry=registry,
        )
        self.key_requests = Counter(
            "toolrail_key_requests",
            "Requests let in, by the name of their API key.",
            ["key"],
            registry=registry,
        )
        self.key_answers = Counter(
            "toolrail_key_answers",
            "Answers to requests of known API keys, by the key's name and the status' first digit.",
            ["key", "status"],
            registry=registry,
        )
        self.key_tokens = Counter(
            "toolrail_key_tokens",
            "Tokens of prompts and answers, by the name of the API key.",
            ["key"],
            registry=registry,
        )
        self.take_overs = Counter(
            "toolrail_take_overs",
            "Streams handed to another postprocessor, by whether one took them.",
            ["outcome"],
            registry=registry,
        )
        for outcome in ("done", "failed"):  # a series that begins with its first event has no rate
            self.take_overs.labels(outcome)
        self.background = Gauge(
            "toolrail_background_responses",
            "Responses being generated without a client.",
            registry=registry,
        )
        self.not_stored = Counter(
            "toolrail_responses_not_stored",
            "Responses that were to be stored and are not, by why.",
            ["reason"],
            registry=registry,
        )
        self.bad_frames = Counter(
            "toolrail_undecodable_frames", "Frames that could not be decoded.", registry=registry
        )
        self.internal_errors = Counter(
            "toolrail_internal_errors", "Bugs that became a 500.", registry=registry
        )
        self._met: set[str] = set()
        self.meet("")

    def meet(self, model: str) -> None:
        """The failures of `model` that are not the client's begin at zero: the first counts, too.

        "" stands for those that come before a model was found.
        """
        if model in self._met:
            return
        self._met.add(model)
        for code, fault in FAULTS.items():
            if fault != "client":
                for stage in ("status", "stream"):
                    self.errors.labels(fault, model, code, stage)

    def count(self, model: str, tally: Tally) -> None:
        """Add what one finished request came to."""
        for reason in tally.finish_reasons:
            self.finished.labels(model, reason).inc()
        self.calls.labels(model, "complete").inc(tally.complete_calls)
        self.calls.labels(model, "incomplete").inc(tally.incomplete_calls)
        if tally.usage is not None:
            self.tokens.labels(model, "prompt").inc(tally.usage.prompt_tokens)
            self.tokens.labels(model, "completion").inc(tally.usage.completion_tokens)
            self.tokens.labels(model, "cached").inc(tally.usage.cached_tokens)
            self.tokens.labels(model, "reasoning").inc(tally.usage.reasoning_tokens)
