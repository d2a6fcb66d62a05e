"""Audit records on JetStream: appended by gateways, which may not read them."""

from __future__ import annotations

from typing import Final

from nats.js.errors import APIError, NotFoundError

from toolrail.bus import setup, subjects
from toolrail.bus.connection import FOREIGN, Connection, translated
from toolrail.bus.nats_state import StreamState, state_of
from toolrail.errors import FaultError

_HEADER_BYTES: Final = 1024
"""Room for a record's id among what a message may hold."""
_TOO_LARGE: Final = 10054
"""What the server says where the stream has a smaller bound of its own."""
_ANOTHER_STREAM: Final = 10060
"""Its word where a message expects to be another stream's."""


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

    async def state(self, *, timeout_s: float) -> StreamState | None:
        """Where they are kept, as it is; None: nowhere. Raises FaultError."""
        return await state_of(self._connection, subjects.AUDIT_STREAM, timeout_s=timeout_s)

    async def may_append(self, *, timeout_s: float) -> bool:
        """Whether the server takes records from this user. Appends none.

        What is sent expects to be another stream's: who may send it is told that it is not. Nobody
        answers who may not.

        Raises:
            FaultError: it cannot be asked.
        """
        headers = {"Nats-Expected-Stream": "NONE"}
        try:
            await self._connection.jetstream.publish(self._subject, b"", timeout_s, headers=headers)
        except APIError as error:
            if error.err_code == _ANOTHER_STREAM:
                return True
            raise translated(error, "the audit records") from error
        except TimeoutError:
            return False
        except FOREIGN as error:
            raise translated(error, "the audit records") from error
        return True
