"""One request is one trace, across four processes, with no text of it inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import otlp, stack
from tests.e2e.tools import SCHEMAS, ask, tool

pytestmark = pytest.mark.nats

SERVICES = {"gateway", "preprocessor", "postprocessor", "worker"}
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"


def test_a_request_is_one_trace_across_the_four_services(tmp_path: Path) -> None:
    flags = stack.scripted("--obey-tag")
    with (
        otlp.receiver() as receiver,
        stack.running(tmp_path, *flags, "--otlp-endpoint", receiver.url) as running,
        running.client() as client,
    ):
        request = ask(
            "a secret in the prompt",
            tools=[tool("point", SCHEMAS["one_enum"])],
            tool_choice="required",
        )
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
        response = client.post("/v1/chat/completions", json=request, headers=headers)
        assert response.status_code == 200
        receiver.until(lambda spans: _is_whole([s for s in spans if s.trace_id == TRACE]))
        spans = [span for span in receiver.spans if span.trace_id == TRACE]

    (root,) = [span for span in spans if span.parent_id == CALLER]
    assert root.service == "gateway"
    for span in spans:
        assert "secret" not in span.text
        assert "celsius" not in span.text


def _is_whole(spans: list[otlp.Received]) -> bool:
    """All services have reported, and every span's parent is there."""
    ids = {span.span_id for span in spans} | {CALLER}
    return {s.service for s in spans} == SERVICES and all(s.parent_id in ids for s in spans)
