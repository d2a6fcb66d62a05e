"""What is counted of audit records."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class AuditMeters:
    """The meters, in the gateway's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.records = Counter(
            "toolrail_gateway_audit_records",
            "Audit records: `written` ones are kept, `dropped` ones found the queue full, `failed` "
            "ones the sink refused or did not take in time; `refused`: requests that were refused "
            "instead.",
            ["outcome"],
            registry=registry,
        )
        for outcome in ("written", "dropped", "failed", "refused"):
            self.records.labels(outcome)
        self.bytes = Counter(
            "toolrail_gateway_audit_bytes", "Bytes of written audit records.", registry=registry
        )
        self.queued = Gauge(
            "toolrail_gateway_audit_queued",
            "Audit records that are not kept yet.",
            registry=registry,
        )
        self.away = Gauge(
            "toolrail_gateway_audit_sink_away",
            "Whether the sink did not take the last audit records that it was given.",
            registry=registry,
        )
