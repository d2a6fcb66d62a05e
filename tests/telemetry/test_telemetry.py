from __future__ import annotations

import logging
from functools import partial

import anyio
import pytest
from opentelemetry.trace import INVALID_SPAN

from tests import otlp
from tests.bus.received import until
from toolrail.bus.memory import MemoryBroker
from toolrail.service import serving
from toolrail.settings import GatewaySettings
from toolrail.telemetry import (
    Telemetry,
    current_trace_id,
    event,
    exporting,
    headers,
    link,
    recorded,
    semconv,
    shortened,
    tag_hash,
    traceparent,
)

pytestmark = pytest.mark.anyio

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=1"}


async def handler(payload: bytes) -> bytes:
    return payload


async def test_two_services_make_one_trace_over_the_bus() -> None:
    broker = MemoryBroker()
    with otlp.receiver() as receiver:
        front = exporting("gateway", "g1", otlp_endpoint=receiver.url)
        back = exporting("preprocessor", "p1", otlp_endpoint=receiver.url + "/")
        await broker.connect(back).serve("prepare", "pre", handler, max_in_flight=1)
        bus = broker.connect(front)
        with front.attached(PARENT), front.span("POST /x", kind="server", attributes={"n": 1}):
            event("first_token", {"after_s": 0.5})
            await bus.request("prepare", b"a secret prompt", timeout_s=5)
        await front.close()
        await back.close()
    root, send, process = sorted(receiver.spans, key=lambda span: span.service + span.name)
    assert (root.service, root.name, root.parent_id) == ("gateway", "POST /x", CALLER)
    assert (send.name, send.parent_id) == ("send prepare", root.span_id)
    assert (process.service, process.name) == ("preprocessor", "process prepare")
    assert process.parent_id == send.span_id
    assert {span.trace_id for span in receiver.spans} == {TRACE}
    kinds = [f"kind: SPAN_KIND_{kind}" for kind in ("SERVER", "PRODUCER", "CONSUMER")]
    for span, kind in zip((root, send, process), kinds, strict=True):
        assert kind in span.text
        assert "secret" not in span.text
    assert root.attributes == {"n": 1}
    assert root.events == ("first_token",)
    assert send.attributes[semconv.MESSAGING_SYSTEM] == "nats"
    assert send.attributes[semconv.MESSAGING_MESSAGE_BODY_SIZE] == 15
    assert process.attributes[semconv.MESSAGING_CONSUMER_GROUP_NAME] == "pre"
    assert (front.dropped_spans, back.dropped_spans) == (0, 0)


async def test_a_failed_span_names_the_type_and_quotes_nothing() -> None:
    with otlp.receiver() as receiver:
        telemetry = exporting("worker", "w1", otlp_endpoint=receiver.url)
        with pytest.raises(KeyError), telemetry.span("generate"):
            raise KeyError("a secret prompt")
        with anyio.move_on_after(0), telemetry.span("cancelled"):
            await anyio.sleep_forever()
        await telemetry.close()
    failed, cancelled = receiver.spans
    assert failed.attributes == {"error.type": "KeyError"}
    assert "STATUS_CODE_ERROR" in failed.text
    assert "secret" not in failed.text
    assert cancelled.attributes == {"error.type": "CancelledError"}


async def test_a_long_span_outlives_the_block_that_started_it() -> None:
    with otlp.receiver() as receiver:
        telemetry = exporting("postprocessor", "q1", otlp_endpoint=receiver.url)
        span = telemetry.start_span("stream", kind="consumer", parent=PARENT)
        assert telemetry.headers() == {}
        with telemetry.attached(telemetry.headers(span)), telemetry.span("inner"):
            pass
        span.end()
        await telemetry.close()
    inner, outer = sorted(receiver.spans, key=lambda made: made.name)
    assert (outer.parent_id, inner.parent_id) == (CALLER, outer.span_id)


async def test_sampling_is_decided_at_the_root_and_followed() -> None:
    with otlp.receiver() as receiver:
        telemetry = exporting("gateway", "g1", otlp_endpoint=receiver.url, sample_ratio=0.0)
        with telemetry.span("root"):
            flags = int(headers()["traceparent"].rsplit("-", 1)[1], 16)
            assert not flags & 1
        with telemetry.attached(PARENT), telemetry.span("wanted by the caller"):
            pass
        await telemetry.close()
    assert [span.name for span in receiver.spans] == ["wanted by the caller"]


async def test_spans_that_nobody_takes_are_counted_and_nobody_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "opentelemetry")
    telemetry = exporting("gateway", "g1", otlp_endpoint="http://127.0.0.1:1")
    for _ in range(5000):
        with telemetry.span("x"):
            pass
    await telemetry.close(timeout_s=0.5)
    assert telemetry.dropped_spans >= 5000 - 4096 - 512
    await until(lambda: telemetry.dropped_spans == 5000, timeout_s=5)


async def test_off_records_nothing_and_still_passes_a_trace_through() -> None:
    telemetry = exporting("gateway", "g1", otlp_endpoint="")
    assert not telemetry.enabled
    assert telemetry.span("a") is telemetry.span("b", kind="server", attributes={"n": 1})
    with telemetry.span("a") as span:
        assert span is INVALID_SPAN
        assert telemetry.headers() == {}
        assert current_trace_id() == ""
    assert telemetry.start_span("a", parent=PARENT) is INVALID_SPAN
    event("nothing")
    with telemetry.attached(PARENT):
        assert telemetry.headers() == PARENT
        assert current_trace_id() == TRACE
    await telemetry.close()


async def test_attached_shuts_out_the_trace_around_it() -> None:
    telemetry = Telemetry()
    with telemetry.attached(PARENT):
        for empty in (None, {}, {"traceparent": "broken"}):
            with telemetry.attached(empty):
                assert telemetry.headers() == {}
        assert current_trace_id() == TRACE


async def test_every_service_tells_its_metrics_how_many_spans_are_lost() -> None:
    """None of its work waits for a receiver that is away, or for one that hangs."""
    telemetry = exporting("gateway", "g1", otlp_endpoint="http://127.0.0.1:1")
    async with serving(
        "gateway", GatewaySettings(), MemoryBroker().connect(), telemetry=telemetry
    ) as runtime:
        for _ in range(3):
            with telemetry.span("x"):
                pass
        await telemetry.close(timeout_s=0.1)
        counted = partial(runtime.metrics.get_sample_value, "toolrail_trace_spans_dropped_total")
        await until(lambda: counted() == 3, timeout_s=30)


async def test_a_receiver_that_is_there_loses_nothing() -> None:
    with otlp.receiver() as receiver:
        telemetry = exporting("gateway", "g1", otlp_endpoint=receiver.url)
        with telemetry.span("x"):
            pass
        await telemetry.close()
    assert (len(receiver.spans), telemetry.dropped_spans) == (1, 0)


async def test_links_names_and_hashes() -> None:
    with otlp.receiver() as receiver:
        telemetry = exporting("worker", "w1", otlp_endpoint=receiver.url)
        with telemetry.span("first") as first:
            target = traceparent(first)
        with telemetry.span("second") as second:
            link(second, target, {"n": 1})
            link(second, "")
            link(second, "broken")
        assert traceparent(second) == "", "it has ended"
        await telemetry.close()
    found = {span.name: span for span in receiver.spans}
    assert found["second"].links == ((found["first"].span_id, {"n": 1}),)
    assert traceparent(INVALID_SPAN) == ""
    assert recorded() is None
    assert tag_hash("{}") == tag_hash("{}") != tag_hash("[]")
    assert len(shortened("x" * 1000)) == 64
