"""Audit records: one a request, of what was asked and answered, and none lost unsaid."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from services.gateway.audit.auditor import Auditor
from services.gateway.audit.entry import Budget, Transcript, joined
from services.gateway.audit.record import Record
from services.gateway.audit.setup import auditor_of
from services.gateway.audit.sink import RefusedError, SinkError
from services.gateway.audit.sinks import sink_of
from services.gateway.audit.writing import Line
from tests.services.gateway_double import MODEL, STOP, USAGE, Answer, Stack, stack, text
from toolrail.api_keys import hash_of, new_key
from toolrail.bus.memory import MemoryBroker
from toolrail.errors import ConfigError
from toolrail.events import ArgumentsDelta, CallEnd, CallStart, Event, ReasoningDelta, assemble
from toolrail.messages import EventDelta, Failed, Prepare
from toolrail.redaction import redactor
from toolrail.settings import GatewaySettings

pytestmark = pytest.mark.anyio

MAIL = "jane@example.com"
BODY = json.dumps(
    {"model": MODEL, "messages": [{"role": "user", "content": f"I am {MAIL}"}]}, indent=2
).encode()
ECHO = json.dumps({"instructions": None, "store": False}).encode()
CALL = (CallStart(0, "mail"), ArgumentsDelta(0, '{"to":"'), ArgumentsDelta(0, f'{MAIL}"}}'))


class Kept:
    """A sink whose user decides when it takes records."""

    max_record_bytes = 1 << 20

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.refusals = 0
        self.away = False
        self.refuses = b""
        self.offers = 0
        self.gate = anyio.Event()
        self.gate.set()
        self._news = anyio.Event()

    async def open(self) -> None:
        pass

    async def write(self, lines: Sequence[Line]) -> None:
        await self.gate.wait()
        self.offers += 1
        if self.refuses and any(self.refuses in line.data for line in lines):
            self.refusals += 1
            self.tell()
            raise RefusedError("it never will", lines)
        if self.away:
            self.refusals += 1
            self.tell()
            raise SinkError("it is away")
        self.lines += lines
        self.tell()

    async def close(self) -> None:
        pass

    def tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def records(self, count: int = 1) -> list[Any]:
        """The first records, once there are so many."""
        with anyio.fail_after(20):
            while len(self.lines) < count:
                await self._news.wait()
        assert len(self.lines) == count
        for line in self.lines:
            msgspec.json.decode(line.data, type=Record)
            assert b"\n" not in line.data
        return [json.loads(line.data) for line in self.lines]

    async def refused(self) -> None:
        with anyio.fail_after(20):
            while not self.refusals:
                await self._news.wait()


@asynccontextmanager
async def audited(
    accept: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[Stack, Kept]]:
    """A gateway whose records are kept in memory."""
    settings = {"instance": "gw", "audit": "jetstream"} | settings
    async with stack(settings=GatewaySettings(**settings), **(accept or {})) as s:
        kept = Kept()
        auditor: Auditor = s.gateway.auditor
        auditor._sink = kept
        await auditor.start()
        s.tasks.start_soon(auditor.run)
        yield s, kept


async def answered(s: Stack, *events: Event, path: str = "/v1/chat/completions") -> str:
    answer = s.visit(path=path, body=BODY)
    rid = await s.peers.request()
    await s.peers.finish(rid, *events)
    await answer.end()
    assert answer.status == 200
    return rid


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/responses", "responses"),
        ("/v1/messages", "messages"),
    ],
)
async def test_every_api_leaves_the_same_record(path: str, api: str, stream: bool) -> None:
    report = '{"held_by":"structural_tag","tools":{}}'
    accept = {"stream": stream, "echo": ECHO, "enforcement": report}
    events = (ReasoningDelta("Hm. "), *text("To ", MAIL), *CALL, CallEnd(0))
    async with audited(accept) as (s, kept):
        rid = await answered(s, *events, path=path)
        (record,) = await kept.records()
    assert record["schema"] == "toolrail.audit/1"
    assert record["id"] == f"{rid}-request"
    assert (record["kind"], record["instance"], record["request_id"]) == ("request", "gw", rid)
    assert (record["route"], record["api"], record["method"]) == (path, api, "POST")
    assert (record["model"], record["status"], record["stream"]) == (MODEL, 200, stream)
    assert record["response_id"].endswith(rid)
    assert (record["key"], record["client"], record["left"], record["error"]) == (None,) * 4
    assert record["request"] == {
        "bytes": len(BODY),
        "body": {
            "model": MODEL,
            "messages": [{"role": "user", "content": "I am [redacted:email]"}],
        },
        "head": None,
        "cut": False,
    }
    assert record["enforcement"]["held_by"] == "structural_tag"
    assert record["response"] == {
        "choices": [
            {
                "items": [
                    {"type": "reasoning", "text": "Hm. "},
                    {"type": "text", "text": "To [redacted:email]"},
                    {"type": "call", "name": "mail", "arguments": '{"to":"[redacted:email]"}'},
                ],
                "incomplete_calls": [],
                "finish": "stop",
                "migrations": 0,
            }
        ],
        "cut": False,
    }
    assert record["calls"] == {"complete": 1, "incomplete": 0}
    assert record["usage"]["total_tokens"] == 12
    assert record["redacted"] == {"email": 3}
    assert record["duration_ms"] > 0  # by another clock than the first event's
    assert record["first_event_ms"] >= 0


async def test_content_in_full_and_not_at_all() -> None:
    async with audited(audit_content="full") as (s, kept):
        await answered(s, *text("To ", MAIL))
        (record,) = await kept.records()
        assert record["request"]["body"] == json.loads(BODY)
        assert record["response"]["choices"][0]["items"][0]["text"] == f"To {MAIL}"
        assert record["redacted"] == {}
    report = '{"held_by":"structural_tag","tools":{"mail":{"status":"full"}}}'
    async with audited({"enforcement": report}, audit_content="none") as (s, kept):
        await answered(s, *text("To ", MAIL), *CALL, CallEnd(0))
        (record,) = await kept.records()
        assert MAIL not in str(record)
        assert "mail" not in str(record)
        assert (record["request"]["bytes"], record["request"]["body"]) == (len(BODY), None)
        assert record["response"] is None
        assert record["calls"]["complete"] == 1
        assert record["usage"]["completion_tokens"] == 5


async def test_a_body_that_is_no_json_is_text() -> None:
    for content in ("full", "redacted"):
        async with audited(audit_content=content) as (s, kept):
            answer = s.visit(body=b'{"a": \n jane')
            rid = await s.peers.request()
            await s.peers.finish(rid)
            await answer.end()
            (record,) = await kept.records()
            assert record["request"]["body"] == '{"a": \n jane'


async def test_refusals_failures_and_clients_that_leave() -> None:
    async def refuse(prepare: Prepare) -> Failed:
        return Failed(
            request_id=prepare.request_id, code="invalid_request", message=f"not {MAIL}",
            status=400, error_type="invalid_request_error", error_code="bad", param="messages",
        )  # fmt: skip

    async with audited() as (s, kept):
        s.peers.respond = refuse
        await s.visit(body=BODY).end()
        s.peers.respond = None
        broken = s.visit(body=BODY)
        rid = await s.peers.request(2)
        await s.peers.say(rid, *text("Hel"))
        await s.peers.say(rid, failed=Failed(request_id=rid, code="engine", message="dead"))
        await broken.end()
        gone = s.visit(body=BODY)
        rid = await s.peers.request(3)
        await s.peers.say(rid, *text("Hello"))
        await gone.written(1)
        gone.leave()
        await gone.end()
        wrong = await s.visit(body=BODY, headers={"content-type": "text/plain"}).end()
        assert wrong.status == 415
        first, second, third, fourth = await kept.records(4)
    assert first["status"] == 400
    assert first["error"] == {"code": "bad", "param": "messages", "message": "not [redacted:email]"}
    assert (first["response"], first["model"], first["response_id"]) == (None, None, None)
    assert (second["status"], second["error"]["code"]) == (200, "engine")
    assert second["response"]["choices"][0]["items"] == [{"type": "text", "text": "Hel"}]
    assert (third["status"], third["left"]) == (200, "stream")
    assert third["response"]["choices"][0]["items"] == [{"type": "text", "text": "Hello"}]
    assert third["response"]["choices"][0]["finish"] is None
    assert (fourth["status"], fourth["error"]["code"]) == (415, "unsupported_media_type")


async def test_a_background_response_leaves_two(tmp_path: Path) -> None:
    accept = {"echo": json.dumps({"store": True, "background": True}).encode(), "stream": False}
    body = json.dumps({"model": MODEL, "input": MAIL, "background": True}).encode()
    async with audited(accept) as (s, kept):
        s.tasks.start_soon(s.gateway.runs.serve)
        await anyio.wait_all_tasks_blocked()
        answer = await s.visit(path="/v1/responses", body=body).end()
        assert answer.json["status"] == "queued"
        rid = await s.peers.request()
        await s.peers.finish(rid, *text(MAIL))
        first, second = await kept.records(2)
    assert (first["kind"], second["kind"]) == ("request", "background")
    assert first["request"]["body"]["input"] == "[redacted:email]"
    assert first["response"] is None
    assert (second["request_id"], second["api"]) == (rid, "responses")
    assert second["response_id"] == answer.json["id"]
    assert second["response"]["choices"][0]["items"][0]["text"] == "[redacted:email]"
    assert (second["status"], second["usage"]["total_tokens"]) == (None, 12)


async def test_the_key_and_where_it_came_from(tmp_path: Path) -> None:
    key, key_id = new_key()
    file = tmp_path / "keys.toml"
    file.write_text(
        f'[[keys]]\nid = "{key_id}"\nname = "alice"\nowner = "team"\nhash = "{hash_of(key)}"\n'
    )
    headers = {"authorization": f"Bearer {key}", "x-forwarded-for": "192.0.2.7"}
    settings = {"api_keys_file": str(file), "audit_client_address": True}
    async with audited(**settings) as (s, kept):
        assert (await s.visit(body=BODY).end()).status == 401
        assert (await s.visit("GET", "/v1/nothing", body=b"").end()).status == 404
        assert (await s.visit("GET", "/v1/models", headers=headers, body=b"").end()).status == 200
        answer = s.visit("DELETE", "/v1/responses/resp_0", headers=headers, body=b"")
        assert (await answer.end()).status == 404
        (record,) = await kept.records()
    assert record["key"] == {"id": key_id, "name": "alice", "owner": "team"}
    assert record["client"] == {"address": None, "forwarded_for": "192.0.2.7"}
    assert (record["method"], record["route"]) == ("DELETE", "/v1/responses/{id}")
    assert key not in str(record)


async def test_long_bodies_and_answers_are_cut() -> None:
    async with audited(max_audit_content_bytes=2000, audit_content="full") as (s, kept):
        answer = s.visit(body=b'{"a":"' + b"x" * 3000 + b'"}')
        rid = await s.peers.request()
        for _ in range(5):
            await s.peers.say(rid, *text("y" * 450))
        await s.peers.finish(rid)
        await answer.end()
        (record,) = await kept.records()
    request = record["request"]
    assert (request["bytes"], request["body"], request["cut"]) == (3008, None, True)
    assert request["head"] == '{"a":"' + "x" * 1994
    assert record["response"]["cut"] is True
    assert record["response"]["choices"][0]["items"][0]["text"] == "y" * 1800
    assert record["usage"] is not None


async def test_an_answer_that_is_cut_does_not_end_in_half_a_secret() -> None:
    async with audited(max_audit_content_bytes=1000) as (s, kept):
        answer = s.visit(body=BODY)
        rid = await s.peers.request()
        await s.peers.say(rid, *text("z" * 900, " AKIAIOSFODNN7", "x" * 200))
        await s.peers.finish(rid)
        await answer.end()
        (record,) = await kept.records()
    assert "AKIA" not in str(record)


async def test_what_cannot_be_held_is_left_out_and_the_answer_goes_on() -> None:
    async with audited(max_audit_held_bytes=len(BODY) + 3) as (s, kept):
        await answered(s, *text("abc"), *text("def"))
        (record,) = await kept.records()
        assert record["request"]["cut"] is False
        assert record["response"]["cut"] is True
        await s.gateway.auditor.finish(20)
        assert s.gateway.auditor._budget.held == 0


async def test_what_the_sink_takes_no_more_of_goes_without_content() -> None:
    async with audited() as (s, kept):
        writer = s.gateway.auditor._writer
        assert writer is not None
        writer._max_record = 1500
        await answered(s, *text("x" * 3000))
        (record,) = await kept.records()
    assert (record["request"]["body"], record["request"]["cut"]) == (None, True)
    assert record["response"] == {"choices": None, "cut": True}
    assert record["usage"] is not None


async def test_a_full_queue_drops_and_counts_and_answers() -> None:
    async with audited(max_audit_queue=2) as (s, kept):
        kept.gate = anyio.Event()
        for number in range(1, 5):
            answer = s.visit(body=BODY)
            rid = await s.peers.request(number)
            await s.peers.finish(rid)
            assert (await answer.end()).status == 200
        outcome = "toolrail_gateway_audit_records_total"
        assert s.metric(outcome, outcome="dropped") == 2
        assert s.metric("toolrail_gateway_audit_queued") == 2
        kept.gate.set()
        await kept.records(2)
        await s.gateway.auditor.finish(20)
        assert s.metric(outcome, outcome="written") == 2
        assert s.gateway.auditor._budget.held == 0


async def test_records_wait_for_a_sink_that_is_away() -> None:
    async with audited() as (s, kept):
        kept.away = True
        await answered(s)
        await kept.refused()
        assert s.metric("toolrail_gateway_audit_sink_away") == 1
        kept.away = False
        await kept.records()
        await s.gateway.auditor.finish(20)
        assert s.metric("toolrail_gateway_audit_sink_away") == 0
        assert s.metric("toolrail_gateway_audit_records_total", outcome="failed") == 0


async def test_a_sink_that_stays_away_costs_records_and_says_so() -> None:
    async with audited(audit_retry_s=0.0) as (s, kept):
        kept.away = True
        await answered(s)
        with anyio.fail_after(20):
            while not s.metric("toolrail_gateway_audit_records_total", outcome="failed"):
                await kept.refused()
                await anyio.sleep(0.01)
        assert s.metric("toolrail_gateway_audit_queued") == 0


LOST = "toolrail_gateway_audit_records_total"


async def test_a_record_that_is_refused_keeps_no_other_waiting() -> None:
    async with audited(max_audit_queue=10) as (s, kept):
        kept.refuses, kept.gate = b"poison", anyio.Event()
        for number in range(1, 9):
            answer = s.visit(body=BODY)
            await s.peers.finish(await s.peers.request(number), *text("poison" * (number == 6)))
            await answer.end()
        kept.gate.set()
        records = {record["request_id"]: record for record in await kept.records(8)}
        assert len(records) == 8
        bare = [record for record in records.values() if record["request"]["cut"]]
        assert [(record["response"], record["status"]) for record in bare] == [
            ({"choices": None, "cut": True}, 200)
        ]
        await s.gateway.auditor.finish(20)
        assert (s.metric(LOST, outcome="written"), s.metric(LOST, outcome="failed")) == (8, 0)
        assert kept.offers <= 9  # it is found by halves


async def test_a_record_that_is_refused_without_content_too_is_lost_at_once() -> None:
    async with audited() as (s, kept):
        kept.refuses = b'"status":404'
        missing = "/v1/responses/resp_0"
        assert (await s.visit("GET", missing, body=b"").end()).status == 404
        await kept.refused()
        await answered(s)
        (record,) = await kept.records()
        assert record["status"] == 200
        await s.gateway.auditor.finish(20)
        assert (s.metric(LOST, outcome="written"), s.metric(LOST, outcome="failed")) == (1, 1)
        assert s.metric("toolrail_gateway_audit_queued") == 0


async def test_a_required_record_is_never_given_up() -> None:
    async with audited(audit_required=True, audit_content="none") as (s, kept):
        kept.refuses = b"request"
        await answered(s)
        with anyio.fail_after(20):
            while not s.metric("toolrail_gateway_audit_sink_away"):
                await kept.refused()
                await anyio.sleep(0.01)
        assert (await s.visit(body=BODY).end()).status == 503
        kept.refuses = b""
        await kept.records()
        await s.gateway.auditor.finish(20)
        assert (s.metric(LOST, outcome="written"), s.metric(LOST, outcome="failed")) == (1, 0)


async def test_required_records_refuse_requests_instead() -> None:
    async with audited(audit_required=True, audit_retry_s=0.0) as (s, kept):
        kept.away = True
        await answered(s)
        await kept.refused()
        refused = await s.visit(body=BODY).end()
        assert (refused.status, refused.error["code"]) == (503, "unavailable")
        assert "retry-after" in refused.headers
        assert (await s.visit("GET", "/v1/models", body=b"").end()).status == 200
        assert len(s.peers.prepared) == 1
        assert s.metric("toolrail_gateway_audit_records_total", outcome="refused") == 1
        kept.away = False
        await kept.records()
        await s.gateway.auditor.finish(20)
        again = s.visit(body=BODY)
        await s.peers.finish(await s.peers.request(2))
        assert (await again.end()).status == 200
        await kept.records(2)


async def test_required_records_have_their_place_in_the_queue_from_the_start() -> None:
    async with audited(audit_required=True, max_audit_queue=1) as (s, kept):
        running = s.visit(body=BODY)
        rid = await s.peers.request()
        assert (await s.visit(body=BODY).end()).status == 503
        await s.peers.finish(rid)
        assert (await running.end()).status == 200
        await kept.records()


async def test_required_bodies_that_cannot_be_held_are_refused() -> None:
    async with audited(audit_required=True, max_audit_held_bytes=10) as (s, kept):
        refused = await s.visit(body=BODY).end()
        assert (refused.status, refused.error["code"]) == (429, "overloaded")
        (record,) = await kept.records()
        assert record["status"] == 429
        assert record["request"]["cut"] is True


async def test_what_is_not_kept_when_the_process_ends_is_counted() -> None:
    async with audited() as (s, kept):
        kept.gate = anyio.Event()
        await answered(s)
        await s.gateway.auditor.finish(0.05)
        assert len(s.gateway.auditor) == 1  # the sink has it, whether it keeps it or not
        assert s.metric("toolrail_gateway_audit_records_total", outcome="failed") == 1
        s.tasks.cancel_scope.cancel()


async def test_a_request_that_is_cut_off_leaves_a_record() -> None:
    async with audited() as (s, kept):
        scope: dict[str, Any] = {
            "type": "http", "method": "POST", "path": "/v1/chat/completions",
            "query_string": b"", "headers": [],
        }  # fmt: skip
        answer = Answer()
        answer.push(BODY)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(s.app, scope, answer.receive, answer.send)
            await s.peers.say(await s.peers.request(), *text("Hello"))
            await answer.written(1)
            tasks.cancel_scope.cancel()
        (record,) = await kept.records()
    assert (record["status"], record["error"], record["usage"]) == (200, None, None)
    assert record["response"]["choices"][0]["items"] == [{"type": "text", "text": "Hello"}]


async def test_off_keeps_nothing() -> None:
    async with stack() as s:
        await s.gateway.auditor.start()
        await s.gateway.auditor.run()
        await answered(s)
        await s.gateway.auditor.finish(1)
        assert len(s.gateway.auditor) == 0


@pytest.mark.parametrize(
    ("audit", "why"),
    [
        ("file:", "must be"),
        ("stdout", "must be"),
        ("otlp", "--otlp-endpoint"),
        ("off:x", "must be"),
    ],
)
def test_settings_that_name_no_sink(audit: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        sink_of(GatewaySettings(audit=audit), MemoryBroker().connect())


def test_records_that_are_required_need_a_place(tmp_path: Path) -> None:
    bus, registry = MemoryBroker().connect(), CollectorRegistry()
    with pytest.raises(ConfigError, match="audit_required: needs"):
        auditor_of(GatewaySettings(audit_required=True), bus, registry)
    with pytest.raises(ConfigError, match="redaction_file"):
        auditor_of(GatewaySettings(redaction_file=str(tmp_path / "none")), bus, registry)


async def test_the_bus_keeps_records() -> None:
    async with stack(settings=GatewaySettings(instance="gw", audit="jetstream")) as s:
        await s.gateway.auditor.start()
        s.tasks.start_soon(s.gateway.auditor.run)
        rid = await answered(s)
        await s.gateway.auditor.finish(20)
        (data,) = s.broker.audit.values()
        assert json.loads(data)["request_id"] == rid


def test_a_transcript_puts_together_what_came_in_pieces() -> None:
    events: list[Event] = []
    for number in range(600):
        events += [*text(f"a{number}"), *text("b"), ReasoningDelta("r"), ReasoningDelta("s")]
    events += [CallStart(0, "f"), ArgumentsDelta(0, "{"), ArgumentsDelta(0, "}"), CallEnd(0)]
    budget = Budget(1 << 20)
    transcript = Transcript(budget, 1 << 20)
    transcript.feed([EventDelta("r", 0, 1, tuple(events[:1000]))])
    transcript.feed([EventDelta("r", 1, 1, tuple(events[1000:]), end=STOP, usage=USAGE)])
    kept = transcript.choices[1]
    assert assemble(kept.events) == assemble(events)
    assert assemble(joined(events)) == assemble(events)
    assert len(kept.events) < len(events)
    assert kept.finish == "stop"
    assert transcript.choices[0].events == []
    assert budget.held == transcript.held > 0


DOCUMENT = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


def test_the_document_knows_every_field() -> None:
    table = DOCUMENT.split("## A record", 1)[1].split("\n## ", 1)[0]
    described = re.findall(
        r"`(\w+)`",
        "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|")),
    )
    assert described == [field.name for field in msgspec.structs.fields(Record)]


def test_the_document_s_rules_can_be_used(tmp_path: Path) -> None:
    file = tmp_path / "redaction.toml"
    file.write_text(DOCUMENT.split("```toml\n", 1)[1].split("```", 1)[0], encoding="utf-8")
    assert redactor(str(file)).text("room 12, CUST-12345678") == (
        "room [redacted:room], [redacted:customer]"
    )
