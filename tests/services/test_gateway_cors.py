from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.gateway.cors import Cors
from tests.services.gateway_double import stack
from toolrail.errors import ConfigError
from toolrail.settings import GatewaySettings

pytestmark = pytest.mark.anyio

PAGE = {"origin": "https://app.example"}
PREFLIGHT = PAGE | {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,x-stainless-os",
}


def settings(origins: str = "https://app.example, http://localhost:3000", **more: str):
    return GatewaySettings(instance="gw", cors_origins=origins, **more)  # type: ignore[arg-type]


async def test_off_no_answer_speaks_of_origins() -> None:
    async with stack() as s:
        answer = await s.visit("GET", "/live", headers=PAGE).end()
        assert not any(name.startswith("access-control") for name in answer.headers)
        assert "vary" not in answer.headers
        assert (await s.visit("OPTIONS", headers=PREFLIGHT).end()).status == 405


async def test_a_preflight_of_a_named_origin_allows_what_it_asks_for_without_a_key(
    tmp_path: Path,
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": []}))
    async with stack(settings=settings(api_keys_file=str(keys))) as s:
        answer = await s.visit("OPTIONS", headers=PREFLIGHT).end()
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert answer.headers["access-control-allow-methods"] == "POST"
        assert answer.headers["access-control-allow-headers"] == "authorization,x-stainless-os"
        assert answer.headers["vary"] == "origin"
        assert "access-control-allow-credentials" not in answer.headers
        refused = await s.visit(headers=PAGE).end()
        assert refused.status == 401
        assert refused.headers["access-control-allow-origin"] == "https://app.example"
        assert "retry-after" in refused.headers["access-control-expose-headers"]


@pytest.mark.parametrize("origin", ["https://evil.example", "https://app.example.evil", "null"])
async def test_another_origin_is_allowed_nothing(origin: str) -> None:
    async with stack(settings=settings()) as s:
        for headers in (PREFLIGHT | {"origin": origin}, {"origin": origin}):
            method = "OPTIONS" if "access-control-request-method" in headers else "GET"
            answer = await s.visit(method, "/v1/models", headers=headers).end()
            assert not any(name.startswith("access-control") for name in answer.headers)
            assert answer.headers["vary"] == "origin"


async def test_a_star_allows_every_origin() -> None:
    async with stack(settings=settings("*")) as s:
        answer = await s.visit("GET", "/v1/models", headers=PAGE).end()
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "vary" not in answer.headers


async def test_options_without_a_preflight_is_no_method_of_ours() -> None:
    async with stack(settings=settings()) as s:
        assert (await s.visit("OPTIONS", headers=PAGE).end()).status == 405


@pytest.mark.parametrize("origins", ["app.example", "https://app.example/path", "https:/a"])
async def test_what_is_no_origin_stops_the_start(origins: str) -> None:
    with pytest.raises(ConfigError, match="no origin"):
        Cors(origins)
