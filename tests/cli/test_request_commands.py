"""`toolrail check`, `tag` and `prompt`: JSON lines in, one answer a line out, in order."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.openai.bodies import USER, WEATHER, function
from tests.services.preprocessing import TEMPLATE, tokenizer_json
from toolrail.cli import main

OK = {"model": "m", "messages": [USER]}
STRICT_CASES = Path(__file__).parents[1] / "schema" / "cases" / "strict_preflight.jsonl"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]):
    def run(command: str, *lines: Any, status: int = 0) -> list[dict[str, Any]]:
        data = b"".join(
            (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n"
            for line in lines
        )
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        capfdbinary.readouterr()
        assert main(command.split()) == status
        return [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]

    return run


def test_check_answers_each_row(run: Any) -> None:
    answers = run(
        "check",
        {"id": "a", "api": "chat", "request": OK},
        b"",
        {"id": 2, "request": {**OK, "n": 0}},
        {"id": None, "api": "responses", "request": {"model": "m", "input": "x"}},
        {"id": [1, {"x": 2.5}]},
    )
    assert answers[0] == {"id": "a", "ok": True}
    assert answers[1] == {
        "id": 2,
        "ok": False,
        "status": 400,
        "error": {
            "message": "Invalid value for 'n': expected an integer >= 1.",
            "type": "invalid_request_error",
            "param": "n",
            "code": "integer_below_min_value",
        },
    }
    assert [answer["ok"] for answer in answers[2:]] == [True, False]
    assert answers[3]["id"] == [1, {"x": 2.5}]
    assert answers[3]["error"]["param"] == "request"


def test_check_reads_the_request_as_the_server_does(run: Any) -> None:
    """Its text is taken as it is: numbers are not rounded, equal keys are not merged first."""
    raw = b'{"id": 1, "request": {"model": "m", "n": 1, "n": 0, "messages": []}}'
    assert run("check", raw)[0]["error"]["param"] == "n"


def test_a_request_that_is_not_utf8_is_at_fault(run: Any) -> None:
    raw = b'{"id": 1, "request": {"model": "\xff", "messages": []}}'
    assert run("check", raw)[0]["error"]["code"] == "invalid_json"


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_check_gives_every_strict_schema_its_status(run: Any, api: str) -> None:
    cases = [json.loads(line) for line in STRICT_CASES.read_text().splitlines()]

    def request(schema: Any) -> dict[str, Any]:
        if api == "chat":
            return {**OK, "tools": [function("f", schema, strict=True)]}
        tool = {"type": "function", "name": "f", "parameters": schema, "strict": True}
        return {"model": "m", "input": "x", "tools": [tool]}

    rows = [{"id": c["case"], "api": api, "request": request(c["schema"])} for c in cases]
    for case, answer in zip(cases, run("check", *rows), strict=True):
        assert answer["id"] == case["case"]
        assert answer.get("status", 200) == case["status"], case["case"]
        if not answer["ok"]:
            message = answer["error"]["message"]
            assert "function 'f'" in message
            assert f"context={case['at']}, " in message


@pytest.mark.parametrize("command", ["check", "tag --no-compile", "prompt"])
def test_what_is_not_json_cannot_be_read(run: Any, command: str) -> None:
    assert run(command, b"{", status=1) == []
    assert run(command, b'{"id": "\xff"}', status=1) == []
    assert run(command) == []


def test_tag_answers_each_row(run: Any) -> None:
    asked = {**OK, "tools": [function("f"), function("g", strict=False)]}
    answers = run(
        "tag",
        {"id": 1, "parser": "hermes", "request": {**asked, "tool_choice": "required"}},
        {"id": 2, "parser": "hermes", "request": OK},
        {"id": 3, "parser": "hermes", "request": {**OK, "n": 0}},
        {"id": 4, "parser": "nobody", "request": OK},
        {"id": 5, "parser": "hermes", "structural_tag": {"scope": "x"}, "request": OK},
        {"id": 6, "parser": "hermes", "structural_tag": False, "request": asked},
        {"id": 7, "parser": "hermes", "request": {**OK, "guided_regex": "(?<=a)b"}},
    )
    assert [answer["id"] for answer in answers] == [1, 2, 3, 4, 5, 6, 7]
    assert answers[0]["structural_tag"]["type"] == "structural_tag"
    assert answers[0]["error"] is None
    report = answers[0]["enforcement"]
    assert report["held_by"] == "structural_tag"
    assert report["tools"]["f"]["status"] == "enforced"
    assert report["tools"]["g"]["status"] == "checked_after"
    assert answers[1]["structural_tag"] is None
    assert answers[1]["error"] is None
    assert [answer["error"]["param"] for answer in answers[2:5]] == [
        "n",
        "tool_call_parser",
        "structural_tag.scope",
    ]
    assert answers[5]["structural_tag"] is None
    assert answers[5]["enforcement"]["reason"] == "structural tags are off"
    refused = answers[6]["error"]
    assert (refused["status"], refused["param"]) == (400, "guided_regex")
    assert set(refused) == {"status", "message", "type", "param", "code"}


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "tokenizer.json").write_text(tokenizer_json())
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 64}))
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE + "{{ strftime_now('%d %b %Y') }}")
    return str(tmp_path)


def test_prompt_answers_each_row(run: Any, model: str) -> None:
    row = {"id": 1, "model": model, "request": OK, "date": "2026-11-29"}
    answers = run(
        "prompt",
        row,
        {**row, "request": {**OK, "n": 0}},
        {**row, "model": "/nowhere"},
        {**row, "date": "tomorrow"},
        {**row, "parser": "nobody"},
    )
    text = f"<|im_start|>user\n{USER['content']}<|im_end|>\n<|im_start|>assistant\n29 Nov 2026"
    assert answers[0]["prompt"] == text
    assert len(answers[0]["prompt_token_ids"]) < len(text)
    assert [answer["error"]["param"] for answer in answers[1:]] == [
        "n",
        "model",
        "date",
        "tool_call_parser",
    ]


def test_equal_prefixes_have_equal_hashes(run: Any, model: str) -> None:
    other_order = dict(reversed(WEATHER.items()))
    rows = [
        {"model": model, "request": {**OK, "tools": [function("f", WEATHER)]}},
        {"model": model, "request": {**OK, "tools": [function("f", other_order)]}},
        {"model": model, "request": {**OK, "tools": [function("g", WEATHER)]}},
        {
            "model": model,
            "request": {**OK, "tools": [function("f", WEATHER)], "tool_choice": "none"},
            "exclude_tools_when_tool_choice_none": False,
        },
    ]
    first, same, other, kept = (answer["prefix_hash"] for answer in run("prompt", *rows))
    assert first == same == kept != other


def test_a_row_may_be_a_responses_request(run: Any) -> None:
    request = {
        "model": "m",
        "input": "hi",
        "tools": [{"type": "function", "name": "f", "parameters": WEATHER}],
        "tool_choice": "required",
    }
    rows = [
        {"id": 1, "api": "responses", "parser": "hermes", "request": request},
        {"id": 2, "parser": "hermes", "request": request},
    ]
    tagged, refused = run("tag --no-compile", *rows)
    assert tagged["error"] is None
    assert '"f"' in json.dumps(tagged["structural_tag"]).replace("\\", "")
    assert refused["error"]["param"] == "input"
    grammar = {"type": "custom", "name": "g", "format": {"type": "grammar"}}
    grammar["format"] |= {"syntax": "regex", "definition": "a"}
    (answer,) = run(
        "check", {"id": 3, "api": "responses", "request": request | {"tools": [grammar]}}
    )
    assert answer["error"]["param"] == "tools[0].format"
