"""`toolrail doctor`: each kind of fault is found, named, and comes with what to do."""

from __future__ import annotations

import functools
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.worker import model_files
from tests import stack as stacks
from toolrail.bus import subjects
from toolrail.bus.nats_state import StreamConfig, StreamContent, StreamState
from toolrail.chat_template import ChatTemplate
from toolrail.cli import diagnosis, main, streams
from toolrail.messages import Instance, ModelCard
from toolrail.settings import CommonSettings, model_directory
from toolrail.tokens import Tokenizer

PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
OTHER_CALLS = (
    "{% for t in tools %}{{ t.function.name }}{% endfor %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}CALL {{ c.function.name }} {{ c.function.arguments }}"
    "{% endfor %}\n{% endfor %}"
)


@functools.cache
def files() -> model_files.ModelFiles:
    return model_files.read(model_directory("demo"))


@functools.cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_json(files().tokenizer_json)


CARD = ModelCard(
    name="demo", worker="w", engine="scripted", context_length=8192, slots=4, vocab_size=49152,
    tokenizer="t", chat_template="c", eos_token_ids=(2,), tool_parser="hermes",
)  # fmt: skip


def found(card: ModelCard = CARD, template: str | None = None) -> dict[str, list[str]]:
    """The texts of what is found, by level."""
    source = files().chat_template if template is None else template
    written = ChatTemplate(source, bos_token="", eos_token="")
    findings = diagnosis.of_model(card, tokenizer(), written)
    texts: dict[str, list[str]] = {"ok": [], "warn": [], "fail": []}
    for finding in findings:
        assert finding.level != "fail" or finding.about == "model demo"
        texts[finding.level].append(finding.text)
    return texts


def changed(**fields: Any) -> ModelCard:
    return msgspec.structs.replace(CARD, **fields)


def test_a_model_in_order_has_no_fault() -> None:
    texts = found()
    assert texts["fail"] == []
    assert "the parser reads calls as the template writes them" in texts["ok"]
    assert "a forced call compiles against its vocabulary" in texts["ok"]


@pytest.mark.parametrize(
    ("card", "template", "says"),
    [
        (changed(vocab_size=100, eos_token_ids=(2,)), None, "the tokenizer has"),
        (changed(eos_token_ids=()), None, "no token ends its answers"),
        (changed(eos_token_ids=(50_000,)), None, "is not in its vocabulary"),
        (changed(tool_parser="absent"), None, "absent"),
        (CARD, PLAIN, "does not show tools"),
        (CARD, "{{ raise_exception('no tools here') }}", "fails with tools"),
        (CARD, OTHER_CALLS, "does not read a call as the template writes it"),
        (changed(tool_parser="mistral"), None, "does not read a call as the template writes it"),
    ],
)
def test_faults_of_a_model(card: ModelCard, template: str | None, says: str) -> None:
    texts = found(card, template)
    assert any(says in text for text in texts["fail"]), texts


def test_what_works_less_well_is_a_warning() -> None:
    assert any("not single tokens" in text for text in found()["warn"])
    assert any("no tool parser" in text for text in found(changed(tool_parser=None))["warn"])


def test_faults_of_processes() -> None:
    late = Instance(service="worker", instance="w", pid=1, started_ms=1_000_000)
    draining = Instance(service="worker", instance="d", pid=1, draining=True)

    def level(*instances: Instance, alive: bool = True, now_s: float = 1_000.0) -> list[str]:
        answers = {each.instance: alive for each in instances}
        each = diagnosis.of_instances("worker", instances, answers, now_s)
        return [finding.level for finding in each]

    assert level(late) == ["ok"]
    assert level(late, now_s=900.0) == ["fail"]
    assert level(late, alive=False) == ["warn"]
    assert level(draining) == ["fail", "ok"]
    assert level() == ["fail"]


NOW = datetime(2027, 1, 8, 12, tzinfo=UTC)
MIB = 1 << 20


def stream(mib: float, *, hours: float = 1, **bounds: Any) -> StreamState:
    """A stream that holds so much, the oldest of it so old."""
    fits: dict[str, Any] = {
        "subjects": [subjects.AUDIT_SUBJECTS],
        "max_bytes": 256 * MIB,
        "max_age": int(604_800e9),
    }
    content = StreamContent(
        messages=1234, bytes=int(mib * MIB), first_ts=NOW - timedelta(hours=hours)
    )
    return StreamState(StreamConfig(**(fits | bounds)), content)


def of_responses(found: StreamState | None, **settings: Any) -> list[tuple[str, str]]:
    said = streams.of_responses(found, CommonSettings(**settings), NOW)
    return [(finding.level, finding.text) for finding in said]


def of_records(
    found: StreamState | None, *, may_append: bool = True, **settings: Any
) -> list[tuple[str, str]]:
    said = streams.of_records(
        found,
        CommonSettings(**settings),
        NOW,
        max_payload_bytes=8 * MIB,
        may_append=may_append,
    )
    return [(finding.level, finding.text) for finding in said]


def test_room_for_stored_responses() -> None:
    half = stream(256, max_bytes=512 * MIB)
    assert of_responses(half) == [
        ("ok", "256 MiB in 1,234 messages, 50% of 512 MiB; the oldest of 60 min ago")
    ]
    ((level, text),) = of_responses(stream(500, hours=30, max_bytes=512 * MIB))
    assert (level, text.startswith("full: 500 MiB in")) == ("warn", True)
    assert of_responses(half, max_document_bytes=64 * MIB)[1:] == [
        ("warn", "the stream has 512 MiB, the settings say 64 MiB (--max-document-bytes)")
    ]
    assert of_responses(half, max_owner_document_bytes=512 * MIB)[1:] == [
        ("warn", "one owner of API keys may fill all of it: their bound is 512 MiB")
    ]
    assert of_responses(None)[0][0] == "fail"


def test_room_and_rules_for_audit_records() -> None:
    assert of_records(stream(128)) == [
        ("ok", "128 MiB in 1,234 messages, 50% of 256 MiB; the oldest of 60 min ago")
    ]
    assert of_records(stream(250))[0][0] == "warn"
    assert of_records(None)[0][0] == "warn"
    assert of_records(stream(1), may_append=False)[0] == ("fail", "this user may not append any")


@pytest.mark.parametrize(
    ("bounds", "level", "says"),
    [
        ({"subjects": ["other.>"]}, "fail", "does not take toolrail.v1.audit.*"),
        ({"discard": "new"}, "warn", "refuses what is new"),
        ({"max_bytes": 128 * MIB}, "warn", "the stream has 128 MiB, the settings say 256 MiB"),
        ({"max_age": 3600 * 10**9}, "warn", "kept 60 min, the settings say 7 days"),
        ({"max_msg_size": 1 << 19}, "warn", "takes none over 512 KiB"),
        ({"max_bytes": 32 * MIB}, "warn", "may have 8 MiB, all together 32 MiB"),
    ],
)
def test_bounds_that_do_not_fit(bounds: dict[str, Any], level: str, says: str) -> None:
    assert any(level == at and says in text for at, text in of_records(stream(1, **bounds)))


def test_who_may_look_at_audit_records() -> None:
    users = {
        user: streams.user_of(CommonSettings(nats_inbox_prefix=prefix))
        for user, prefix in {
            "gateway": "_INBOX_gateway", "worker": "_INBOX_worker", "": "_INBOX", "own": "mine",
        }.items()
    }  # fmt: skip
    assert users == {"gateway": "gateway", "worker": "worker", "": "", "own": ""}
    looks = [user for user, known in users.items() if streams.may_look_at_records(known)]
    assert looks == ["gateway", "", "own"]


def test_no_bus(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--nats-url", "nats://127.0.0.1:1", "--connect-timeout-s", "0.3", "--json"]
    assert main(["doctor", *flags]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["level"] == "fail"
    assert lines[0]["advice"]


@pytest.mark.nats
def test_a_running_stack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stacks.running(tmp_path, *stacks.scripted()) as stack:
        assert main(["doctor", "--nats-url", stack.status["nats_url"]]) == 0
    said = capsys.readouterr().out
    for service in ("gateway", "preprocessor", "postprocessor", "worker"):
        assert f"ok    {service} " in said
    assert "can be served" in said
    # The stack's bounds are the defaults, as doctor's are: nothing but how much there is.
    assert re.findall(r"^(\w+) +(?:stored responses|audit records): (.*)$", said, re.M) == [
        ("ok", "0 bytes in 0 messages, 0% of 512 MiB"),
        ("ok", "0 bytes in 0 messages, 0% of 256 MiB"),
    ]
