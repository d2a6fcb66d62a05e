"""Walks of `--obey-tag`: what the grammar says holds, and they close in time."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from threading import Event
from typing import Any

import anyio
import jsonschema
import pytest

from services.worker.engine import EngineDeadError, EngineFailedError, RefusedError
from services.worker.scripted.closing import Closing
from services.worker.scripted.engine import ScriptedEngine
from services.worker.scripted.playback import Output
from services.worker.scripted.script import parse
from services.worker.scripted.trail import Trail, literals
from services.worker.scripted.walk import GrammarWalker, constraint
from services.worker.scripted.work import SLICE_WORK, WALK_WORK, WalkAbandonedError, Work
from tests.services.worker_kit import END_ID, TOKENIZER, ids, job, model, until
from toolrail.errors import ConfigError
from toolrail.events import CallEnd
from toolrail.families import dialect, families
from toolrail.grammar import accepts, compile_tag
from toolrail.messages import Guidance, Job, Sampling
from toolrail.parsing import ParseSpec
from toolrail.structural_tag import TagOptions
from toolrail.tools import Tool, ToolChoice, ToolPolicy

CALL_ID = TOKENIZER.special_tokens["<tool_call>"]
OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": False}
SCHEMAS: dict[str, dict[str, Any]] = {
    "string, enum, numbers": OBJECT
    | {
        "properties": {
            "city": {"type": "string"},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "factor": {"type": "number"},
        },
        "required": ["city", "unit", "days", "factor"],
    },
    "nested": OBJECT
    | {
        "properties": {
            "rows": {
                "type": "array",
                "minItems": 2,
                "maxItems": 3,
                "items": OBJECT
                | {
                    "properties": {"é": {"type": "boolean"}, "n": {"type": ["integer", "null"]}},
                    "required": ["é", "n"],
                },
            }
        },
        "required": ["rows"],
    },
    "many optional before one required": OBJECT
    | {
        "properties": {**{f"option_{i}": {"type": "string"} for i in range(8)}, "on": {"const": 1}},
        "required": ["on"],
    },
    "patterns": OBJECT
    | {
        "properties": {
            "code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"},
            "day": {"type": "string", "format": "date"},
            "word": {"type": "string", "minLength": 4, "maxLength": 8},
        },
        "required": ["code", "day", "word"],
    },
    "anything": {"type": "object"},
    "parts": OBJECT
    | {
        "properties": {
            "to": {"type": "string", "format": "email"},
            "key": {"type": "string", "pattern": "^[ -!#-;=-~]*[A-Z][ -!#-;=-~]*[0-9]$"},
            "labels": {
                "type": "array",
                "items": {"type": "string", "pattern": "[A-Z]"},
                "minItems": 2,
            },
        },
        "required": ["to", "key", "labels"],
    },
}


def hermes(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "tag",
        "begin": '<tool_call>\n{"name": "f", "arguments": ',
        "content": {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": 1},
        "end": "}\n</tool_call>",
    }


def xml(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "tag",
        "begin": "<tool_call>\n<function=f>\n",
        "content": {"type": "json_schema", "json_schema": schema, "style": "qwen_xml"},
        "end": "\n</function>\n</tool_call>",
    }


def required(call: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "tags_with_separator",
        "separator": "\n",
        "at_least_one": True,
        "tags": [call],
    }


def thinking_first(call: dict[str, Any]) -> dict[str, Any]:
    reasoning = {"type": "any_text", "excludes": ["<think>"]}
    preamble = {"type": "any_text", "excludes": ["<tool_call>", "</think>"]}
    return {
        "type": "sequence",
        "elements": [
            {"type": "tag", "begin": "", "content": reasoning, "end": "</think>"},
            preamble,
            call,
        ],
    }


def auto(call: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "triggered_tags",
        "triggers": ["<tool_call>"],
        "tags": [call],
        "excludes": ["</tool_call>"],
    }


def tag(tag_format: dict[str, Any]) -> str:
    return json.dumps({"type": "structural_tag", "format": tag_format})


WALKER = GrammarWalker(TOKENIZER, END_ID, seed=0)


@pytest.fixture(scope="module", autouse=True)
def _prepared() -> None:
    WALKER.prepare()


def walk(text: str, request_id: str = "r", **sampling: Any) -> tuple[str, str]:
    """Text and finish of a walk, the end of text left out."""
    sampling = {"max_tokens": 2000} | sampling
    one = job(request_id, guidance=Guidance(structural_tag=text), sampling=Sampling(**sampling))
    found = WALKER.output(one)
    assert found is not None
    assert len(found.token_ids) <= sampling["max_tokens"]
    return TOKENIZER.decode(i for i in found.token_ids if i != END_ID), found.finish


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("style", [hermes, xml])
@pytest.mark.parametrize("choice", [required, auto, thinking_first])
def test_walks_close_and_the_grammar_accepts_them(name: str, style: Any, choice: Any) -> None:
    text = tag(choice(style(SCHEMAS[name])))
    compiled = compile_tag(text)
    written = set()
    for number in range(6):
        output, finish = walk(text, f"r{number}")
        assert finish == "stop"
        assert accepts(compiled, output)
        written.add(output)
    assert len(written) > 1


@pytest.mark.parametrize("name", SCHEMAS)
def test_arguments_of_required_calls_are_valid(name: str) -> None:
    checker = jsonschema.FormatChecker()
    for number in range(10):
        output, _ = walk(tag(required(hermes(SCHEMAS[name]))), f"r{number}")
        calls = output.split("<tool_call>\n")[1:]
        assert calls
        for call in calls:
            body = json.loads(call[: call.index("\n</tool_call>")])
            jsonschema.validate(body["arguments"], SCHEMAS[name], format_checker=checker)


SHORTEST = {
    "string, enum, numbers": ('{"city":"","unit":"celsius","days":1,"factor":1}', None),
    "nested": ('{"rows":[{"é":true,"n":1},{"é":true,"n":1}]}', None),
    "many optional before one required": ('{"on":1}', "<parameter=on>1</parameter>"),
    "patterns": ('{"code":"AAA-11","day":"1111-11-11","word":"aaaa"}', None),
    "anything": ("{}", ""),
    "parts": (None, None),
}
"""The shortest arguments there are, as JSON and as XML."""


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_budget_that_has_room_for_an_ending_gets_one(name: str) -> None:
    for style, arguments in zip((hermes, xml), SHORTEST[name], strict=True):
        if arguments is None:
            continue
        call = style(SCHEMAS[name])
        text = tag(required(call))
        room = len(ids(call["begin"] + arguments + call["end"])) + 1
        for budget in (room, room + 1, room + 3, room + 20, 2 * room):
            assert walk(text, f"r{budget}", max_tokens=budget)[1] == "stop"


def test_optional_properties_are_skipped_when_there_is_no_room_for_them() -> None:
    text = tag(required(hermes(SCHEMAS["many optional before one required"])))
    whole = '<tool_call>\n{"name": "f", "arguments": {"on":1}}\n</tool_call>'
    assert walk(text, max_tokens=len(ids(whole)) + 1) == (whole, "stop")


def test_a_budget_with_no_room_is_used_up_honestly() -> None:
    text = tag(required(hermes(SCHEMAS["nested"])))
    output, finish = walk(text, max_tokens=20)
    assert finish == "length"
    assert output.startswith('<tool_call>\n{"name": ')
    assert len(ids(output)) >= 19


def test_equal_requests_walk_equally_and_seeds_make_the_difference() -> None:
    text = tag(required(hermes(SCHEMAS["string, enum, numbers"])))
    assert walk(text, "a") == walk(text, "a")
    assert walk(text, "a") != walk(text, "b")
    assert walk(text, "a", seed=1) == walk(text, "b", seed=1)
    assert walk(text, "a", seed=1) != walk(text, "a", seed=2)
    assert walk(text, "a", temperature=0.0) == walk(text, "b", temperature=0.0)
    other = GrammarWalker(TOKENIZER, END_ID, seed=1)
    other.prepare()
    one = job("a", guidance=Guidance(structural_tag=text))
    assert other.output(one) != WALKER.output(one)


def test_auto_writes_calls_and_plain_text() -> None:
    text = tag(auto(hermes(SCHEMAS["anything"])))
    outputs = [walk(text, f"r{number}")[0] for number in range(30)]
    assert 5 <= sum("<tool_call>" in output for output in outputs) <= 25


def test_a_ban_holds_against_a_bias_and_without_it_the_bias_wins() -> None:
    push = {CALL_ID: 100.0}
    banned = tag({"type": "any_text", "excludes": ["<tool_call>", "</tool_call>"]})
    output, finish = walk(banned, logit_bias=push)
    assert "<tool_call>" not in output
    assert finish == "stop"
    free, _ = walk(tag({"type": "any_text"}), logit_bias=push)
    assert free.count("<tool_call>") >= 6


def test_a_bias_enters_the_call_and_is_held_there() -> None:
    text = tag(auto(hermes(SCHEMAS["string, enum, numbers"])))
    for number in range(5):
        output, finish = walk(text, f"r{number}", logit_bias={CALL_ID: 100.0})
        assert output.startswith("<tool_call>\n{")
        assert finish == "stop"


def test_a_negative_bias_keeps_a_token_away_where_there_is_another() -> None:
    text = tag({"type": "regex", "pattern": "[ab]{6}"})
    assert walk(text, logit_bias={ids("b")[0]: -100.0})[0] == "aaaaaa"


def test_a_resumed_walk_goes_on_in_the_same_text() -> None:
    guidance = Guidance(structural_tag=tag(required(hermes(SCHEMAS["nested"]))))
    whole = WALKER.output(job(guidance=guidance))
    assert whole is not None
    for cut in (1, 10, len(whole.token_ids) - 1):
        resumed = job(guidance=guidance, prefix_token_ids=whole.token_ids[:cut], attempt=1)
        assert WALKER.output(resumed) == whole


def test_a_prefix_of_another_text_is_continued_by_the_grammar_or_refused() -> None:
    text = tag(required(hermes(SCHEMAS["string, enum, numbers"])))
    prefix = ids('<tool_call>\n{"name": "f", "arguments": {"city":"Ulaanbaa')
    found = WALKER.output(
        job(guidance=Guidance(structural_tag=text), prefix_token_ids=prefix, attempt=1)
    )
    assert found is not None
    assert found.token_ids[: len(prefix)] == prefix
    assert accepts(text, TOKENIZER.decode(found.token_ids[:-1]))
    with pytest.raises(EngineFailedError, match="rejects the ids"):
        WALKER.output(job(guidance=Guidance(structural_tag=text), prefix_token_ids=ids("no")))


@pytest.mark.parametrize(
    ("guidance", "expected"),
    [
        (Guidance(), None),
        (Guidance(regex="a{3}"), {"aaa"}),
        (Guidance(choice=("yes", "no")), {"yes", "no"}),
        (Guidance(json_schema='{"const": 7}'), {"7"}),
        (Guidance(grammar='root ::= "x" | "y"'), {"x", "y"}),
    ],
)
def test_every_kind_of_constraint_is_walked(guidance: Guidance, expected: set[str] | None) -> None:
    found = [WALKER.output(job(f"r{number}", guidance=guidance)) for number in range(12)]
    if expected is None:
        assert constraint(guidance) is None
        assert found == [None] * 12
    else:
        assert {TOKENIZER.decode(o.token_ids[:-1]) for o in found if o is not None} == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", RefusedError),
        (tag({"type": "nope"}), RefusedError),
        (tag({"type": "token", "token": 999_999}), EngineFailedError),
    ],
)
def test_a_tag_that_the_engine_refuses_or_cannot_compile(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        WALKER.output(job(guidance=Guidance(structural_tag=text)))


def test_ways_out_of_text_are_found_even_through_other_text() -> None:
    compiled = compile_tag(
        tag(thinking_first(hermes(SCHEMAS["anything"]))), TOKENIZER.token_bytes(), (END_ID,)
    )
    closing = Closing(WALKER.lexicon, literals(compiled), TOKENIZER.encode_now, end_of_text=END_ID)
    trail = Trail(compiled, END_ID)
    way_out = closing.exit(trail)
    assert way_out is not None
    assert TOKENIZER.decode(way_out).startswith("</think><tool_call>")
    assert trail.ids == []


WEATHER = Tool("get_weather", SCHEMAS["string, enum, numbers"], strict=True)
POINTS = Tool("set_points", SCHEMAS["nested"], strict=True)
CHOICES: tuple[ToolChoice, ...] = ("required", "named", "auto", "none")


@pytest.mark.slow
@pytest.mark.parametrize("name", [family.name for family in families()])
def test_walks_of_every_family_close_and_parse_to_whole_calls(name: str) -> None:
    try:
        spoken = dialect(name, None)
    except ConfigError:  # it reasons in its own way only
        spoken = dialect(name, name)
    for choice in CHOICES:
        tools = (WEATHER,) if choice == "named" else (WEATHER, POINTS)
        held = spoken.tag(ToolPolicy(choice, tools), "none", TagOptions())
        if held is None:
            continue
        for number in range(4):
            text, finish = walk(tag(held), f"r{number}", max_tokens=1000)
            assert finish == "stop", (choice, text)
            parser = spoken.parser(ParseSpec(tool_parser=name, tools=tools, tool_choice=choice))
            ends = [e for e in parser.feed(text) + parser.finish() if isinstance(e, CallEnd)]
            assert all(end.complete for end in ends), (choice, text)
            if choice in ("required", "named"):
                assert ends, (choice, text)
            elif choice == "none":
                assert not ends, (choice, text)


ENDLESS = tag({"type": "regex", "pattern": "([ -~]*[A-M][N-Z]){40}"})
"""Running text whose end no closer and no literal leads to."""


def test_a_walk_without_a_way_out_costs_no_more_than_its_share_and_ends_by_length() -> None:
    one = job(guidance=Guidance(structural_tag=ENDLESS), sampling=Sampling(max_tokens=300))
    pauses: list[int] = []
    found = WALKER.output(one, lambda: pauses.append(1))
    assert found is not None
    assert (len(found.token_ids), found.finish) == (300, "length")
    assert 1 < len(pauses) <= 2 * WALK_WORK / SLICE_WORK
    assert WALKER.output(one) == found


def test_the_work_between_two_pauses_is_bounded_and_so_is_the_search() -> None:
    compiled = compile_tag(ENDLESS, TOKENIZER.token_bytes(), (END_ID,))
    pauses = [0]
    work = Work(lambda: pauses.append(work.done), limit=20_000)
    closing = Closing(WALKER.lexicon, literals(compiled), TOKENIZER.encode_now, end_of_text=END_ID)
    trail = Trail(compiled, END_ID, work)
    while not work.over_limit:
        assert closing.shorter_way(trail, 4000) is None
    assert work.done < 20_000 + SLICE_WORK
    assert max(b - a for a, b in pairwise(pauses)) < 2 * SLICE_WORK
    before = work.done
    for _ in range(100):
        assert closing.step(trail)
    assert work.done - before < 100 * 200


def test_a_walk_that_nobody_waits_for_ends_at_its_next_pause() -> None:
    pauses: list[int] = []

    def pause() -> None:
        pauses.append(1)
        raise WalkAbandonedError

    one = job(guidance=Guidance(structural_tag=ENDLESS), sampling=Sampling(max_tokens=300))
    with pytest.raises(WalkAbandonedError):
        WALKER.output(one, pause)
    assert pauses == [1]


class LongWalker:
    """The walk of the job `long` lasts until another one was walked, or until it is abandoned."""

    def __init__(self) -> None:
        self.began, self.other_walked, self.ended = Event(), Event(), Event()

    def prepare(self) -> None:
        pass

    def wants(self, job: Job) -> bool:
        return job.request_id != "plain"

    def output(self, job: Job, pause: Callable[[], None] | None = None) -> Output | None:
        assert pause is not None
        if job.request_id == "long":
            self.began.set()
            try:
                while not self.other_walked.wait(0.001):
                    pause()
            finally:
                self.ended.set()
        elif job.request_id == "short":
            self.other_walked.set()
        return Output((1, END_ID), "stop")


async def finishes(engine: ScriptedEngine, request_id: str) -> list[str | None]:
    stream = engine.generate(job(request_id), trace_headers={})
    return [step.finish async for step in stream if step.finish is not None]


@pytest.mark.anyio
async def test_walks_take_turns_and_plain_requests_wait_for_none() -> None:
    walker = LongWalker()
    engine = ScriptedEngine(model(), parse(['{"text": "scripted"}']), walker=walker)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(finishes, engine, "long")
            await until(walker.began.is_set)
            assert await finishes(engine, "plain") == ["stop"]
            assert not walker.ended.is_set()
            assert await finishes(engine, "short") == ["stop"]
    assert walker.ended.is_set()


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["abort", "leave", "kill"])
async def test_a_walk_ends_with_its_run(how: str) -> None:
    walker = LongWalker()
    engine = ScriptedEngine(model(), parse(['{"text": "scripted"}']), walker=walker)
    found: list[list[str | None]] = []

    async def run() -> None:
        if how == "kill":
            with pytest.raises(EngineDeadError):
                await finishes(engine, "long")
        else:
            found.append(await finishes(engine, "long"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(walker.began.is_set)
            if how == "abort":
                await engine.abort("long/0")
            elif how == "kill":
                engine.kill()
            else:
                tasks.cancel_scope.cancel()
        await until(walker.ended.is_set)
    assert engine.live == set()
    assert found == ([["abort"]] if how == "abort" else [])


@pytest.mark.anyio
async def test_an_engine_that_obeys_tags_plays_its_script_where_there_is_none() -> None:
    engine = ScriptedEngine(model(), parse(['{"text": "scripted"}']), walker=WALKER)
    await engine.start()

    async def text(guidance: Guidance) -> str:
        stream = engine.generate(job(guidance=guidance), trace_headers={})
        found = [i async for step in stream for i in step.token_ids]
        return TOKENIZER.decode(found[:-1])

    assert await text(Guidance()) == "scripted"
    assert await text(Guidance(regex="a{3}")) == "aaa"
