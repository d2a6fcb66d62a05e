"""Audit records on the bus: appended once, read by others, bounded."""

from __future__ import annotations

import nats
import pytest

from tests.bus.conftest import Connect
from toolrail.bus import subjects
from toolrail.bus.embedded import EmbeddedNats
from toolrail.bus.nats import NatsBus
from toolrail.errors import FaultError
from toolrail.settings import CommonSettings

pytestmark = pytest.mark.anyio


async def test_records_are_taken_up_to_the_size_of_a_message(connect: Connect) -> None:
    bus = await connect()
    await bus.audit.check()
    await bus.audit.append(b"{}", record_id="a", timeout_s=10)
    with pytest.raises(ValueError, match="the bus takes"):
        await bus.audit.append(b"x" * (bus.max_payload_bytes + 1), record_id="b", timeout_s=10)


async def test_a_closed_bus_takes_none(connect: Connect) -> None:
    bus = await connect()
    await bus.close()
    with pytest.raises(FaultError):
        await bus.audit.check()
    with pytest.raises(FaultError):
        await bus.audit.append(b"{}", record_id="a", timeout_s=0.2)


@pytest.mark.nats
async def test_a_stream_keeps_the_last_ones_each_once() -> None:
    server = EmbeddedNats()
    await server.start()
    settings = CommonSettings(
        nats_url=server.url, connect_timeout_s=10, instance="g1", max_audit_stream_bytes=4096
    )
    bus = await NatsBus.connect(settings)
    client = await nats.connect(server.url)
    try:
        for number in range(3):
            record = b'{"n":%d}' % number
            await bus.audit.append(record, record_id=str(number), timeout_s=10)
            await bus.audit.append(record, record_id=str(number), timeout_s=10)
        jetstream = client.jetstream()
        info = await jetstream.stream_info(subjects.AUDIT_STREAM)
        assert info.state.messages == 3
        assert info.config.max_age == settings.audit_stream_max_age_s
        assert await bus.audit.may_append(timeout_s=10)
        found = await bus.audit.state(timeout_s=10)
        assert found is not None
        assert (found.state.messages, found.config.max_bytes) == (3, 4096)
        assert found.config.max_age_s == settings.audit_stream_max_age_s
        assert found.state.first_ts is not None
        for number in range(10):
            await bus.audit.append(b"x" * 1000, record_id=f"long-{number}", timeout_s=10)
        info = await jetstream.stream_info(subjects.AUDIT_STREAM)
        assert info.state.bytes <= 4096
        last = await jetstream.get_last_msg(subjects.AUDIT_STREAM, subjects.audit("g1"))
        assert last.data == b"x" * 1000
        info.config.max_msg_size = 500
        await jetstream.update_stream(info.config)
        with pytest.raises(ValueError, match="more than the stream takes"):
            await bus.audit.append(b"x" * 600, record_id="too long", timeout_s=10)
        await jetstream.delete_stream(subjects.AUDIT_STREAM)
        assert await bus.audit.state(timeout_s=10) is None
        with pytest.raises(FaultError, match="toolrail nats setup"):
            await bus.audit.check()
        # The server lost it: with the right to, whoever appends makes it anew.
        await bus.audit.append(b"{}", record_id="new", timeout_s=10)
        await bus.audit.check()
    finally:
        await client.close()
        await bus.close()
        server.remove()
