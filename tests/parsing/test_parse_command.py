"""`toolrail parse`: one answer a line, however the text reaches the parser."""

from __future__ import annotations

import io
import json
import sys

import pytest

from toolrail.cli.parse import parse

PING = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object"}}}
TEXT = '<think>a</think>\n\nb\n<tool_call>\n{"name": "ping", "arguments": {"n": 1.0}}\n</tool_call>'
ROW = {
    "family": "hermes",
    "case": "x",
    "tool_parser": "hermes",
    "reasoning_parser": "qwen3",
    "tools": [PING],
    "tool_choice": "auto",
    "start": "none",
    "mode": "native",
    "engine_finish": "stop",
    "text": TEXT,
    "chunks": [TEXT[:30], TEXT[30:]],
    "expected": {"ignored": True},
}


def run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], text: str, *arguments: str
) -> tuple[int, list[dict[str, object]]]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    status = parse(arguments)
    return status, [json.loads(line) for line in capfd.readouterr().out.splitlines()]


@pytest.mark.parametrize("chunking", ["given", "whole", "chars", "random:7"])
def test_an_answer_has_the_turn(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], chunking: str
) -> None:
    status, (answer,) = run(monkeypatch, capfd, json.dumps(ROW), "--chunking", chunking)
    assert status == 0
    assert answer == {
        "family": "hermes",
        "case": "x",
        "reasoning": "a",
        "content": "b",
        "tool_calls": [{"id": None, "name": "ping", "arguments": '{"n": 1.0}'}],
        "events": [
            {"kind": "reasoning", "text": "a"},
            {"kind": "text", "text": "b"},
            {"kind": "tool_call", "name": "ping", "arguments": '{"n": 1.0}'},
        ],
        "incomplete_calls": [],
        "finish_reason": "tool_calls",
    }


def test_a_cut_call_is_listed_apart(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cut = {**ROW, "text": TEXT[:-25], "chunks": None, "engine_finish": "length"}
    _, (answer,) = run(monkeypatch, capfd, json.dumps(cut))
    assert answer["tool_calls"] == []
    assert answer["finish_reason"] == "length"
    (call,) = answer["incomplete_calls"]
    assert call["name"] == "ping"
    assert '{"n": 1.0}'.startswith(call["arguments"])


def test_a_name_that_is_none_is_this_rows_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [{**ROW, "tool_parser": "nothing"}, ROW]
    status, (first, second) = run(monkeypatch, capfd, "\n".join(map(json.dumps, rows)))
    assert status == 0
    assert "nothing" in first["error"]["message"]
    assert second["finish_reason"] == "tool_calls"


def test_input_that_is_not_json_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    status, answers = run(monkeypatch, capfd, json.dumps(ROW) + "\nnot json\n")
    assert status == 1
    assert len(answers) == 1


@pytest.mark.parametrize("chunking", ["random", "lines", "random:x"])
def test_a_chunking_that_is_none_is_refused(chunking: str) -> None:
    with pytest.raises(SystemExit):
        parse(["--chunking", chunking])
