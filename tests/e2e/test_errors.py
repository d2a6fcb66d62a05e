"""A request that cannot be served gets an error object with the field, before any engine work."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from tests import pipeline
from tests.e2e.tools import SCHEMAS, ask, tool

POINT = tool("point", SCHEMAS["array_of_objects"])
OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}

REFUSED: dict[str, tuple[dict[str, Any], int, str | None]] = {
    "unknown model": ({**ask(), "model": "gpt-9"}, 404, "model"),
    "required with no tools": (ask(tools=[], tool_choice="required"), 400, "tools"),
    "required without tools": (ask(tool_choice="required"), 400, "tool_choice"),
    "named tool that is not offered": (
        ask(tools=[POINT], tool_choice={"type": "function", "function": {"name": "line"}}),
        400,
        "tool_choice",
    ),
    "wrong type": (ask(temperature="hot"), 400, "temperature"),
    "wrong type deep inside": (
        ask(tools=[{"type": "function", "function": {"name": 7}}]),
        400,
        "tools[0].function.name",
    ),
    "out of range": (ask(top_p=1.5), 400, "top_p"),
    "no messages": ({"model": "demo", "messages": []}, 400, "messages"),
    "missing messages": ({"model": "demo"}, 400, "messages"),
    "strict with an open schema": (
        ask(tools=[tool("open", OPEN)]),
        400,
        "tools[0].function.parameters",
    ),
    "prompt longer than the context": (ask("word " * 60_000), 400, "messages"),
}


@pytest.mark.parametrize(("request_body", "status", "param"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_request_at_fault_gets_an_error_object_with_the_field(
    served: httpx.Client,
    request_body: dict[str, Any],
    status: int,
    param: str | None,
    *,
    streamed: bool,
) -> None:
    response = served.post("/v1/chat/completions", json={**request_body, "stream": streamed})
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert error["param"] == param


def test_no_request_at_fault_reaches_the_queue_or_the_engine(
    inside: pipeline.Pipeline, obedient: httpx.Client
) -> None:
    def work() -> tuple[float, float]:
        return (
            inside.count("worker", "toolrail_worker_runs_total"),
            inside.count("postprocessor", "toolrail_postprocessor_streams_total"),
        )

    assert obedient.post("/v1/chat/completions", json=ask(max_tokens=4)).status_code == 200
    before = work()
    assert all(before), "both are counted"
    for request_body, status, _ in REFUSED.values():
        response = obedient.post("/v1/chat/completions", json=request_body)
        assert response.status_code == status
    assert work() == before


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff\xfe", b'{"model": "demo"', b"null"])
def test_a_body_that_is_no_json_object_gets_400(served: httpx.Client, body: bytes) -> None:
    response = served.post(
        "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
    )
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_max_tokens_beyond_the_context_are_capped(served: httpx.Client) -> None:
    request = ask(tools=[POINT], tool_choice="required", max_tokens=10_000_000)
    response = served.post("/v1/chat/completions", json=request)
    assert response.status_code == 200
    assert response.json()["choices"][0]["finish_reason"] == "tool_calls"


def test_an_unknown_path_and_a_wrong_method_get_error_objects(served: httpx.Client) -> None:
    for response, status in (
        (served.get("/v1/nothing"), 404),
        (served.get("/v1/chat/completions"), 405),
    ):
        assert response.status_code == status
        assert response.json()["error"]["message"]


def test_the_openai_client_raises_its_own_error(served: httpx.Client) -> None:
    with (
        openai.OpenAI(base_url=f"{served.base_url}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.NotFoundError) as raised,
    ):
        client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "x"}])
    assert (raised.value.param, raised.value.code) == ("model", "model_not_found")


def test_models_health_and_metrics_answer(served: httpx.Client) -> None:
    models = served.get("/v1/models").json()
    assert [model["id"] for model in models["data"]] == ["demo"]
    assert served.get("/v1/models/demo").json()["id"] == "demo"
    assert served.get("/health").json()["status"] == "healthy"
    assert served.get("/live").status_code == 200
    assert "# TYPE" in served.get("/metrics").text
