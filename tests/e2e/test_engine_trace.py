"""vLLM's own span inside a request's trace, by the way of the worker that runs it."""

from __future__ import annotations

import pytest

from tests import otlp, stack
from tests.e2e.tools import ask

pytestmark = pytest.mark.engine

TRACE = "5b8aa5a2d2c872e8321cf37308d69df2"
CALLER = "051581bf3cb55c13"


def test_vllm_s_span_is_a_child_of_the_run_s(
    engine: stack.Stack, engine_spans: otlp.Receiver
) -> None:
    request = ask("What is the capital of Bhutan?", max_tokens=5, model="demo-think")
    with engine.client() as client:
        client.timeout = 300
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
        answer = client.post("/v1/chat/completions", json=request, headers=headers)
    assert answer.status_code == 200, answer.text

    def ours(spans: list[otlp.Received]) -> dict[str, otlp.Received]:
        return {span.name: span for span in spans if span.trace_id == TRACE}

    wanted = {"POST /v1/chat/completions", "generate", "llm_request"}
    engine_spans.until(lambda spans: wanted <= ours(spans).keys(), timeout_s=120)
    found = ours(engine_spans.spans)
    run, inner = found["generate"], found["llm_request"]
    assert (run.service, inner.service) == ("worker", "worker")
    assert inner.parent_id == run.span_id
    used = answer.json()["usage"]
    assert inner.attributes["gen_ai.usage.prompt_tokens"] == used["prompt_tokens"]
    assert inner.attributes["gen_ai.usage.completion_tokens"] == used["completion_tokens"]
    assert not any("Bhutan" in span.text for span in found.values())
