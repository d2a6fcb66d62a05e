"""One request is one trace across four processes: who is whose child, what it says, and no text."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests import otlp, stack
from tests.e2e.script import hermes
from tests.e2e.tools import ask, tool

pytestmark = pytest.mark.nats

CALLER: Final = "b7ad6b7169203331"
SECRET: Final = "hush-hush"
ARGUMENTS: Final = {"unit": "celsius", "note": SECRET}
LOOK: Final = tool(
    "look",
    {
        "type": "object",
        "properties": {"unit": {"enum": ["celsius", "kelvin"]}, "note": {"type": "string"}},
        "required": ["unit"],
    },
    strict=None,
)
SCRIPT: Final[list[dict[str, Any]]] = [
    {"match": "please call", "text": f"Well. {hermes('look', ARGUMENTS)}", "chunk_tokens": 3},
    {"match": "please break", "token_ids": [], "finish": "error"},
    {"match": "please cut", "text": hermes("look", ARGUMENTS)[:48], "finish": "length"},
    {"match": "please die", "text": f"{SECRET} and more of it.", "die_after": 2, "delay_ms": 100},
    {"match": "", "text": f"Words, {SECRET}, and <tool_call> among them.", "chunk_tokens": 2},
]
PATIENCE: Final = {
    "TOOLRAIL_ACK_WAIT_S": "60",
    "TOOLRAIL_REGISTRATION_TTL_S": "60",
    "TOOLRAIL_HAND_OVER_TIMEOUT_S": "60",
}
"""On a busy machine nothing is tried twice that would then be traced twice."""

ROOT: Final = "gateway POST /v1/chat/completions"
PREPARED: Final = ["gateway send prepare", "preprocessor process prepare"]
STREAM: Final = [
    *PREPARED,
    "preprocessor send stream",
    "postprocessor process stream",
    "postprocessor stream",
]
_numbers: Final = itertools.count(1)


@dataclass
class Traced:
    """A stack of processes, two of them workers, and what they trace."""

    client: httpx.Client
    receiver: otlp.Receiver
    running: stack.Stack

    def trace(self, paths: list[str], text: str, **more: Any) -> tuple[httpx.Response, Trace]:
        """The answer to a request, and its trace once it has exactly these paths."""
        trace_id = f"{next(_numbers):032x}"
        headers = {"traceparent": f"00-{trace_id}-{CALLER}-01"}
        request = ask(f"{text}, {SECRET}", **more)
        answer = self.client.post("/v1/chat/completions", json=request, headers=headers)
        made = Trace([])

        def is_whole(spans: list[otlp.Received]) -> bool:
            made.spans = [span for span in spans if span.trace_id == trace_id]
            return made.paths() == sorted(paths)

        try:
            self.receiver.until(is_whole, timeout_s=60)
        except AssertionError:
            raise AssertionError("\n".join(made.paths())) from None
        return answer, made


@dataclass
class Trace:
    """The spans of one request."""

    spans: list[otlp.Received]

    def paths(self) -> list[str]:
        """The way from the root to each leaf; a span without its parent begins with `lost`."""
        by_id = {span.span_id: span for span in self.spans}
        parents = {span.parent_id for span in self.spans}
        found = []
        for span in self.spans:
            if span.span_id in parents:
                continue
            at, way = span, [f"{span.service} {span.name}"]
            while at.parent_id in by_id:
                at = by_id[at.parent_id]
                way.append(f"{at.service} {at.name}")
            way += [] if at.parent_id == CALLER else ["lost"]
            found.append(" > ".join(reversed(way)))
        return sorted(found)

    def one(self, name: str) -> otlp.Received:
        (found,) = self.all(name)
        return found

    def all(self, name: str) -> list[otlp.Received]:
        return [span for span in self.spans if span.name == name]


def path(*steps: str) -> str:
    return " > ".join([ROOT, *steps])


def run(*more: str) -> str:
    return path(*STREAM, "postprocessor send work", "worker generate", *more)


@contextmanager
def tracing(folder: Path, rows: list[dict[str, Any]], *flags: str) -> Iterator[Traced]:
    script = folder / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with otlp.receiver() as receiver:
        own = ("--script", str(script), "--otlp-endpoint", receiver.url, *flags)
        with (
            stack.running(folder, *stack.scripted(*own), environment=PATIENCE) as running,
            running.client() as client,
        ):
            yield Traced(client, receiver, running)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    with tracing(tmp_path_factory.mktemp("traced"), SCRIPT, "--replicas", "worker=2") as made:
        yield made
        # Of any request of any kind, in any byte that was sent.
        assert made.receiver.bodies
        for body in made.receiver.bodies:
            assert SECRET.encode() not in body
            assert b"celsius" not in body


def test_a_call(traced: Traced) -> None:
    answer, trace = traced.trace([run()], "please call", tools=[LOOK], tool_choice="auto")
    (called,) = answer.json()["choices"][0]["message"]["tool_calls"]
    root, prepared = trace.one("POST /v1/chat/completions"), trace.one("process prepare")
    stream, worker = trace.one("stream"), trace.one("generate")

    assert root.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert root.attributes["toolrail.calls"] == 1
    assert root.events == ("toolrail.accepted", "toolrail.first_event", "toolrail.finish")
    assert root.event("toolrail.accepted")["toolrail.owner"].startswith("postprocessor")

    assert prepared.events == (
        "toolrail.preflight",
        "toolrail.compiled",
        "toolrail.prepared",
        "toolrail.enforcement",
    )
    assert prepared.event("toolrail.preflight") == {"toolrail.verdict": "accepted"}
    compiled = prepared.event("toolrail.compiled")
    assert (compiled["toolrail.cache_hit"], compiled["toolrail.verdict"]) == (False, "accepted")
    assert compiled["toolrail.seconds"] > 0
    assert prepared.event("toolrail.enforcement")["toolrail.held_by"] == "structural_tag"

    assert stream.events == (
        "toolrail.first_token",
        "toolrail.first_marker",
        "toolrail.call",
        "toolrail.finish",
    )
    assert stream.event("toolrail.first_marker")["toolrail.marker"] == "call"
    assert stream.event("toolrail.call") == {
        "toolrail.choice": 0,
        "toolrail.call.index": 0,
        "toolrail.call.outcome": "complete",
        "toolrail.call.bytes": len(called["function"]["arguments"].encode()),
        "toolrail.family": "hermes",
        "gen_ai.tool.name": "look",
    }
    assert stream.event("toolrail.finish") == {"toolrail.choice": 0, "toolrail.finish": "stop"}

    assert worker.events == ("toolrail.taken", "toolrail.first_token", "toolrail.finish")
    assert worker.event("toolrail.taken")["toolrail.queue.wait_s"] >= 0
    tags = {span.attributes["toolrail.tag.hash"] for span in (prepared, stream, worker)}
    assert len(tags) == 1
    ((fed_by, link),) = stream.links
    assert (fed_by, link["toolrail.attempt"]) == (worker.span_id, 0)

    ids = {s.attributes["toolrail.request_id"] for s in (root, prepared, stream, worker)}
    assert len(ids) == 1
    assert not any(span.failed for span in trace.spans)

    _, again = traced.trace([run()], "please call", tools=[LOOK], tool_choice="auto")
    compiled = again.one("process prepare").event("toolrail.compiled")
    assert compiled == {"toolrail.cache_hit": True, "toolrail.checks": 0}


def test_calls_that_are_banned(traced: Traced) -> None:
    _, trace = traced.trace([run()], "anything", tools=[LOOK], tool_choice="none")
    prepared = trace.one("process prepare").event("toolrail.prepared")
    assert (prepared["toolrail.tool_choice"], prepared["toolrail.tools"]) == ("none", 1)
    assert prepared["toolrail.held_by"] == "structural_tag"
    assert "toolrail.call" not in trace.one("stream").events


def test_text_of_two_choices(traced: Traced) -> None:
    _, trace = traced.trace([run(), run()], "anything", n=2)
    stream = trace.one("stream")
    runs = {span.attributes["toolrail.choice"]: span.span_id for span in trace.all("generate")}
    fed_by = {facts["toolrail.choice"]: span_id for span_id, facts in stream.links}
    assert fed_by == runs
    assert sorted(runs) == [0, 1]
    ended = [
        facts["toolrail.choice"]
        for name, facts in zip(stream.events, stream.facts, strict=True)
        if name == "toolrail.finish"
    ]
    assert sorted(ended) == [0, 1]
    assert stream.events[0] == "toolrail.first_token"
    assert stream.attributes["gen_ai.request.choice.count"] == 2


def test_a_schema_that_is_refused(traced: Traced) -> None:
    wrong = tool("look", {"type": "nonsense"})
    answer, trace = traced.trace([path(*PREPARED)], "please call", tools=[wrong])
    assert answer.status_code == 400
    root, prepared = trace.one("POST /v1/chat/completions"), trace.one("process prepare")
    verdict = prepared.event("toolrail.preflight")
    assert (verdict["toolrail.verdict"], verdict["toolrail.param"]) == ("refused", "tools[0]")
    assert prepared.attributes["error.type"] == "invalid_request"
    assert root.attributes["http.response.status_code"] == 400
    assert not any(span.failed for span in trace.spans), "it is the client's fault"


def test_an_error_of_the_engine(traced: Traced) -> None:
    answer, trace = traced.trace([run()], "please break")
    assert answer.status_code == 500
    failed = {span.name for span in trace.spans if span.failed}
    assert failed == {"POST /v1/chat/completions", "stream", "generate"}
    assert trace.one("stream").attributes["error.type"] == "engine"
    end = trace.one("generate").event("toolrail.finish")
    assert (end["toolrail.finish"], end["toolrail.code"]) == ("error", "engine")


def test_an_answer_that_is_cut(traced: Traced) -> None:
    _, trace = traced.trace([run()], "please cut", tools=[LOOK], tool_choice="auto")
    stream = trace.one("stream")
    assert stream.event("toolrail.call")["toolrail.call.outcome"] == "truncated"
    assert stream.event("toolrail.finish")["toolrail.finish"] == "length"
    root = trace.one("POST /v1/chat/completions")
    assert root.attributes["gen_ai.response.finish_reasons"] == ["length"]


def test_a_run_that_moves_since_its_worker_is_killed(traced: Traced) -> None:
    lost = path(*STREAM, "postprocessor send work")  # its run's span died with the worker
    answer, trace = traced.trace([lost, run()], "please die")
    assert answer.json()["choices"][0]["message"]["content"] == f"{SECRET} and more of it."
    stream, second = trace.one("stream"), trace.one("generate")
    assert stream.events == (
        "toolrail.first_token",
        "toolrail.migration",
        "toolrail.resumed",
        "toolrail.finish",
    )
    moved = stream.event("toolrail.migration")
    assert (moved["toolrail.cause"], moved["toolrail.attempt"]) == ("dead", 1)
    assert moved["toolrail.tokens"] > 0
    first, (fed_by, facts) = stream.links
    assert (fed_by, facts["toolrail.attempt"]) == (second.span_id, 1)
    assert first[1]["toolrail.worker"] == moved["toolrail.worker"] != facts["toolrail.worker"]
    ((follows, _),) = second.links
    assert follows == first[0]
    assert second.attributes["toolrail.resumed_tokens"] == moved["toolrail.tokens"]
    assert not any(span.failed for span in trace.spans)


def test_content_is_there_where_it_is_wanted_and_redacted(tmp_path: Path) -> None:
    key = "sk-proj-" + "abcDEF0123456789" * 3
    said = {"match": "", "text": f"It is {key}. {hermes('look', {'unit': 'celsius', 'note': key})}"}
    with tracing(tmp_path, [said], "--trace-content", "redacted") as traced:
        _, trace = traced.trace([run()], f"please repeat {key}", tools=[LOOK], tool_choice="auto")
        sent = b"".join(traced.receiver.bodies)
    prepared, stream = trace.one("process prepare"), trace.one("stream")
    (asked,) = json.loads(prepared.attributes["gen_ai.input.messages"])
    assert asked["role"] == "user"
    text = asked["parts"][0]["content"]
    assert text.startswith("please repeat [redacted:")
    assert text.endswith(SECRET), "what no rule knows stays"
    (offered,) = json.loads(prepared.attributes["gen_ai.tool.definitions"])
    assert (offered["name"], offered["parameters"]["required"]) == ("look", ["unit"])
    (answered,) = json.loads(stream.attributes["gen_ai.output.messages"])
    words, call = answered["parts"]
    assert words["content"].startswith("It is [redacted:")
    assert (call["name"], "celsius" in call["arguments"]) == ("look", True)
    assert answered["finish_reason"] == "stop"
    assert key.encode() not in sent
