"""The worker service from its flags to its model card, with a tiny model directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client import REGISTRY, Counter, generate_latest

from services.worker import card, parsers
from services.worker.main import main, resolved
from tests.services.worker_kit import END, END_ID, Inbox, ids, until, write_tiny_model
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.directory import Directory
from toolrail.errors import ConfigError
from toolrail.messages import Job, Sampling, encode
from toolrail.service import Runtime, serving
from toolrail.settings import WorkerSettings
from toolrail.structural_tag import TagOptions

pytestmark = pytest.mark.anyio


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny-model")


def settings(directory: Path, **more: Any) -> WorkerSettings:
    base = WorkerSettings(
        model=str(directory), engine="scripted", tool_call_parser="hermes", slots=3
    )
    return replace(base, **more)


@asynccontextmanager
async def running(own: WorkerSettings) -> AsyncIterator[tuple[Runtime[WorkerSettings], Directory]]:
    """The service on a bus of its own, with a directory to find it in."""
    broker = MemoryBroker()
    directory = Directory(broker.connect())
    await directory.start()
    async with (
        serving("worker", own, broker.connect()) as runtime,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(main, runtime)
        yield runtime, directory
        runtime.stopping.set()


async def test_the_card_says_what_the_flags_and_the_files_say(tiny_model: Path) -> None:
    own = settings(
        tiny_model,
        reasoning_parser="qwen3",
        structural_tag='{"scope": "auto"}',
        exclude_tools_when_tool_choice_none=False,
        max_model_len=100,
    )
    async with running(own) as (runtime, directory):
        await until(lambda: directory.card("tiny-model"))
        (found,) = directory.workers("tiny-model")
        assert found.worker == runtime.instance
        assert (found.engine, found.slots, found.context_length) == ("scripted", 3, 100)
        assert found.vocab_size == END_ID + 3
        assert (found.tool_parser, found.reasoning_parser) == ("hermes", "qwen3")
        assert found.structural_tag == TagOptions(scope="auto")
        assert found.exclude_tools_when_tool_choice_none is False
        assert (found.eos_token_ids, found.bos_token, found.eos_token) == ((END_ID,), None, END)
        assert await directory.chat_template_source(found) == "{{ messages }}"
        tokenizer = await directory.tokenizer(found)
        assert tokenizer.encode_now(f"hi{END}") == [*ids("hi"), END_ID]
    await until(lambda: directory.card("tiny-model") is None)


async def test_it_serves_jobs_under_its_served_name_and_counts_them(tiny_model: Path) -> None:
    script = tiny_model / "script.jsonl"
    script.write_text('{"text": "served"}\n', encoding="utf-8")
    own = settings(tiny_model, served_model_name="Org/Tiny 1", script=str(script))
    async with running(own) as (runtime, directory):
        inbox = Inbox()
        await runtime.bus.subscribe(subjects.tokens("post-1"), inbox.receive)
        await until(lambda: directory.card("Org/Tiny 1"))
        job = Job(
            request_id="r",
            model="Org/Tiny 1",
            prompt_token_ids=ids("hi"),
            sampling=Sampling(max_tokens=100),
            reply_subject=subjects.tokens("post-1"),
        )
        await runtime.bus.work.put("Org/Tiny 1", encode(job), message_id="m", timeout_s=1)
        await inbox.ended()
        assert inbox.text() == "served"
        await until(lambda: b'runs_total{outcome="stop"} 1.0' in generate_latest(runtime.metrics))
        text = generate_latest(runtime.metrics).decode()
        assert "toolrail_worker_output_tokens_total 7.0" in text
        assert "toolrail_worker_slots 3.0" in text
        assert "toolrail_worker_time_to_first_token_seconds_count 1.0" in text


async def test_the_engines_own_series_are_shown_beside_the_workers(tiny_model: Path) -> None:
    series = Counter("vllm:prefix_cache_hits", "Stands in for the engine's.")
    try:
        series.inc(3)
        async with running(settings(tiny_model)) as (runtime, directory):
            await until(lambda: directory.card("tiny-model"))
            text = generate_latest(runtime.metrics).decode()
            assert "vllm:prefix_cache_hits_total 3.0" in text
            assert "python_info" not in text
    finally:
        REGISTRY.unregister(series)


async def test_obeying_tags_needs_nothing_but_the_flag(tiny_model: Path) -> None:
    async with running(settings(tiny_model, obey_tag=True)) as (_, directory):
        await until(lambda: directory.card("tiny-model"))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"tool_call_parser": "nope"}, "tool_call_parser: 'nope' is no parser; .*hermes"),
        ({"reasoning_parser": "nope"}, "reasoning_parser: 'nope' is no parser; .*qwen3"),
        ({"structural_tag": '{"scope": "sometimes"}'}, "structural_tag: .*scope"),
        ({"structural_tag": '{"zone": 1}'}, "structural_tag: .*zone"),
        ({"script": "/nowhere"}, "script: cannot read"),
        ({"custom_jinja_template": "/nowhere"}, "custom-jinja-template: cannot read"),
        ({"model": "/nowhere"}, "model: no model directory"),
    ],
)
async def test_what_cannot_work_stops_it_at_its_start_and_is_named(
    tiny_model: Path, more: dict[str, Any], reason: str
) -> None:
    async with serving("worker", settings(tiny_model, **more), MemoryBroker().connect()) as runtime:
        with pytest.raises(ConfigError, match=reason):
            await main(runtime)


async def test_a_model_that_names_no_end_of_text_is_refused(tiny_model: Path) -> None:
    (tiny_model / "config.json").write_text("{}", encoding="utf-8")
    async with serving("worker", settings(tiny_model), MemoryBroker().connect()) as runtime:
        with pytest.raises(ConfigError, match="model: does not say which token ends a turn"):
            await main(runtime)


@pytest.mark.parametrize(
    ("given", "tool", "reasoning"),
    [
        ({"model": "demo"}, "hermes", ""),
        ({"model": "demo-think"}, "hermes", "qwen3"),
        ({"model": "demo", "tool_call_parser": "qwen3_coder"}, "qwen3_coder", ""),
        ({"model": "demo", "reasoning_parser": "basic"}, "hermes", "basic"),
        ({"model": "/some/model"}, "", ""),
    ],
)
async def test_the_demo_models_imply_their_parsers(
    given: dict[str, str], tool: str, reasoning: str
) -> None:
    found = resolved(WorkerSettings(**given))
    assert (found.tool_call_parser, found.reasoning_parser) == (tool, reasoning)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"model": "demo"}, "demo"),
        ({"model": "/models/Org--Name/"}, "Org--Name"),
        ({"model": "demo", "served_model_name": "mine"}, "mine"),
    ],
)
async def test_the_name_that_clients_use(given: dict[str, str], name: str) -> None:
    assert card.served_name(WorkerSettings(**given)) == name


async def test_no_parsers_at_all_is_a_choice() -> None:
    await parsers.check(WorkerSettings(model="/some/model"))
