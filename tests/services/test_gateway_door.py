from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.gateway.keys import Keyring
from tests.services.gateway_double import MODEL, Stack, stack, text
from toolrail.api_keys import hash_of, new_key
from toolrail.errors import ConfigError
from toolrail.settings import GatewaySettings
from toolrail.telemetry import Telemetry

pytestmark = pytest.mark.anyio


def made(**fields: Any) -> tuple[str, dict[str, Any]]:
    key, key_id = new_key()
    return key, {"id": key_id, "name": "alice", "hash": hash_of(key), **fields}


def write(path: Path, *records: dict[str, Any]) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps({"keys": records}))
    beside.replace(path)


@asynccontextmanager
async def guarded(
    folder: Path, *records: dict[str, Any], telemetry: Telemetry | None = None
) -> AsyncIterator[Stack]:
    path = folder / "keys.json"
    write(path, *records)
    settings = GatewaySettings(instance="gw", api_keys_file=str(path))
    async with stack(settings=settings, telemetry=telemetry, stream=False) as s:
        yield s


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_without_a_key_file_nobody_needs_a_key() -> None:
    async with stack() as s:
        assert (await s.visit("GET", "/v1/models").end()).status == 200
        assert not s.gateway.door.keyring.in_use


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer "},
        {"authorization": "Basic abc"},
        bearer("sk-something-else"),
        bearer(new_key()[0]),
        {"x-api-key": new_key()[0]},
    ],
)
async def test_who_has_no_good_key_gets_401(tmp_path: Path, headers: dict[str, str]) -> None:
    async with guarded(tmp_path, made()[1]) as s:
        for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/models"),
                             ("GET", "/v1/models/x"), ("GET", "/metrics")):  # fmt: skip
            answer = await s.visit(method, path, headers=headers).end()
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.error["code"] == "invalid_api_key"
            assert answer.error["type"] == "invalid_request_error"
            for word in " ".join(headers.values()).split()[1:]:
                assert word not in answer.body.decode()
        assert s.peers.prepared == []


async def test_a_key_opens_the_api_by_either_header(tmp_path: Path) -> None:
    key, record = made()
    async with guarded(tmp_path, record) as s:
        both = {"authorization": "Bearer none", "x-api-key": key}
        for headers in (bearer(key), {"authorization": f"bearer  {key}"}, {"x-api-key": key}, both):
            assert (await s.visit("GET", "/v1/models", headers=headers).end()).status == 200


async def test_a_key_with_a_known_id_and_another_secret_is_refused(tmp_path: Path) -> None:
    key, record = made()
    forged = key[:-43] + new_key()[0][-43:]
    async with guarded(tmp_path, record) as s:
        assert (await s.visit("GET", "/v1/models", headers=bearer(forged)).end()).status == 401
        assert s.metric("toolrail_refusals_total", reason="unknown") == 1


async def test_an_expired_key_is_refused_and_told_so(tmp_path: Path) -> None:
    key, record = made(expires="2020-01-01T00:00:00Z")
    async with guarded(tmp_path, record) as s:
        answer = await s.visit("GET", "/v1/models", headers=bearer(key)).end()
        assert answer.status == 401
        assert "expired" in answer.error["message"]


async def test_probes_need_no_key_and_metrics_need_one_that_may(tmp_path: Path) -> None:
    key, record = made()
    reader, reading = made(metrics=True)
    async with guarded(tmp_path, record, reading) as s:
        assert (await s.visit("GET", "/live").end()).status == 200
        assert (await s.visit("GET", "/health").end()).status == 200
        answer = await s.visit("GET", "/metrics", headers=bearer(key)).end()
        assert (answer.status, answer.error["code"]) == (403, "insufficient_permissions")
        assert (await s.visit("GET", "/metrics", headers=bearer(reader)).end()).status == 200


async def test_models_that_a_key_may_not_use_are_not_shown_and_travel_to_who_refuses_them(
    tmp_path: Path,
) -> None:
    key, record = made(models=["other*"])
    async with guarded(tmp_path, record) as s:
        assert (await s.visit("GET", "/v1/models", headers=bearer(key)).end()).json["data"] == []
        one = await s.visit("GET", f"/v1/models/{MODEL}", headers=bearer(key)).end()
        assert one.status == 404
        s.visit(headers=bearer(key))
        await s.peers.request()
        assert s.peers.prepared[0].models == ("other*",)


async def test_what_a_request_used_is_charged_to_its_key(tmp_path: Path) -> None:
    key, record = made(tokens_per_minute=1000, requests_per_minute=10)
    async with guarded(tmp_path, record) as s:
        answer = s.visit(headers=bearer(key))
        await s.peers.finish(await s.peers.request(), *text("a"))
        headers = (await answer.end()).headers
        assert headers["x-ratelimit-remaining-requests"] == "9"
        assert headers["x-ratelimit-limit-tokens"] == "1000"
        assert s.metric("toolrail_key_tokens_total", key="alice") == 12  # the double's usage
        assert s.metric("toolrail_key_requests_total", key="alice") == 1


async def test_an_answer_that_is_left_costs_its_prompt_and_what_had_come(tmp_path: Path) -> None:
    key, record = made(tokens_per_minute=1000)
    async with guarded(tmp_path, record) as s:
        s.peers.accept |= {"stream": True, "prompt_tokens": 70}
        answer = s.visit(headers=bearer(key))
        rid = await s.peers.request()
        await s.peers.say(rid, *text("a"))
        await answer.written(1)
        answer.leave()
        await answer.end()
        assert s.metric("toolrail_key_tokens_total", key="alice") == 71


async def test_a_limit_is_429_and_says_when(tmp_path: Path) -> None:
    key, record = made(requests_per_minute=1, concurrent_requests=1)
    async with guarded(tmp_path, record) as s:
        first = s.visit(headers=bearer(key))
        rid = await s.peers.request()
        answer = await s.visit(headers=bearer(key)).end()
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert s.metric("toolrail_refusals_total", reason="concurrency") == 1
        await s.peers.finish(rid, *text("a"))
        assert (await first.end()).status == 200
        answer = await s.visit(headers=bearer(key)).end()
        assert answer.status == 429
        assert 1 < int(answer.headers["retry-after"]) <= 60
        assert answer.headers["x-ratelimit-remaining-requests"] == "0"
        assert answer.error["type"] == "rate_limit_error"
        assert answer.error["code"] == "rate_limit_exceeded"
        looked = await s.visit("GET", "/v1/models", headers=bearer(key)).end()
        assert looked.status == 200  # looking costs nothing
        assert len(s.peers.prepared) == 1


async def test_what_runs_in_the_background_counts_among_those_at_once(tmp_path: Path) -> None:
    key, record = made(concurrent_requests=1)
    async with guarded(tmp_path, record) as s:
        known = s.gateway.door.keyring.identify([key])
        with s.gateway.door.running(known):
            assert (await s.visit(headers=bearer(key)).end()).status == 429
        answer = s.visit(headers=bearer(key))
        await s.peers.finish(await s.peers.request(), *text("a"))
        assert (await answer.end()).status == 200
        with s.gateway.door.running(None):
            pass  # where no keys are in use nothing is counted


async def test_a_change_of_the_file_is_followed_and_a_broken_one_keeps_the_last(
    tmp_path: Path,
) -> None:
    old, old_record = made()
    new, new_record = made()
    path = tmp_path / "keys.json"
    write(path, old_record)
    keyring = Keyring(path)
    changes = keyring.changes(0.001)
    with anyio.fail_after(30):
        write(path, old_record, new_record)
        await anext(changes)
        assert keyring.identify([new]).id == new_record["id"]
        path.write_text("{")
        await anext(changes)
        assert keyring.identify([old]).id == old_record["id"]
        path.unlink()
        await anext(changes)
        assert keyring.in_use
        assert len(keyring) == 2
        write(path, new_record)
        while len(keyring) == 2:  # earlier changes may be told one by one
            await anext(changes)
    await changes.aclose()
    assert list(keyring.ids()) == [new_record["id"]]
    with pytest.raises(Exception, match="Incorrect API key"):
        keyring.identify([old])


async def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    settings = GatewaySettings(instance="gw", api_keys_file=str(tmp_path / "none"))
    with pytest.raises((ConfigError, ExceptionGroup)):
        async with stack(settings=settings):
            pass


async def test_keys_are_in_no_log_span_metric_or_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key, record = made()
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    bodies: list[bytes] = []
    async with guarded(tmp_path, record, telemetry=Telemetry(provider)) as s:
        s.gateway.directory.cards = lambda: 1 // 0  # type: ignore[method-assign,assignment,return-value]
        for headers in (bearer(key), {"x-api-key": key[:-1]}, bearer(key + "x")):
            for method, path in (("GET", "/v1/models"), ("PUT", "/v1/models"), ("GET", "/x")):
                bodies.append((await s.visit(method, path, headers=headers).end()).body)
        answer = s.visit(headers=bearer(key))
        await s.peers.finish(await s.peers.request(), *text("a"))
        bodies.append((await answer.end()).body)
        prepared = s.peers.prepared[0]
        samples = [repr(sample) for family in s.registry.collect() for sample in family.samples]
    told = [logging.Formatter().format(entry) + repr(vars(entry)) for entry in caplog.records]
    traced = [span.to_json() for span in spans.get_finished_spans()]
    assert any("ZeroDivisionError" in line for line in told)
    assert traced
    seen = "\n".join([*told, *traced, *samples, *map(repr, bodies), repr(prepared)])
    assert key[-20:-1] not in seen
    assert record["hash"] not in seen
