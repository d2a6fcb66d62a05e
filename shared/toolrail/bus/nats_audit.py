"""Audit records on JetStream: appended by gateways, which may not read them."""

from __future__ import annotations

from typing import Final

from nats.js.errors import APIError, NotFoundError

from toolrail.bus import setup, subjects
from toolrail.bus.connection import FOREIGN, Connection, translated
from toolrail.errors import FaultError

_HEADER_BYTES: Final = 1024
"""Room for a record's id among what a message may hold."""
_TOO_LARGE: Final = 10054
"""What the server says where the stream has a smaller bound of its own."""


class NatsAuditRecords:
    """One connection's way to the records."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._subject = subjects.audit(connection.settings.instance or "unnamed")

    async def check(self) -> None:
        """Return when the stream is there."""
        try:
            await self._connection.jetstream.stream_info(subjects.AUDIT_STREAM)
        except NotFoundError as error:
            text = f"no stream {subjects.AUDIT_STREAM}: run `toolrail nats setup`"
            raise FaultError(text) from error
        except FOREIGN as error:
            raise translated(error, "the audit records") from error

    async def append(self, record: bytes, *, record_id: str, timeout_s: float) -> None:
        """Keep the record; the server has it on disk when this returns."""
        largest = self._connection.client.max_payload - _HEADER_BYTES
        if len(record) > largest:
            raise ValueError(f"a record of {len(record)} bytes, the bus takes {largest}")
        try:
            await setup.publish(
                self._connection,
                self._subject,
                record,
                headers={"Nats-Msg-Id": record_id},
                timeout_s=timeout_s,
            )
        except FOREIGN as error:
            if isinstance(error, APIError) and error.err_code == _TOO_LARGE:
                text = f"a record of {len(record)} bytes, more than the stream takes"
                raise ValueError(text) from error
            raise translated(error, "the audit records") from error
