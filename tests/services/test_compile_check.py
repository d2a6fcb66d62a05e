"""The compile check with its real processes: verdicts, budgets, sharing, recovery."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from services.preprocessor.compile_check import CompileCheck, _verdict
from services.preprocessor.compile_process import CompileProcess, CompileProcessError
from services.preprocessor.compile_worker import Answer, sample_tokens
from services.preprocessor.compile_worker import check as check_tag_in_worker
from tests.grammars.patch import PATCH
from toolrail.errors import CallerError, FaultError, QueueFullError
from toolrail.grammar import Vocabulary
from toolrail.settings import PreprocessorSettings
from toolrail.structural_tag.inputs import text_rules
from toolrail.tools import InputGrammar

SETTINGS = PreprocessorSettings(
    compile_workers=1,
    compile_timeout_s=20.0,
    compile_cpu_s=1.0,
    compile_slice_s=20.0,
    compile_cache_entries=8,
    compile_queue_timeout_s=30.0,
)


def tag(schema: object) -> str:
    return json.dumps(
        {
            "type": "structural_tag",
            "format": {"type": "json_schema", "json_schema": schema, "style": "json"},
        }
    )


def constant(number: int) -> str:
    return tag({"const": number})


def optional_atoms(count: int, letter: str = "a") -> str:
    """A pattern whose masks cost an engine minutes; it parses in milliseconds."""
    return tag({"type": "string", "pattern": f"^{f'[{letter}-zA-Z0-9_]?' * count}$"})


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal("asyncio") as portal:
        yield portal


@pytest.fixture(scope="module")
def check(portal: BlockingPortal) -> Iterator[CompileCheck]:
    """One check for all tests here: a process takes half a CPU second to load the engine."""
    check = portal.call(started)
    yield check
    portal.call(check.stop)


async def started() -> CompileCheck:
    check = CompileCheck(SETTINGS)
    await check.start()
    return check


async def refusal(check: CompileCheck, tag_json: str) -> CallerError:
    with pytest.raises(CallerError) as caught:
        await check.check(tag_json)
    return caught.value


def test_a_good_tag_passes_and_is_remembered(check: CompileCheck, portal: BlockingPortal) -> None:
    async def body() -> None:
        before = replace(check.stats)
        await check.check(constant(1))
        await check.check(constant(1))
        assert check.stats.compiled == before.compiled + 1
        assert check.stats.hits == before.hits + 1

    portal.call(body)


def test_a_refused_tag_is_a_400_with_the_reason_every_time(
    check: CompileCheck, portal: BlockingPortal
) -> None:
    async def body() -> None:
        before = replace(check.stats)
        for _ in range(2):
            error = await refusal(check, tag({"type": "any"}))
            assert error.status == 400
            assert error.code == "invalid_grammar"
            assert 'Unsupported type "any"' in error.message
        assert check.stats.refused == before.refused + 1
        assert check.stats.hits == before.hits + 1
        assert check.stats.replaced == before.replaced

    portal.call(body)


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (optional_atoms(200), "CPU"),
        (tag({"type": "string", "pattern": "(" * 200_000 + ")" * 200_000}), "crashes"),
    ],
    ids=["cpu", "crash"],
)
def test_a_hostile_tag_costs_its_process_and_nothing_else(
    check: CompileCheck, portal: BlockingPortal, hostile: str, reason: str
) -> None:
    async def body() -> None:
        before = replace(check.stats)
        error = await refusal(check, hostile)
        assert error.code == "grammar_too_expensive"
        assert reason in error.message
        assert check.stats.replaced == before.replaced + 1
        await refusal(check, hostile)
        assert check.stats.replaced == before.replaced + 1, "the verdict is remembered"
        await check.check(constant(2))

    portal.call(body)


@pytest.mark.exhaustive
def test_a_tag_that_compiles_fast_and_masks_slowly_is_too_expensive(
    check: CompileCheck, portal: BlockingPortal
) -> None:
    slow = tag({"type": "string", "pattern": '^([^"é]|xy){30,2000}$'})

    async def body() -> None:
        before = replace(check.stats)
        error = await refusal(check, slow)
        assert error.code == "grammar_too_expensive"
        assert check.stats.replaced <= before.replaced + 1

    portal.call(body)


def test_the_masks_of_an_ordinary_tag_cost_little() -> None:
    vocabulary = Vocabulary(sample_tokens())
    ordinary = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
        "additionalProperties": False,
    }
    answer = check_tag_in_worker(vocabulary, tag(ordinary))
    assert answer.error is None
    assert not answer.too_slow


def test_identical_checks_share_one_run(check: CompileCheck, portal: BlockingPortal) -> None:
    async def body() -> None:
        before = replace(check.stats)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(check.check, constant(3))
        assert check.stats.compiled == before.compiled + 1
        assert check.stats.joined == before.joined + 4

    portal.call(body)


def test_a_client_that_leaves_does_not_lose_the_verdict(
    check: CompileCheck, portal: BlockingPortal
) -> None:
    async def body() -> None:
        before = replace(check.stats)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(check.check, constant(4))
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await check.check(constant(4))
        assert check.stats.compiled == before.compiled + 1
        assert check.stats.hits == before.hits + 1

    portal.call(body)


def test_the_cache_is_bounded_and_forgets_the_oldest(
    check: CompileCheck, portal: BlockingPortal
) -> None:
    async def body() -> None:
        first = constant(100)
        for number in range(100, 101 + SETTINGS.compile_cache_entries):
            await check.check(constant(number))
        before = replace(check.stats)
        await check.check(first)
        assert check.stats.hits == before.hits
        assert check.stats.compiled == before.compiled + 1

    portal.call(body)


def test_a_process_that_is_killed_from_outside_is_replaced_and_the_check_passes(
    check: CompileCheck, portal: BlockingPortal
) -> None:
    async def body() -> None:
        before = replace(check.stats)
        for pid in check.processes:
            os.kill(pid, signal.SIGKILL)
        await check.check(constant(5))
        assert check.stats.replaced > before.replaced

    portal.call(body)


@pytest.mark.exhaustive
def test_a_long_check_leaves_a_process_for_the_others(portal: BlockingPortal) -> None:
    """One long turn, two processes: of two long checks one runs on, the other starts again."""
    settings = replace(SETTINGS, compile_slice_s=0.4, compile_cpu_s=1.0)

    async def body() -> None:
        check = CompileCheck(settings)
        await check.start()
        try:
            order: list[str] = []

            async def checked(name: str, tag_json: str) -> None:
                with pytest.raises(CallerError):
                    await check.check(tag_json)
                order.append(name)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(checked, "long", optional_atoms(200, "b"))
                tasks.start_soon(checked, "long", optional_atoms(200, "c"))
                tasks.start_soon(checked, "quick", tag({"type": "any"}))
            assert order == ["quick", "long", "long"]
        finally:
            await check.stop()

    portal.call(body)


@asynccontextmanager
async def all_busy(settings: PreprocessorSettings) -> AsyncGenerator[CompileCheck]:
    """A check whose two processes are at work for half a CPU second."""
    check = CompileCheck(replace(settings, compile_cpu_s=0.2))
    await check.start()
    try:
        async with anyio.create_task_group() as tasks:
            for letter in "de":
                tasks.start_soon(refusal, check, optional_atoms(200, letter))
            await anyio.lowlevel.checkpoint()
            yield check
    finally:
        await check.stop()


@pytest.mark.exhaustive
def test_whoever_waits_too_long_for_a_turn_is_told_to_come_again(portal: BlockingPortal) -> None:
    async def body() -> None:
        async with all_busy(replace(SETTINGS, compile_queue_timeout_s=0.05)) as check:
            with pytest.raises(QueueFullError):
                await check.check(constant(7))

    portal.call(body)


@pytest.mark.exhaustive
def test_when_the_first_of_identical_checks_leaves_the_queue_another_takes_over(
    portal: BlockingPortal,
) -> None:
    async def body() -> None:
        async with all_busy(SETTINGS) as check, anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                tasks.start_soon(check.check, constant(8))
                scope.cancel()
                await check.check(constant(8))
            assert scope.cancelled_caught
            await check.check(constant(8))
            assert check.stats.compiled == 1

    portal.call(body)


def test_after_stop_a_check_is_our_fault_and_no_process_is_left(portal: BlockingPortal) -> None:
    async def body() -> None:
        check = CompileCheck(SETTINGS)
        await check.start()
        pids = check.processes
        await check.stop()
        with pytest.raises(FaultError):
            await check.check(constant(6))
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    portal.call(body)


def test_a_process_that_cannot_start_is_our_fault(portal: BlockingPortal) -> None:
    async def body() -> None:
        process = await CompileProcess.start(cpu_s=1.0, memory_bytes=1 << 20)
        with pytest.raises(CompileProcessError):
            await process.ready()
        await process.kill()

    portal.call(body)


def test_the_sample_vocabulary_holds_every_byte() -> None:
    tokens = sample_tokens()
    assert {bytes((byte,)) for byte in range(256)} <= set(tokens)
    assert len(set(tokens)) == len(tokens)


@pytest.mark.exhaustive
def test_what_the_parent_once_held_does_not_count_against_its_child() -> None:
    """A new program begins with its parent's peak as its own, where the peak is what is asked."""
    held = bytearray(os.urandom(1 << 20) * 700)
    code = "from services.preprocessor.compile_worker import held_bytes; print(held_bytes())"
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, timeout=60, text=True
    )
    assert int(child.stdout) < len(held) // 2


def test_a_process_that_retires_says_nothing_of_the_tag() -> None:
    refusal = _verdict(Answer(error="Unsupported type", retire=True))
    assert refusal is not None
    assert refusal.code == "invalid_grammar"


@pytest.mark.parametrize(
    ("ebnf", "is_held"),
    [
        ('root ::= s\ns ::= s s | "a"', False),
        ('root ::= ("a"*)* "b"', False),
        (text_rules(InputGrammar("lark", 'start: a b a b\na: "a"*\nb: "a"*')), False),
        (text_rules(InputGrammar("lark", PATCH)), True),
        ('root ::= "[" (root ("," root)*)? "]"', True),
    ],
)
def test_a_grammar_in_which_a_text_has_ever_more_readings_is_refused(
    ebnf: str, is_held: bool
) -> None:
    """It compiles at once and its first tokens cost nothing: the later a token, the dearer."""
    found = check_tag_in_worker(
        Vocabulary(sample_tokens()),
        json.dumps(
            {"type": "structural_tag", "format": {"type": "grammar", "grammar": ebnf}},
            separators=(",", ":"),
        ),
    )
    assert found.too_slow is not is_held
    assert (found.error is None) is is_held
