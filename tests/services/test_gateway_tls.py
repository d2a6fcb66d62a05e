"""HTTPS, and certificates of clients."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests import certificates
from tests.services.test_gateway_server import SETTINGS, running
from toolrail.errors import ConfigError

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    return certificates.make(tmp_path_factory.mktemp("certificates"))


def client(
    port: int, files: certificates.Certificates, *, shows_its_own: bool = False
) -> httpx.AsyncClient:
    context = ssl.create_default_context(cafile=str(files.authority))
    if shows_its_own:
        context.load_cert_chain(files.client, files.client_key)
    return httpx.AsyncClient(base_url=f"https://127.0.0.1:{port}", verify=context)


async def test_answers_over_https_and_not_over_http(files: certificates.Certificates) -> None:
    settings = replace(SETTINGS, tls_cert=str(files.server), tls_key=str(files.server_key))
    async with running(settings) as service, client(service.port, files) as https:
        assert (await https.get("/live")).status_code == 200
        async with httpx.AsyncClient() as http:
            with pytest.raises(httpx.TransportError):
                await http.get(f"http://127.0.0.1:{service.port}/live")


async def test_a_client_without_a_certificate_is_not_let_in(
    files: certificates.Certificates,
) -> None:
    settings = replace(
        SETTINGS,
        tls_cert=str(files.server),
        tls_key=str(files.server_key),
        tls_client_ca=str(files.authority),
    )
    async with running(settings) as service:
        async with client(service.port, files) as stranger:
            with pytest.raises(httpx.TransportError):
                await stranger.get("/live")
        async with client(service.port, files, shows_its_own=True) as known:
            assert (await known.get("/live")).status_code == 200


async def test_a_file_that_cannot_be_used_stops_the_start(
    files: certificates.Certificates, tmp_path: Path
) -> None:
    for wrong in (tmp_path / "nothing.pem", files.server_key):
        settings = replace(SETTINGS, tls_cert=str(wrong))
        with pytest.RaisesGroup(ConfigError, flatten_subgroups=True, allow_unwrapped=True):
            async with running(settings):
                pass
