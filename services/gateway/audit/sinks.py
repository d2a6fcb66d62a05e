"""Where records go: a file, a stream on the bus, or a receiver of OTLP logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import anyio

from services.gateway.audit.files import FileSink
from services.gateway.audit.sink import RefusedError, SinkError
from services.gateway.audit.writing import Line
from toolrail.bus.port import AuditRecords, Bus
from toolrail.errors import ConfigError, FaultError
from toolrail.settings import GatewaySettings

_RECORD_HEADER_BYTES: Final = 4096
"""Room in a message for what the bus says of a record."""


class Sink(Protocol):
    """Keeps records.

    Attributes:
        max_record_bytes: larger ones it can never take.
    """

    max_record_bytes: int

    async def open(self) -> None:
        """Make ready to write. Raises ConfigError where that will never work."""
        ...

    async def write(self, lines: Sequence[Line]) -> None:
        """Keep all of them before it returns.

        Raises:
            SinkError: some may not be kept; try again.
            RefusedError: some will not be, however often it is tried; the others are.
        """
        ...

    async def close(self) -> None:
        """Let go of what it holds. Everything written is kept."""
        ...


def sink_of(settings: GatewaySettings, bus: Bus) -> Sink | None:
    """The sink that `--audit` names; None: `off`. Raises ConfigError."""
    kind, _, rest = settings.audit.partition(":")
    if kind == "off" and not rest:
        return None
    if kind == "file" and rest:
        return FileSink(
            rest, max_bytes=settings.max_audit_file_bytes, max_files=settings.max_audit_files
        )
    if kind == "jetstream" and not rest:
        return StreamSink(bus.audit, bus.max_payload_bytes, settings.audit_timeout_s)
    if kind == "otlp":
        endpoint = rest or settings.otlp_endpoint
        if not endpoint:
            raise ConfigError("audit", "otlp needs --otlp-endpoint, or its own: otlp:URL")
        # The exporter costs a tenth of a second of start, for a feature that is off by default.
        from services.gateway.audit.otlp import OtlpSink  # noqa: PLC0415

        return OtlpSink(endpoint, settings.instance, settings.audit_timeout_s)
    text = f"must be off, file:PATH, jetstream, otlp or otlp:URL, not {settings.audit!r}"
    raise ConfigError("audit", text)


class StreamSink:
    """The stream `TOOLRAIL_AUDIT`."""

    def __init__(self, records: AuditRecords, max_payload_bytes: int, timeout_s: float) -> None:
        self.max_record_bytes = max_payload_bytes - _RECORD_HEADER_BYTES
        self._records = records
        self._timeout_s = timeout_s

    async def open(self) -> None:
        """See that the stream is there."""
        try:
            await self._records.check()
        except FaultError as error:
            raise ConfigError("audit", str(error)) from error

    async def write(self, lines: Sequence[Line]) -> None:
        """Append all of them at once; the server leaves out what it has already."""
        failures: list[FaultError] = []
        refused: dict[str, ValueError] = {}

        async def append(line: Line) -> None:
            try:
                await self._records.append(line.data, record_id=line.id, timeout_s=self._timeout_s)
            except FaultError as error:
                failures.append(error)
            except ValueError as error:  # the server takes less by now than when we began
                refused[line.id] = error

        async with anyio.create_task_group() as tasks:
            for line in lines:
                tasks.start_soon(append, line)
        if failures:
            raise SinkError(str(failures[0])) from failures[0]
        if refused:
            reason = str(next(iter(refused.values())))
            raise RefusedError(reason, [line for line in lines if line.id in refused])

    async def close(self) -> None:
        """Nothing is held."""
