"""The auditor that a gateway's settings ask for."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from services.gateway.audit.auditor import Auditor
from services.gateway.audit.metrics import AuditMeters
from services.gateway.audit.sinks import sink_of
from services.gateway.audit.writing import Writer
from toolrail.bus.port import Bus
from toolrail.errors import ConfigError
from toolrail.redaction import redactor
from toolrail.settings import GatewaySettings


def auditor_of(settings: GatewaySettings, bus: Bus, registry: CollectorRegistry) -> Auditor:
    """It. Raises ConfigError, also for a file of rules that would be used by nobody."""
    rules = redactor(settings.redaction_file)
    sink = sink_of(settings, bus)
    if sink is None and settings.audit_required:
        raise ConfigError("audit_required", "needs a place for the records: --audit")
    if sink is None:
        return Auditor(settings, None, None, AuditMeters(registry))
    writer = Writer(
        settings.instance,
        settings.audit_content,
        rules,
        max_content_bytes=settings.max_audit_content_bytes,
        max_record_bytes=sink.max_record_bytes,
    )
    return Auditor(settings, sink, writer, AuditMeters(registry))
