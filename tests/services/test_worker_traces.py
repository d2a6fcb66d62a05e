"""What the span of a run says, and of which run it is the successor."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.services.worker_kit import job, scripted, until, working
from toolrail.messages import Guidance
from toolrail.telemetry import Telemetry, tag_hash

pytestmark = pytest.mark.anyio

FORMER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TAG = '{"type": "structural_tag", "format": {"type": "any_text"}}'


class Recorder:
    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.telemetry = Telemetry(provider)

    def runs(self) -> list[ReadableSpan]:
        return [span for span in self.spans.get_finished_spans() if span.name == "generate"]

    async def run(self) -> ReadableSpan:
        await until(self.runs)
        (span,) = self.runs()
        return span


def events(span: ReadableSpan) -> dict[str, dict[str, object]]:
    return {event.name: dict(event.attributes or {}) for event in span.events}


async def test_a_run_says_what_it_follows_and_its_first_delta_names_it() -> None:
    recorder = Recorder()
    engine = scripted({"text": "secret"})
    async with working(engine, telemetry=recorder.telemetry) as bench:
        guidance = Guidance(structural_tag=TAG)
        await bench.put(job(attempt=1, follows=FORMER, guidance=guidance))
        await bench.inbox.ended()
        span = await recorder.run()
        first, *rest = bench.inbox.deltas()
    assert span.context is not None
    assert first.trace is not None
    named = f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-"
    assert first.trace.startswith(named)
    assert {delta.trace for delta in rest} == {None}
    (link,) = span.links
    assert f"{link.context.span_id:016x}" == FORMER.split("-")[2]
    told = events(span)
    assert list(told) == ["toolrail.taken", "toolrail.first_token", "toolrail.finish"]
    assert told["toolrail.finish"] == {"toolrail.finish": "stop", "toolrail.tokens": 7}
    attributes = dict(span.attributes or {})
    assert attributes["toolrail.tag.hash"] == tag_hash(TAG)
    assert attributes["messaging.destination.template"] == "work"
    assert "secret" not in span.to_json()


async def test_the_wait_is_the_one_for_a_turn_and_the_one_in_the_queue() -> None:
    recorder = Recorder()
    async with working(scripted({"text": "a"}), telemetry=recorder.telemetry) as bench:
        await bench.put(job(waited_s=1000.0))
        await bench.inbox.ended()
        span = await recorder.run()
        counted = bench.runtime.metrics.get_sample_value("toolrail_worker_queue_wait_seconds_sum")
    told = events(span)["toolrail.taken"]["toolrail.queue.wait_s"]
    assert isinstance(told, float)
    assert told >= 1000
    assert counted is not None
    assert counted >= 1000


async def test_a_run_that_is_cancelled_is_no_error() -> None:
    recorder = Recorder()
    engine = scripted({"text": "never", "ttft_ms": 3_600_000})
    async with working(engine, telemetry=recorder.telemetry) as bench:
        await bench.put(job())
        await until(lambda: bench.runtime.metrics.get_sample_value("toolrail_worker_running"))
        await bench.cancel("r")
        span = await recorder.run()
    assert span.status.is_unset
    told = events(span)
    assert told["toolrail.aborted"] == {"toolrail.ending": "cancelled"}
    assert told["toolrail.finish"]["toolrail.finish"] == "abort"
    assert "toolrail.first_token" not in told


async def test_a_run_that_is_not_recorded_names_nothing() -> None:
    async with working(scripted({"text": "abc"})) as bench:
        await bench.put(job(follows=FORMER))
        await bench.inbox.ended()
        assert {delta.trace for delta in bench.inbox.deltas()} == {None}
