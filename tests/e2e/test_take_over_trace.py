"""A stream that changes owners is still one trace, which tells of both."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.cluster import cluster, until
from tests.e2e.test_take_over import script, streamed
from toolrail.telemetry import Telemetry

__all__ = ["script"]

pytestmark = [pytest.mark.anyio, pytest.mark.chaos]

ENDS = {"POST /v1/chat/completions": 1, "stream": 2, "generate": 1}


async def test_a_stream_that_is_taken_over(script: str) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))

    def named(name: str) -> list[ReadableSpan]:
        return [span for span in spans.get_finished_spans() if span.name == name]

    async with cluster("--script", script, telemetry=lambda _: Telemetry(provider)) as running:
        former = ""

        async def stop() -> None:
            nonlocal former
            owner = await running.owner()
            former = owner.runtime.instance
            owner.stop()

        async with running.client() as client:
            await streamed(client, stop)
        await until(lambda: all(len(named(name)) == count for name, count in ENDS.items()))
    (root,) = named("POST /v1/chat/completions")
    (run,) = named("generate")
    (took,) = [event for event in root.events if event.name == "toolrail.take_over"]
    facts = dict(took.attributes or {})
    assert facts["toolrail.former"] == former
    assert facts["toolrail.owner"] not in ("", former)
    assert facts["toolrail.outcome"] == "done"
    first, second = sorted(named("stream"), key=lambda span: span.start_time or 0)
    assert [event.name for event in first.events][-1] == "toolrail.released"
    assert [event.name for event in second.events][-1] == "toolrail.finish"
    assert (second.attributes or {})["toolrail.term"] == facts["toolrail.term"]
    for stream in (first, second):
        assert run.context is not None
        assert [link.context.span_id for link in stream.links] == [run.context.span_id]
        assert stream.status.is_unset
    made = spans.get_finished_spans()
    ids = {span.context.span_id for span in made if span.context is not None}
    ours = [
        s
        for s in made
        if s.context and root.context and s.context.trace_id == root.context.trace_id
    ]
    lost = [span.name for span in ours if span.parent and span.parent.span_id not in ids]
    assert not lost
    assert len(ours) > 10
