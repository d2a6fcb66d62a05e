"""The bus over mutual TLS."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from benchmarks.processes import free_port
from tests import certificates
from toolrail.bus.embedded import server_binary
from toolrail.bus.nats import NatsBus
from toolrail.errors import BusClosedError, ConfigError
from toolrail.settings import CommonSettings

pytestmark = [pytest.mark.anyio, pytest.mark.nats]


@pytest.fixture
def files(tmp_path: Path) -> certificates.Certificates:
    return certificates.make(tmp_path)


@pytest.fixture
def port(files: certificates.Certificates, tmp_path: Path) -> Iterator[int]:
    port, config = free_port(), tmp_path / "nats.conf"
    config.write_text(
        f"listen: 127.0.0.1:{port}\n"
        f'jetstream {{ store_dir: "{tmp_path / "js"}" }}\n'
        f'tls {{ cert_file: "{files.server}", key_file: "{files.server_key}", '
        f'ca_file: "{files.authority}", verify: true }}\n',
        encoding="utf-8",
    )
    with (tmp_path / "nats.log").open("wb") as log:
        server = subprocess.Popen(
            [str(server_binary()), "-c", str(config)], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield port
    finally:
        os.kill(server.pid, signal.SIGKILL)
        server.wait()


async def test_both_show_a_certificate(port: int, files: certificates.Certificates) -> None:
    bus = await NatsBus.connect(
        CommonSettings(
            nats_url=f"tls://127.0.0.1:{port}",
            nats_tls_ca=str(files.authority),
            nats_tls_cert=str(files.client),
            nats_tls_key=str(files.client_key),
        )
    )
    try:
        heard = anyio.Event()
        await bus.subscribe("a", lambda _: heard.set())
        await bus.publish("a", b"x")
        with anyio.fail_after(20):
            await heard.wait()
    finally:
        await bus.close()


async def test_a_file_that_cannot_be_used_is_named_by_its_setting(
    files: certificates.Certificates, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    for field, settings in {
        "nats_tls_ca": CommonSettings(nats_tls_ca=missing),
        "nats_tls_cert": CommonSettings(nats_tls_cert=missing),
        "nats_nkey_file": CommonSettings(nats_nkey_file=str(files.client_key)),
    }.items():
        with pytest.raises(ConfigError) as raised:
            await NatsBus.connect(settings)
        assert field in str(raised.value)
        assert "BEGIN" not in str(raised.value)


async def test_who_does_not_know_the_server_does_not_talk_to_it(port: int) -> None:
    settings = CommonSettings(nats_url=f"tls://127.0.0.1:{port}", connect_timeout_s=2.0)
    with pytest.raises(BusClosedError):
        await NatsBus.connect(settings)
