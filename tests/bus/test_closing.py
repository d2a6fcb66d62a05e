"""A bus that is closed after its server has gone, under the event loop that services run on."""

from __future__ import annotations

import anyio
import pytest

from tests.bus.received import until
from toolrail.bus.embedded import EmbeddedNats
from toolrail.bus.nats import NatsBus
from toolrail.settings import CommonSettings


@pytest.mark.nats
def test_a_bus_with_unsent_messages_closes_though_its_server_went_first() -> None:
    anyio.run(closed_after_the_server, backend_options={"use_uvloop": True})


async def closed_after_the_server() -> None:
    server = EmbeddedNats()
    await server.start()
    try:
        settings = CommonSettings(nats_url=server.url, connect_timeout_s=10)
        bus = await NatsBus.connect(settings)
        server.kill()
        # uvloop refuses to write where the server hung up; asyncio's own loop only warns.
        client = bus._connection.client
        await until(lambda: not client.is_connected)
        await client.publish("out.nobody", b"unsent")
        await bus.close()
        await bus.close()
    finally:
        server.remove()
