"""Checks after generation: what they say, what they cost, and how a stream waits for them."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.postprocessor.batch import Batch
from services.postprocessor.checking import (
    MAX_CHARACTERS,
    Check,
    Checker,
    InputChecker,
    Kept,
    Verdict,
)
from services.postprocessor.choice import Choice, Plan
from services.postprocessor.stream import Outcome
from tests.services.postprocessing import ToyParser, choice, delta, plan
from tests.services.postprocessor_bench import MODEL, Bench, bench, stream, until
from tests.services.test_postprocessor_streams import frame, sent, table
from tests.services.test_postprocessor_streams import stream as owned
from toolrail.events import CallEnd, assemble
from toolrail.messages import Checks, ChoiceEnd, Output
from toolrail.parsing import ParseSpec
from toolrail.telemetry import Telemetry
from toolrail.tools import InputGrammar, Tool

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 4},
        "legs": {"type": "array", "items": {"properties": {"a/b": {"minimum": 0}}}},
    },
    "additionalProperties": {"type": "integer"},
}
PATTERN = {"type": "object", "properties": {"code": {"type": "string", "pattern": "^[a-z]{3}$"}}}


def verdict(schema: object, value: object) -> Verdict:
    return Checker("f", schema).in_full(json.dumps(value))


@pytest.mark.parametrize(
    ("value", "broken"),
    [
        ({"city": "Paris"}, ("#/city/maxLength",)),
        ({"legs": [{}, {"a/b": -1}]}, ("#/legs/*/a~1b/minimum",)),
        ({"my secret": "x"}, ("#/*/type",)),
        ([1], ("#/type",)),
    ],
)
def test_places_are_those_of_the_declared_schema(value: object, broken: tuple[str, ...]) -> None:
    assert verdict(SCHEMA, value) == Verdict("f", "invalid", broken)


@pytest.mark.parametrize("text", ["", "{", '{"city": 1, "city": 2}', "[" * 100_000, "NaN"])
def test_text_that_is_no_json_is_invalid_and_not_repeated(text: str) -> None:
    found = Checker("f", SCHEMA).in_full(text)
    assert found.result == "invalid"
    assert found.broken[0] in ("#", "#/city/type")


def test_what_cannot_be_judged_is_unchecked() -> None:
    assert verdict({"$ref": "https://example.com/x"}, {}).result == "unchecked"


def test_a_small_check_is_made_at_once_and_a_large_one_is_not() -> None:
    checker = Checker("f", SCHEMA)
    assert checker.at_once('{"city": "Rome"}') == Verdict("f", "valid")
    many = json.dumps({"legs": [{"a/b": 1}] * 400})
    assert len(many) < 16_000
    assert checker.at_once(many) is None
    assert checker.in_full(many) == Verdict("f", "valid")
    assert checker.at_once(json.dumps({"city": "x" * 20_000})) is None


def test_expressions_are_never_matched_on_the_event_loop() -> None:
    checker = Checker("f", PATTERN)
    assert checker.at_once('{"code": "abc"}') is None
    assert checker.in_full('{"code": "abc"}').result == "valid"
    assert checker.in_full('{"code": "ABC"}').broken == ("#/code/pattern",)
    assert checker.at_once('{"code": 3}') == Verdict("f", "invalid", ("#/code/type",))


def test_an_input_is_checked_against_the_tool_s_grammar() -> None:
    digits = InputChecker("g", InputGrammar("regex", "[0-9]{2,}"))
    texts = ['{"input": "12"}', '{"input": "1x"}', '{"other": 1}']
    assert [digits.at_once(text) for text in texts] == [None] * 3
    verdicts = [digits.in_full(text) for text in texts]
    assert [verdict.result for verdict in verdicts] == ["valid", "invalid", "invalid"]
    assert verdicts[1].message == "The model's call of 'g' breaks its grammar."
    unread = InputChecker("g", InputGrammar("lark", "start: missing"))
    assert unread.in_full(texts[0]).result == "unchecked"


def test_a_text_that_is_too_long_is_not_kept() -> None:
    kept = Kept(Checker("f", SCHEMA))
    kept.add("x" * MAX_CHARACTERS)
    assert kept.check().text is not None
    kept.add("x")
    kept.add("x" * 10)
    assert kept.check().text is None
    assert kept.check().at_once() == Verdict("f", "unchecked")


def checked_plan(schema: object = SCHEMA, *, answer: object = None) -> Plan:
    made = plan(Output(), reasons=False)
    return Plan(
        tokenizer=made.tokenizer,
        output=made.output,
        stop=made.stop,
        ends=made.ends,
        tools=frozenset({"f", "g"}),
        checkers={"f": Checker("f", schema)} if schema is not None else {},
        answer=None if answer is None else Checker("", answer),
    )


def test_where_violations_fail_a_call_of_no_tool_does_though_no_tool_is_checked() -> None:
    """A grammar held all of them, or there were none: an engine may not keep to it."""
    made = plan(Output(checks=Checks(fails=True)), reasons=False)
    assert not made.checkers
    one = owned(Choice(made, ToyParser()))
    one.fails = True
    batch = table(one).on_frame(frame(delta("a[nobody:{}]", finish="stop")), 0)
    (last,) = sent(batch)
    assert last.failed is not None
    assert last.failed.code == "model_output"


def checks(text: str, made: Plan, *, finish: str = "stop") -> list[Check]:
    one = Choice(made, ToyParser())
    return one.feed(delta(text, finish=finish)).checks


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ('[f:{"city": 1}]', ['{"city": 1}']),
        ("[g:{}]", []),
        ("[f:{}][g:{}][f:{1}]", ["{}", "{1}"]),
        ('[f:{"city"', []),
        ("[h:{}]", [None]),
        ("words", []),
    ],
)
def test_complete_calls_of_checked_tools_are_checked(text: str, texts: list[str | None]) -> None:
    assert [check.text for check in checks(text, checked_plan())] == texts


def test_an_answer_is_checked_when_it_is_one() -> None:
    made = checked_plan(None, answer=SCHEMA)
    assert [check.text for check in checks("12", made)] == ["12"]
    assert checks("12", made, finish="length") == []
    assert checks("12[g:{}]", made) == []


# A stream that fails on violations waits for checks that take long.

LATER = '[f:{"code": "ABC"}]'
FINE = '[f:{"code": "abc"}]'


def failing_choice() -> Choice:
    return Choice(checked_plan(PATTERN), ToyParser())


def held(batch: Batch) -> Outcome:
    (happening,) = batch.happenings
    assert happening.outcome.checks
    return happening.outcome


def made(outcome: Outcome) -> list[Verdict]:
    return [check.in_full() for check in outcome.checks]


def test_what_is_checked_leaves_after_its_verdict_and_the_rest_in_order() -> None:
    one = owned(failing_choice(), choice())
    one.fails = True
    streams = table(one)
    outcome = held(streams.on_frame(frame(delta(f"a{FINE}")), 0))
    parked = streams.on_frame(frame(delta("b", 1), delta("other", choice=1), delta("c", 2)), 0)
    assert [d.choice for d in sent(parked)] == [1]
    released = streams.on_verdicts(one, outcome.choice, made(outcome), 0)
    turn = assemble([event for d in sent(released) for event in d.events])
    assert turn.content == "abc"
    assert [call.arguments for call in turn.calls] == ['{"code": "abc"}']
    last = streams.on_frame(
        frame(delta("", 3, finish="stop"), delta("", 1, choice=1, finish="stop")), 0
    )
    seqs = [d.seq for batch in (parked, released, last) for d in sent(batch)]
    assert seqs == list(range(len(seqs)))
    assert sent(last)[-1].usage is not None


def test_a_parked_call_is_checked_in_its_turn() -> None:
    one = owned(failing_choice())
    one.fails = True
    streams = table(one)
    outcome = held(streams.on_frame(frame(delta(FINE)), 0))
    streams.on_frame(frame(delta(LATER, 1), delta("end", 2, finish="stop")), 0)
    released = streams.on_verdicts(one, 0, made(outcome), 0)
    second = released.happenings[-1].outcome
    assert second.checks
    assert not one.over
    last = streams.on_verdicts(one, 0, made(second), 0)
    failed = sent(last)[-1].failed
    assert failed is not None
    assert (failed.code, failed.status) == ("model_output", 502)
    assert failed.message == "The model's call of 'f' breaks its schema: '#/code/pattern'."
    assert [cancel.request_id for _, cancel in last.cancels] == ["r"]


def test_an_error_waits_for_the_check_of_what_came_before_it() -> None:
    one = owned(failing_choice())
    one.fails = True
    streams = table(one)
    outcome = held(streams.on_frame(frame(delta(FINE)), 0))
    assert sent(streams.on_frame(frame(delta("x", 1, finish="error", error="e")), 0)) == []
    *said, last = sent(streams.on_verdicts(one, 0, made(outcome), 0))
    assert CallEnd(0) in said[0].events
    assert last.failed is not None
    assert last.failed.code == "engine"


def test_a_stream_that_was_cancelled_while_it_waited_says_nothing_more() -> None:
    one = owned(failing_choice())
    one.fails = True
    streams = table(one)
    outcome = held(streams.on_frame(frame(delta(LATER)), 0))
    one.cancel(None, "client left")
    assert streams.on_verdicts(one, 0, made(outcome), 0) == Batch()


def test_a_bug_of_the_parser_behind_a_check_fails_the_stream_alone() -> None:
    one = owned(failing_choice())
    one.fails = True
    streams = table(one)
    outcome = held(streams.on_frame(frame(delta(FINE)), 0))
    streams.on_frame(frame(delta("[f:!", 1)), 0)
    last = streams.on_verdicts(one, 0, made(outcome), 0)
    assert last.happenings[-1].bug is not None
    assert sent(last)[-1].failed is not None


def test_a_violation_that_is_only_reported_changes_nothing() -> None:
    streams = table(owned(Choice(checked_plan(), ToyParser())))
    batch = streams.on_frame(frame(delta('[f:{"city": "Paris"}]', finish="stop")), 0)
    assert sent(batch)[-1].end == ChoiceEnd("stop")
    assert CallEnd(0) in sent(batch)[-1].events
    (happening,) = batch.happenings
    assert [v.result for v in happening.outcome.verdicts] == ["invalid"]


# The service.

HERMES = '<tool_call>\n{"name": "f", "arguments": {"code": "ABC"}}\n</tool_call>'


def request(*, fails: bool, schema: dict[str, Any] = PATTERN) -> Any:
    return stream(
        parse=ParseSpec(tool_parser="hermes", tools=(Tool("f", schema),)),
        output=Output(checks=Checks(tools=("f",), fails=fails)),
    )


async def written(b: Bench, text: str, *, fails: bool) -> None:
    (job,) = await b.opened(request(fails=fails))
    await b.worker.send(b.worker.delta(job, text, finish="stop"))


@pytest.mark.anyio
@pytest.mark.parametrize("fails", [False, True])
async def test_long_checks_are_made_in_a_thread(*, fails: bool) -> None:
    async with bench() as b, anyio.create_task_group() as tasks:
        await written(b, HERMES, fails=fails)
        if fails:
            await until(lambda: b.metric("tokens_total"))
            assert b.gateway.deltas() == []
        tasks.start_soon(b.postprocessor.check)
        last = await b.gateway.last()
        await until(lambda: b.metric("checks_total", family="hermes", result="invalid"))
        assert (last.failed is not None) is fails
        # A call that is checked is counted once, by its verdict.
        invalid, valid = (
            b.metric("calls_total", model=MODEL, family="hermes", outcome=outcome)
            for outcome in ("invalid", "valid")
        )
        assert (invalid, valid) == (1, 0)
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_checks_that_are_too_many_are_given_up() -> None:
    async with bench(max_argument_checks=1) as b:
        one, two = await b.opened(
            request(fails=True),
            stream("s", parse=request(fails=True).parse, output=request(fails=True).output),
        )
        await b.worker.send(b.worker.delta(one, HERMES, finish="stop"))
        await b.worker.send(b.worker.delta(two, HERMES, finish="stop"))
        assert (await b.gateway.last("s")).end == ChoiceEnd("stop")
        assert b.metric("checks_total", family="hermes", result="unchecked") == 1
        assert len(b.postprocessor) == 1


@pytest.mark.anyio
async def test_a_trace_says_what_was_broken_even_after_the_end_and_no_values() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with (
        bench(telemetry=Telemetry(provider)) as b,
        anyio.create_task_group() as tasks,
    ):
        await written(b, HERMES, fails=False)
        await b.gateway.last()
        assert "stream" not in {span.name for span in exporter.get_finished_spans()}
        tasks.start_soon(b.postprocessor.check)
        await until(lambda: b.metric("checks_total", family="hermes", result="invalid"))
        tasks.cancel_scope.cancel()
    (span,) = (span for span in exporter.get_finished_spans() if span.name == "stream")
    (event,) = (event for event in span.events if event.name == "toolrail.check")
    assert event.attributes == {
        "toolrail.result": "invalid",
        "gen_ai.tool.name": "f",
        "toolrail.broken": ("#/code/pattern",),
    }
    assert "ABC" not in span.to_json()
