"""`toolrail doctor`: each kind of fault is found, named, and comes with what to do."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.worker import model_files
from tests import stack as stacks
from toolrail.chat_template import ChatTemplate
from toolrail.cli import diagnosis, main
from toolrail.messages import Instance, ModelCard
from toolrail.settings import model_directory
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
