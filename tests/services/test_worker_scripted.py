"""The scripted engine: what a script plays, and when."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from services.worker.engine import DuplicateRunError, EngineDeadError, RefusedError, Step
from services.worker.scripted import script
from services.worker.scripted.engine import ScriptedEngine
from services.worker.scripted.script import FIXED_SENTENCE
from tests.services.worker_kit import END_ID, TOKENIZER, ids, job, scripted, turns, until
from toolrail.errors import ConfigError
from toolrail.messages import Job, Sampling

pytestmark = pytest.mark.anyio


async def steps(engine: ScriptedEngine, one: Job) -> list[Step]:
    with anyio.fail_after(10):
        return [step async for step in engine.generate(one, trace_headers={})]


async def played(engine: ScriptedEngine, one: Job) -> str:
    found = [i for step in await steps(engine, one) for i in step.token_ids]
    return TOKENIZER.decode(i for i in found if i != END_ID)


async def test_the_first_row_whose_match_is_in_the_prompt_is_played() -> None:
    engine = scripted(
        {"match": "weather", "text": "It rains."},
        {"match": "wea", "text": "never"},
        {"match": "<|im_end|>", "token_ids": [40, 41]},
    )
    assert await played(engine, job(prompt="the weather?")) == "It rains."
    assert await played(engine, job(prompt="a turn<|im_end|>")) == TOKENIZER.decode([40, 41])
    assert await played(engine, job(prompt="else")) == FIXED_SENTENCE


@pytest.mark.parametrize(
    ("chunks", "sizes"), [(1, [1, 1, 1, 1, 1]), (3, [3, 2]), ([2, 1], [2, 1, 1, 1]), (9, [5])]
)
async def test_chunk_sizes_are_followed_and_the_last_one_repeats(
    chunks: int | list[int], sizes: list[int]
) -> None:
    found = await steps(scripted({"text": "abcd", "chunk_tokens": chunks}), job())
    assert [len(step.token_ids) for step in found] == sizes


@pytest.mark.parametrize(
    ("row", "sampling", "text", "finish", "stop_token_id"),
    [
        ({"text": "abc"}, {}, "abc<|im_end|>", "stop", None),
        ({"text": "abc"}, {"ignore_eos": True}, "abc<|im_end|>", "stop", None),
        ({"text": "abc", "finish": "length"}, {}, "abc", "length", None),
        ({"text": "abc", "finish": "error"}, {}, "abc", "error", None),
        ({"text": "abc"}, {"max_tokens": 2}, "ab", "length", None),
        ({"text": "abc"}, {"max_tokens": 3}, "abc", "length", None),
        ({"text": "abc"}, {"stop_token_ids": (ids("b")[0],)}, "ab", "stop", ids("b")[0]),
        ({"text": "abc", "finish": "error"}, {"stop_token_ids": ids("b")}, "ab", "stop", *ids("b")),
        ({"text": "a<|im_end|>bc"}, {}, "a<|im_end|>", "stop", None),
        (
            {"text": "a<|im_end|>bc", "finish": "length"},
            {"ignore_eos": True},
            "a<|im_end|>bc",
            "length",
            None,
        ),
        ({"text": ""}, {}, "<|im_end|>", "stop", None),
        ({}, {}, "<|im_end|>", "stop", None),
    ],
)
async def test_how_a_run_ends(
    row: dict[str, Any],
    sampling: dict[str, Any],
    text: str,
    finish: str,
    stop_token_id: int | None,
) -> None:
    one = job(sampling=Sampling(**{"max_tokens": 100} | sampling))
    found = await steps(scripted(row), one)
    assert [step.finish for step in found[:-1]] == [None] * (len(found) - 1)
    assert (found[-1].finish, found[-1].stop_token_id) == (finish, stop_token_id)
    assert TOKENIZER.decode(i for step in found for i in step.token_ids) == text


async def test_a_resumed_job_goes_on_after_its_prefix_and_counts_it() -> None:
    engine = scripted({"text": "abcdef"})
    resumed = job(prefix_token_ids=ids("abc"), attempt=1)
    assert await played(engine, resumed) == "def"
    short = job(prefix_token_ids=ids("abc"), sampling=Sampling(max_tokens=4))
    found = await steps(engine, short)
    assert [(step.token_ids, step.finish) for step in found] == [(ids("d"), "length")]
    done = job(prefix_token_ids=(*ids("abcdef"), END_ID))
    assert [(s.token_ids, s.finish) for s in await steps(engine, done)] == [((), "stop")]


async def test_logprobs_come_one_for_each_id_with_the_chosen_one_first() -> None:
    found = await steps(scripted({"text": "ab"}), job(sampling=Sampling(max_tokens=9, logprobs=2)))
    for step in found:
        assert step.logprobs is not None
        for token_id, logprob in zip(step.token_ids, step.logprobs, strict=True):
            assert logprob.token_id == logprob.top[0].token_id == token_id
            assert [top.logprob for top in logprob.top] == sorted(
                (top.logprob for top in logprob.top), reverse=True
            )
            assert len({top.token_id for top in logprob.top}) == 2
    plain = await steps(scripted({"text": "ab"}), job(sampling=Sampling(max_tokens=9, logprobs=0)))
    assert [entry.top for step in plain for entry in step.logprobs or ()] == [(), (), ()]


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ((), "the prompt is empty"),
        ((1, 99_999), "outside the vocabulary"),
        ((1, -1), "outside the vocabulary"),
        ((1,) * 4096, "4096 tokens, the context 4096"),
    ],
)
async def test_a_prompt_that_cannot_be_run_is_refused(prompt: tuple[int, ...], reason: str) -> None:
    one = Job(
        request_id="r",
        model="m",
        reply_subject="x",
        prompt_token_ids=prompt,
        sampling=Sampling(max_tokens=1),
    )
    with pytest.raises(RefusedError, match=reason):
        await steps(scripted(), one)


async def test_a_second_run_of_a_live_choice_is_refused_and_the_first_goes_on() -> None:
    engine = scripted({"text": "abc", "ttft_ms": 30})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(steps, engine, job())
        await until(lambda: engine.live)
        with pytest.raises(DuplicateRunError):
            await steps(engine, job(attempt=1))
        assert await played(engine, job(choice=1)) == "abc"
        assert engine.started == 2
    assert engine.live == set()


async def test_abort_ends_a_run_with_its_last_word_at_once() -> None:
    engine = scripted({"text": "abc", "ttft_ms": 3_600_000})
    found: list[Step] = []

    async def run() -> None:
        found.extend(await steps(engine, job()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await until(lambda: engine.live)
        await turns()
        await engine.abort("nobody/0")
        await engine.abort("r/0")
        assert engine.live == set()
    assert found == [Step(finish="abort")]


async def test_abort_ends_a_run_whose_end_is_made_and_not_taken() -> None:
    engine = scripted({"text": "abc", "chunk_tokens": 1})
    stream = engine.generate(job(), trace_headers={})
    first = await anext(stream)
    await turns()  # the rest is made while nobody takes it
    await engine.abort("r/0")
    with anyio.fail_after(10):
        rest = [step async for step in stream]
    assert first.finish is None
    assert rest == [Step(finish="abort")]


async def test_a_run_whose_reader_leaves_frees_its_slot() -> None:
    engine = scripted({"text": "abc"})
    stream = engine.generate(job(), trace_headers={})
    await anext(stream)
    await stream.aclose()
    assert engine.live == set()


async def test_after_its_death_nothing_runs() -> None:
    engine = scripted({"text": "abc", "ttft_ms": 3_600_000})
    await engine.health()
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            with pytest.raises(EngineDeadError):
                await steps(engine, job())

        tasks.start_soon(run)
        await until(lambda: engine.live)
        engine.kill()
    with pytest.raises(EngineDeadError):
        await engine.health()
    with pytest.raises(EngineDeadError):
        await steps(engine, job())


async def test_paced_steps_are_shared_by_runs_that_began_at_different_times() -> None:
    engine = scripted({"text": "x" * 8}, slots=8, step_s=0.01)

    async def later(number: int) -> None:
        await anyio.sleep(number * 0.003)
        await steps(engine, job(f"r{number}"))

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(later, number)
    # 9 steps each; starts are spread over 3 ticks, and a loaded machine may miss one.
    assert engine.steps <= 20


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "a"', "line 2: Input data was truncated"),
        ('{"txt": "a"}', "line 2: .*unknown field `txt`"),
        ('{"text": "a", "token_ids": [1]}', "line 2: `text` and `token_ids` exclude each other"),
        ('{"chunk_tokens": 0}', "line 2: .*chunk_tokens"),
        ('{"chunk_tokens": []}', "line 2: .*chunk_tokens"),
        ('{"finish": "abort"}', "line 2: .*finish"),
        ('{"delay_ms": -1}', "line 2: .*delay_ms"),
    ],
)
async def test_a_bad_row_is_named(line: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        script.parse(["", line])


async def test_a_script_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "script.jsonl"
    path.write_text(json.dumps({"text": "ü"}) + "\n\n", encoding="utf-8")
    assert [row.text for row in script.load(str(path))] == ["ü"]
    assert script.load("") == ()
    with pytest.raises(ConfigError, match="cannot read"):
        script.load(str(tmp_path / "none"))


async def test_the_documented_script_is_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "scripted-engine.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    rows = script.parse(example.splitlines())
    assert [row.match for row in rows] == ["weather", "slow", ""]
    fields = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)))
    assert set(fields) == set(script.Row.__struct_fields__)
