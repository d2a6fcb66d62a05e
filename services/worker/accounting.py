"""What is counted of a run when it is over."""

from __future__ import annotations

import time

from services.worker.metrics import WorkerMetrics
from services.worker.runs import End, Run


def account(metrics: WorkerMetrics, run: Run, end: End) -> None:
    """Count `run`, which ended like that."""
    outcome = run.ending or end.error_code or end.step.finish or "error"
    metrics.runs.labels(outcome).inc()
    metrics.tokens.inc(run.tokens)
    if run.tokens > 1:
        elapsed_s = time.monotonic() - run.first_token_s
        metrics.per_token.observe(elapsed_s / (run.tokens - 1))
