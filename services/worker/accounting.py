"""What is counted and traced of a run when it is over."""

from __future__ import annotations

import time

from opentelemetry.trace import Span

from services.worker.metrics import WorkerMetrics
from services.worker.runs import End, Run
from toolrail.telemetry import semconv


def account(metrics: WorkerMetrics, span: Span, run: Run, end: End) -> None:
    """Count `run`, which ended like that, and say so in its `span`."""
    outcome = run.ending or end.error_code or end.step.finish or "error"
    metrics.runs.labels(outcome).inc()
    metrics.tokens.inc(run.tokens)
    if run.tokens > 1:
        elapsed_s = time.monotonic() - run.first_token_s
        metrics.per_token.observe(elapsed_s / (run.tokens - 1))
    span.set_attribute(semconv.GEN_AI_USAGE_OUTPUT_TOKENS, run.tokens)
    span.set_attribute(semconv.GEN_AI_RESPONSE_FINISH_REASONS, [end.step.finish or "error"])
    if end.step.finish == "error":
        span.set_attribute(semconv.ERROR_TYPE, end.error_code or "engine")
