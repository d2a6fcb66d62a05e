from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.services.gateway_double import MODEL, Stack, stack, text
from toolrail.messages import Failed
from toolrail.telemetry import Telemetry

pytestmark = pytest.mark.anyio

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


class Recorder:
    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.telemetry = Telemetry(provider)

    def server_span(self) -> ReadableSpan:
        (span,) = (s for s in self._spans.get_finished_spans() if s.kind is SpanKind.SERVER)
        return span

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def hand_over(self) -> ReadableSpan:
        return next(s for s in self._spans.get_finished_spans() if s.kind is SpanKind.PRODUCER)


async def chat(s: Stack, failed: Failed | None = None) -> None:
    answer = s.visit(body=b'{"secret": "of the client"}', headers=PARENT)
    rid = await s.peers.request()
    if failed is None:
        await s.peers.finish(rid, *text("the secret answer"))
    else:
        await s.peers.say(rid, failed=failed)
    await answer.end()


async def test_a_request_is_one_server_span_in_the_client_s_trace() -> None:
    recorder = Recorder()
    async with stack(telemetry=recorder.telemetry) as s:
        await chat(s)
        span = recorder.server_span()
        assert span.name == "POST /v1/chat/completions"
        assert span.context is not None
        assert span.parent is not None
        assert f"{span.context.trace_id:032x}" == TRACE
        assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
        hand_over = recorder.hand_over()
        assert hand_over.parent is not None
        assert hand_over.parent.span_id == span.context.span_id
        attributes = dict(span.attributes or {})
        assert attributes.pop("gen_ai.response.time_to_first_chunk") >= 0  # type: ignore[operator]
        assert attributes == {
            "http.request.method": "POST",
            "http.route": "/v1/chat/completions",
            "http.response.status_code": 200,
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "toolrail",
            "gen_ai.request.model": MODEL,
            "gen_ai.request.stream": True,
            "gen_ai.response.id": f"chatcmpl-{s.peers.prepared[0].request_id}",
            "gen_ai.response.model": MODEL,
            "gen_ai.response.finish_reasons": ("stop",),
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.output_tokens": 5,
            "gen_ai.usage.cache_read.input_tokens": 3,
            "gen_ai.usage.reasoning.output_tokens": 2,
            "toolrail.calls": 0,
            "toolrail.request_id": s.peers.prepared[0].request_id,
        }
        assert [event.name for event in span.events] == [
            "toolrail.accepted",
            "toolrail.first_event",
            "toolrail.finish",
        ]
        assert "secret" not in span.to_json()


async def test_a_failure_of_ours_marks_the_span_and_a_refusal_does_not() -> None:
    for failed, status in (
        (Failed(request_id="", code="engine", message="m"), StatusCode.ERROR),
        (Failed(request_id="", code="invalid_request", message="m", status=400), StatusCode.UNSET),
    ):
        recorder = Recorder()
        async with stack(telemetry=recorder.telemetry) as s:
            await chat(s, failed)
        span = recorder.server_span()
        assert span.status.status_code is status
        assert (span.attributes or {})["error.type"] == failed.code


async def test_latencies_lead_to_a_trace_that_is_recorded_and_to_no_other() -> None:
    for flag, led in (("01", True), ("00", False)):
        recorder = Recorder()
        async with stack(telemetry=recorder.telemetry) as s:
            answer = s.visit(headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-{flag}"})
            await s.peers.finish(await s.peers.request(), *text("hello"))
            await answer.end()
            scraped = s.visit("GET", "/metrics", headers={"accept": "application/openmetrics-text"})
            told = (await scraped.end()).body.decode()
        for series in ("toolrail_time_to_first_event_seconds", "toolrail_http_request_duration"):
            lines = [line for line in told.splitlines() if line.startswith(series)]
            assert any(f'trace_id="{TRACE}"' in line for line in lines) is led


async def test_a_background_response_has_a_span_that_outlives_its_request_s() -> None:
    recorder = Recorder()
    async with stack(telemetry=recorder.telemetry, echo=b'{"store":true,"background":true}') as s:
        s.tasks.start_soon(s.gateway.runs.serve)
        body = b'{"background": true, "input": "a secret"}'
        answer = await s.visit(path="/v1/responses", body=body, headers=PARENT).end()
        request = recorder.server_span()
        rid = await s.peers.request()
        await s.peers.finish(rid, *text("the secret answer"))
        run = s.gateway.runs.get(answer.json["id"])
        assert run is not None
        with anyio.fail_after(10):
            await run.over.wait()
            while not recorder.named("background response"):
                await anyio.lowlevel.checkpoint()
    (span,) = recorder.named("background response")
    assert span.parent is not None
    assert request.context is not None
    assert span.parent.span_id == request.context.span_id
    assert (span.attributes or {})["gen_ai.usage.output_tokens"] == 5
    assert [event.name for event in span.events] == [
        "toolrail.accepted",
        "toolrail.finish",
    ]
    assert "secret" not in span.to_json()
