"""What services log of requests: a line each at info, with trace and request id, no content."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests import pipeline
from tests.e2e.tools import ask
from toolrail.service.logs import OneLine

SECRET = "zebra"
CASES: list[tuple[int, dict[str, Any]]] = [
    (200, ask(f"words {SECRET}")),
    (200, ask(f"words {SECRET}", stream=True)),
    (500, ask(f"break {SECRET}")),
    (404, ask(SECRET, model="absent")),
    (400, ask(SECRET, temperature=9)),
]
SCRIPT = [
    {"match": "break", "token_ids": [], "finish": "error"},
    {"match": "", "text": f"The {SECRET} speaks."},
]


class Lines(logging.Handler):
    """Records as the services' JSON lines, made where they are logged."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(OneLine("service", "instance", "json", messages=False))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(("toolrail", "services")):
            self.lines.append(self.format(record))


@contextmanager
def logged() -> Iterator[list[str]]:
    handler, root = Lines(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield handler.lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def test_each_request_is_one_line_that_its_trace_finds_and_that_quotes_nothing(
    tmp_path: Any,
) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), "utf-8")
    traces = {f"{number + 1:032x}": case for number, case in enumerate(CASES)}
    with pipeline.running("--script", str(script)) as running, logged() as lines:
        with running.client() as client:
            for trace, (status, body) in traces.items():
                headers = {"traceparent": f"00-{trace}-00000000000000aa-01"}
                answer = client.post("/v1/chat/completions", json=body, headers=headers)
                assert answer.status_code == status
            # An answer is whole a moment before its line is written.
            deadline = time.monotonic() + 30
            while sum('"toolrail.request"' in line for line in lines) < len(CASES):
                assert time.monotonic() < deadline, lines
                time.sleep(0.01)
        said = [json.loads(line) for line in lines]
    assert SECRET not in "".join(lines)
    about = [line for line in said if "request_id" in line]
    assert {line["trace_id"] for line in about} == set(traces)
    for trace, (status, _) in traces.items():
        (access,) = (
            line
            for line in said
            if line["logger"] == "toolrail.request" and line["trace_id"] == trace
        )
        assert access["status"] == status
        assert access["level"] == ("WARNING" if status >= 500 else "INFO")
        ids = {line["request_id"] for line in about if line["trace_id"] == trace}
        assert ids == {access["request_id"]}
