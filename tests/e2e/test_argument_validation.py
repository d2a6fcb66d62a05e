"""What the grammar could not hold is checked when it is complete: reported, or a failure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests import pipeline
from tests.e2e.script import hermes
from tests.e2e.tools import ask, closed

SECRET = "twice-told-value"
LONG = "information " * 1000
"""Too long to be checked on the event loop, and few tokens."""
SCRIPT = [
    {"match": "break it", "text": hermes("tag", {"words": [SECRET, SECRET]}), "chunk_tokens": 1},
    {"match": "keep it", "text": hermes("tag", {"words": ["a", "b"]})},
    {"match": "answer", "text": json.dumps({"words": [SECRET, SECRET]}), "chunk_tokens": 3},
    {
        "match": "speak, then break",
        "text": f"I tag.\n{hermes('tag', {'words': [SECRET, SECRET]})}",
        "chunk_tokens": 1,
    },
    {
        "match": "break many",
        "text": hermes("tag", {"words": [LONG, "other", LONG]}),
        "chunk_tokens": 64,
    },
    {"match": "patch well", "text": hermes("patch", {"input": "+a\n-b\n"})},
    {"match": "patch badly", "text": hermes("patch", {"input": SECRET})},
    {"match": "someone else", "text": hermes("untag", {"words": []})},
]
WORDS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
SCHEMA = closed(words=WORDS)
CHECKED = "toolrail_postprocessor_checks_total"


def tag(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "tag", "parameters": SCHEMA, **fields}}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("script") / "script.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def failing(script: str) -> Iterator[pipeline.Pipeline]:
    flags = ("--script", script, "--tool-call-parser", "hermes", "--argument-validation", "fail")
    with pipeline.running(*flags, "--structural-tag", '{"custom_grammars": true}') as running:
        yield running


@pytest.fixture(scope="module")
def reporting(script: str) -> Iterator[pipeline.Pipeline]:
    with pipeline.running("--script", script, "--tool-call-parser", "hermes") as running:
        yield running


@pytest.fixture(scope="module")
def lax(script: str) -> Iterator[pipeline.Pipeline]:
    with pipeline.running(
        "--script", script, "--tool-call-parser", "hermes", "--argument-validation", "off"
    ) as running:
        yield running


def post(where: pipeline.Pipeline, content: str, *, asks: bool = False, **fields: Any) -> Any:
    headers = {"x-toolrail-enforcement": "1"} if asks else {}
    with where.client(headers=headers) as client:
        request = ask(content, **{"tools": [tag()], **fields})
        return client.post("/v1/chat/completions", json=request)


def results(where: pipeline.Pipeline) -> dict[str, float]:
    return {
        sample.labels["result"]: sample.value
        for metric in where.metrics["postprocessor"].collect()
        for sample in metric.samples
        if sample.name == CHECKED and sample.labels["family"] == "hermes" and sample.value
    }


def test_a_violation_is_delivered_and_counted(reporting: pipeline.Pipeline) -> None:
    before = results(reporting)
    response = post(reporting, "break it")
    assert response.status_code == 200
    (choice,) = response.json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert post(reporting, "keep it").status_code == 200
    after = results(reporting)
    more = {result: count - before.get(result, 0) for result, count in after.items()}
    assert {result: n for result, n in more.items() if n} == {"invalid": 1, "valid": 1}


def test_under_fail_a_violation_before_any_output_is_a_status(
    failing: pipeline.Pipeline,
) -> None:
    response = post(failing, "break it")
    assert response.status_code == 502, response.text
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "model_output")
    assert "'tag'" in error["message"]
    assert "'#/words/uniqueItems'" in error["message"]
    assert SECRET not in response.text


def test_under_fail_a_violation_after_output_ends_the_stream_with_an_error(
    failing: pipeline.Pipeline,
) -> None:
    response = post(failing, "speak, then break", stream=True)
    assert response.status_code == 200
    events = [
        json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")
    ]
    assert events[-1]["error"]["code"] == "model_output"
    assert SECRET not in events[-1]["error"]["message"]
    assert not any(
        choice.get("finish_reason") for event in events for choice in event.get("choices", ())
    )


PATCH = {"syntax": "lark", "definition": 'start: (("+" | "-") /[a-z]*/ "\\n")+'}


def test_under_fail_an_input_is_held_to_its_grammar(failing: pipeline.Pipeline) -> None:
    """The scripted engine pays no heed to the tag."""
    tool = {
        "type": "custom",
        "custom": {"name": "patch", "format": {"type": "grammar", "grammar": PATCH}},
    }
    good, bad = (post(failing, content, tools=[tool]) for content in ("patch well", "patch badly"))
    (call,) = good.json()["choices"][0]["message"]["tool_calls"]
    assert call["custom"]["input"] == "+a\n-b\n"
    assert (bad.status_code, bad.json()["error"]["code"]) == (502, "model_output")
    assert "'patch' breaks its grammar" in bad.json()["error"]["message"]
    assert SECRET not in bad.text


def test_under_fail_what_is_valid_passes(failing: pipeline.Pipeline) -> None:
    response = post(failing, "keep it")
    assert response.status_code == 200
    (choice,) = response.json()["choices"]
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {
        "words": ["a", "b"]
    }


def test_under_fail_long_arguments_wait_for_their_check(failing: pipeline.Pipeline) -> None:
    response = post(failing, "break many")
    assert response.status_code == 502, response.text
    assert "'#/words/uniqueItems'" in response.json()["error"]["message"]


def test_under_fail_a_function_that_is_not_offered_is_a_failure(
    failing: pipeline.Pipeline,
) -> None:
    response = post(failing, "someone else")
    assert response.status_code == 502, response.text
    assert "does not offer" in response.json()["error"]["message"]
    assert "untag" not in response.text


HELD = {**closed(words={"type": "string"}), "required": ["words"]}
"""A schema that the grammar holds as a whole, which this engine takes no notice of."""


@pytest.mark.parametrize("content", ["someone else", "break it"])
@pytest.mark.parametrize("stream", [False, True])
def test_under_fail_an_engine_without_its_grammar_is_noticed_in_every_api(
    failing: pipeline.Pipeline, content: str, *, stream: bool
) -> None:
    function = {"name": "tag", "parameters": HELD}
    said = [{"role": "user", "content": content}]
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": ask(content, tools=[{"type": "function", "function": function}]),
        "/v1/responses": {"input": content, "tools": [{"type": "function", **function}]},
        "/v1/messages": {
            "messages": said,
            "max_tokens": 500,
            "tools": [{"name": "tag", "input_schema": HELD}],
        },
    }
    with failing.client() as client:
        for path, body in bodies.items():
            asked = {"model": "demo", **body, "stream": stream}
            response = client.post(path, json=asked)
            if not stream:
                assert response.status_code == 502, (path, response.text)
            problem = "does not offer" if content == "someone else" else "breaks its schema"
            assert problem in response.text, path


def test_an_answer_is_checked_like_arguments(failing: pipeline.Pipeline) -> None:
    format_ = {"type": "json_schema", "json_schema": {"name": "words", "schema": SCHEMA}}
    with failing.client() as client:
        request = ask("answer", response_format=format_)
        response = client.post("/v1/chat/completions", json=request)
    assert response.status_code == 502, response.text
    assert "The answer breaks its schema: '#/words/uniqueItems'" in response.text


def test_off_looks_at_nothing_and_the_report_says_so(lax: pipeline.Pipeline) -> None:
    response = post(lax, "break it", asks=True)
    assert response.status_code == 200
    assert results(lax) == {}
    report = json.loads(response.headers["x-toolrail-enforcement"])
    assert report["tools"]["tag"] == {
        "status": "dropped",
        "checked": False,
        "keywords": {"#/properties/words/uniqueItems": "dropped"},
    }


def test_the_report_comes_to_those_who_ask(reporting: pipeline.Pipeline) -> None:
    assert "x-toolrail-enforcement" not in post(reporting, "keep it").headers
    for stream in (False, True):
        headers = post(reporting, "keep it", asks=True, stream=stream).headers
        report = json.loads(headers["x-toolrail-enforcement"])
        assert report["held_by"] == "structural_tag"
        assert report["tools"]["tag"]["keywords"] == {
            "#/properties/words/uniqueItems": "checked_after"
        }
        assert report["keywords"]["enforced"] > 0
        assert "truncated" not in report


def test_a_refused_request_has_no_report(reporting: pipeline.Pipeline) -> None:
    response = post(reporting, "keep it", asks=True, temperature="hot")
    assert response.status_code == 400
    assert "x-toolrail-enforcement" not in response.headers


def test_keywords_are_counted_by_family(reporting: pipeline.Pipeline) -> None:
    post(reporting, "keep it")
    counted = {
        (sample.labels["family"], sample.labels["status"]): sample.value
        for metric in reporting.metrics["preprocessor"].collect()
        for sample in metric.samples
        if sample.name == "toolrail_preprocessor_keywords_total"
    }
    assert counted["hermes", "checked_after"] >= 1
    assert counted["hermes", "enforced"] >= 1
