"""One line a request: what it came to, never what it said."""

from __future__ import annotations

import logging
from typing import Final

from services.gateway.answer import Outcome
from services.gateway.exchange import CLIENT_LEFT, Exchange
from services.gateway.failures import http_status

log: Final = logging.getLogger("toolrail.request")


def log_request(exchange: Exchange, route: str, outcome: Outcome, took_s: float) -> None:
    """The line: INFO, or WARNING where the fault is ours. Costs nothing where nobody logs."""
    failed = outcome.failed
    ours = failed is not None and http_status(failed) >= 500
    level = logging.WARNING if ours else logging.INFO
    if not log.isEnabledFor(level):
        return
    fields: dict[str, object] = {
        "request_id": exchange.request_id,
        "route": route,
        "status": exchange.status or CLIENT_LEFT,
        "ms": round(took_s * 1000, 1),
    }
    if exchange.public_id != exchange.request_id:
        fields["client_request_id"] = exchange.public_id
    if exchange.key is not None:
        fields["key"] = exchange.key.name
    if failed is not None:
        fields["code"] = failed.code
    if outcome.left:
        fields["left"] = outcome.left
    if outcome.model:
        fields |= {"model": outcome.model, "stream": outcome.stream}
    if outcome.first_event_s is not None:
        fields["first_event_ms"] = round(outcome.first_event_s * 1000, 1)
    tally = outcome.tally
    if tally.finish_reasons:
        fields["finish"] = ",".join(tally.finish_reasons)
        fields["calls"] = tally.complete_calls
    if tally.usage is not None:
        fields["prompt_tokens"] = tally.usage.prompt_tokens
        fields["completion_tokens"] = tally.usage.completion_tokens
        fields["cached_tokens"] = tally.usage.cached_tokens
    log.log(level, "request failed" if ours else "request", extra=fields)
