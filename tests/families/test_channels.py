"""What the families that write messages hold and read beyond what every family must."""

from __future__ import annotations

import json
import random
import re
from importlib import import_module
from typing import Any

import pytest

from tests.families.loading import events, parse, random_cuts, shown
from tests.families.walking import TOOLS, Setting, Walker, tag_json
from toolrail.events import Call, Item, Reasoning, Text, assemble
from toolrail.families import Dialect, dialect
from toolrail.grammar import accepts
from toolrail.parsing import ParseSpec
from toolrail.schema.normalise import normalise
from toolrail.structural_tag import TagFormat, TagOptions
from toolrail.tools import StartsIn, Tool, ToolChoice, ToolPolicy

NAMES = ("harmony", "beam", "inkling", "muse_glimmer", "muse_spark")
WEATHER = Tool(
    "get_weather",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
PING = Tool("ping", {"type": "object", "properties": {}, "additionalProperties": False})
PARIS = Call("get_weather", '{"city": "Paris"}')
PONG = Call("ping", "{}")


def pair(name: str) -> Dialect:
    reasoning = {"harmony": "gpt_oss"}.get(name, name)
    return dialect(name, reasoning)


def tag(
    name: str,
    choice: ToolChoice = "auto",
    starts_in: StartsIn = "none",
    *,
    parallel: bool = True,
    tools: tuple[Tool, ...] = (WEATHER, PING),
    response: TagFormat | None = None,
    **options: Any,
) -> str:
    offered = tools[:1] if choice == "named" else tools
    policy = ToolPolicy(choice, offered, parallel)
    found = pair(name).tag(policy, starts_in, TagOptions(**options), response=response)
    assert found is not None
    return tag_json(found)


def thought(name: str) -> tuple[Item, ...]:
    """What beam's grammar wants first."""
    return (Reasoning("hm"),) if name == "beam" else ()


def begun(name: str, text: str, *rest: Item) -> str:
    """A turn whose first body, `text`, the prompt has opened: the rest of its wire text."""
    whole = pair(name).render([Text("@@"), *rest]) if rest else pair(name).render([Text("@@")])
    return text + whole.partition("@@")[2]


# --- what the prompt left open ---

PROMPTS: dict[str, list[tuple[str, StartsIn]]] = {
    "harmony": [
        ("<|start|>user<|message|>Hi<|end|><|start|>assistant", "none"),
        ("<|start|>assistant<|channel|>analysis<|message|>", "reasoning"),
        ("<|start|>assistant<|channel|>analysis<|message|>I think", "reasoning"),
        ("<|start|>assistant<|channel|>final<|message|>It is", "response"),
        ("<|start|>assistant<|channel|>commentary<|message|>Look:", "response"),
        ("<|start|>assistant<|channel|>analysis<|message|>I think<|end|>", "none"),
        ("<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{", "none"),
        ("<|start|>user<|message|>Hi", "none"),
        ("", "none"),
    ],
    "beam": [
        ("<|start|>assistant", "none"),
        ("<|start|>assistant<|channel|>analysis<|message|>Hm", "reasoning"),
        ("<|start|>assistant<|channel|>final<|message|>It is", "response"),
        ("<|start|>assistant to=f<|channel|>analysis <|constrain|>xml<|message|>", "none"),
    ],
    "inkling": [
        ("<|message_user|><|content_text|>Hi<|end_message|><|message_model|>", "none"),
        ("<|message_model|><|content_thinking|>Hm", "reasoning"),
        ("<|message_model|><|content_text|>It is", "response"),
        ("<|message_model|><|content_thinking|>Hm<|end_message|>", "none"),
    ],
    "muse_glimmer": [
        ("<|start|>user<|message|>Hi<|eot|><|start|>assistant", "none"),
        ("<|start|>assistant to=self<|message|>Hm", "reasoning"),
        ("<|start|>assistant to=user<|message|>It is", "response"),
        ("<|start|>assistant to=get_weather<|message|>", "none"),
        ("<|start|>user<|message|>Hi", "none"),
    ],
    "muse_spark": [
        ("<|start|>assistant to=commentary<|message|>Look:", "response"),
        ("<|start|>assistant to=developer<|message|>psst", "none"),
    ],
}


@pytest.mark.parametrize(("name", "prompt", "opened"), [(n, *p) for n in NAMES for p in PROMPTS[n]])
def test_what_the_prompt_left_open(name: str, prompt: str, opened: StartsIn) -> None:
    assert pair(name).starts_in(prompt) == opened
    assert dialect(None, pair(name).reasoning_parser).starts_in(prompt) == opened


# --- tags ---


@pytest.mark.parametrize("name", NAMES)
def test_a_forced_call_comes(name: str) -> None:
    """Where a peer's tag is content with an empty reply, or with reasoning alone."""
    render = pair(name).render
    for choice in ("required", "named"):
        held = tag(name, choice)
        assert accepts(held, render([Reasoning("hm"), PARIS]))
        assert not accepts(held, "")
        assert not accepts(held, render([Reasoning("hm")]))
        assert not accepts(held, render([Reasoning("hm"), Text("No.")]))
        assert not accepts(held, render([*thought(name), Text("No.")]))
    assert not accepts(tag(name, "named"), render([Reasoning("hm"), PARIS, PARIS]))
    single = tag(name, "required", parallel=False)
    assert not accepts(single, render([Reasoning("hm"), PARIS, PONG]))


@pytest.mark.parametrize("name", NAMES)
def test_no_text_smuggles_a_call(name: str) -> None:
    own, spelling = pair(name), import_module(f"toolrail.families.{name}").SPELLING
    first = own.render([*thought(name), Text("x")]).rpartition(spelling.answer.begin)[0]
    call = spelling.between + own.render([PARIS])
    for opened in (spelling.answer, spelling.thought):
        for end in ("", *opened.ends):
            wire = f"{first}{opened.begin}Look.{end}{call}"
            assert not accepts(tag(name, "none"), wire), wire
    # An answer ends the turn: what may come before a call has another header in harmony.
    end = spelling.remark.ends[0]
    after_answer = accepts(tag(name), f"{first}{spelling.answer.begin}Look.{end}{call}")
    assert after_answer == (name in ("inkling", "muse_glimmer"))
    words = own.render([*thought(name), Text('It\'s <b>fine</b>, "to=x".')])
    assert accepts(tag(name), words)
    assert accepts(tag(name, "none"), words)


@pytest.mark.parametrize("name", NAMES)
def test_engines_eat_the_last_closer(name: str) -> None:
    """What ends generation may be missing, and the grammar is complete without it."""
    own = pair(name)
    for items in ([Reasoning("hm"), PARIS], [Reasoning("hm"), Text("Hello")]):
        wire = own.render(items)
        marker = max(m.text for m in own.markers if wire.endswith(m.text))
        assert accepts(tag(name), wire.removesuffix(marker)), wire
        spec = ParseSpec(name, own.reasoning_parser, (WEATHER,))
        turn = assemble(events(spec, wire.removesuffix(marker)))
        assert turn.items == tuple(items)


@pytest.mark.parametrize("name", NAMES)
def test_a_turn_whose_answer_has_begun(name: str) -> None:
    auto, none = tag(name, "auto", "response"), tag(name, "none", "response")
    assert accepts(auto, begun(name, "It is"))
    assert accepts(none, begun(name, "It is"))
    called = begun(name, "Look: ", PARIS)
    assert not accepts(none, called)
    assert accepts(auto, called) == (name != "beam")
    if name == "beam":
        policy = ToolPolicy("required", (WEATHER,))
        assert pair(name).tag(policy, "response", TagOptions()) is None
        return
    forced = tag(name, "required", "response")
    assert accepts(forced, called)
    assert not accepts(forced, begun(name, "It is"))


@pytest.mark.parametrize("choice", ["auto", "required", "none"])
@pytest.mark.parametrize("name", NAMES)
def test_walks_from_a_begun_answer_are_read(name: str, choice: ToolChoice) -> None:
    if name == "beam" and choice == "required":
        return  # refused, see the test above
    own, walker = pair(name), Walker(pair(name))
    setting = Setting(choice, "response", strict=True, parallel=False)
    found = own.tag(setting.policy, "response", TagOptions())
    assert found is not None
    compiled, random_ = walker.compile(found), random.Random(name + choice)
    spec = ParseSpec(name, own.reasoning_parser, TOOLS, choice, "response", held=choice != "none")
    texts = [walker.walk(compiled, random_) for _ in range(30)]
    drawn = [text for text in texts if text is not None]
    assert len(drawn) >= 15
    for text in drawn:
        turn = assemble(events(spec, [text]))
        assert turn == assemble(events(spec, random_cuts(text, text)))
        assert len(turn.calls) <= 1
        assert bool(turn.calls) or choice != "required"
        assert not turn.incomplete_calls
        for item in turn.items:
            assert isinstance(item, Call) or not any(m.text in item.text for m in own.markers)


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_may_own_the_reasoning_boundary(name: str) -> None:
    own = pair(name)
    assert own.family is not None
    assert own.family.reasoning is not None
    wire = own.render([Reasoning("hm"), PARIS])
    rest = wire.partition(f"hm{own.family.reasoning.end}")[2]
    assert accepts(tag(name, "required", "reasoning", reasoning_boundary="backend"), rest)
    assert not accepts(tag(name, "required", "reasoning"), rest)


@pytest.mark.parametrize("name", NAMES)
def test_headers_stay_out_of_text_whatever_the_options(name: str) -> None:
    own = pair(name)
    smuggled = own.render([*thought(name), Text("a"), PARIS])
    held = tag(name, "none", exclude_special_tokens=False)
    assert not accepts(held, smuggled)


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_held_answer(name: str) -> None:
    own, first = pair(name), thought(name)
    response: TagFormat = {"type": "json_schema", "json_schema": {"type": "object"}}
    either = tag(name, "auto", response=response)
    alone = tag(name, "none", response=response)
    answer, words = (own.render([*first, Text(t)]) for t in ('{"a": 1}', "words"))
    called = own.render([*first, PARIS])
    for held in (either, alone):
        assert accepts(held, answer)
        assert not accepts(held, words)
    assert accepts(either, called)
    assert not accepts(alone, called)
    opened = tag(name, "none", "response", response=response)
    assert accepts(opened, begun(name, '{"a": 1}'))


# --- harmony ---


@pytest.mark.parametrize("type_", [" json", " <|constrain|>json", "<|constrain|>json"])
@pytest.mark.parametrize("channel", ["commentary", "analysis"])
@pytest.mark.parametrize("after_role", [True, False])
def test_harmony_holds_and_reads_every_header(type_: str, channel: str, after_role: bool) -> None:
    to = " to=functions.get_weather"
    head = f"{to}<|channel|>{channel}" if after_role else f"<|channel|>{channel}{to}"
    for closer in ("<|call|>", "<|end|>", ""):
        wire = f'{head}{type_}<|message|>{{"city": "Paris"}}{closer}'
        assert accepts(tag("harmony", "required"), wire)
        spec = ParseSpec("harmony", "gpt_oss", (WEATHER,))
        assert assemble(events(spec, wire)).items == (PARIS,)


def test_harmony_bans_calls_in_any_channel() -> None:
    held = tag("harmony", "none")
    for channel in ("commentary", "analysis", "final"):
        wire = f"<|channel|>{channel} to=functions.ping json<|message|>{{}}<|call|>"
        assert not accepts(held, wire)
        assert accepts(held, f"<|channel|>{channel}<|message|>Hi.<|end|>") == (channel == "final")


def test_harmony_reads_calls_without_a_reasoning_parser() -> None:
    wire = pair("harmony").render([Reasoning("hm"), PARIS])
    assert parse(ParseSpec("harmony", None, (WEATHER,)), wire).items == (Reasoning("hm"), PARIS)


@pytest.mark.parametrize("name", ["gpt_oss", "gpt-oss", "beam", "muse", "muse_spark", "inkling"])
def test_reasoning_read_alone_leaves_messages_to_tools_as_they_stand(name: str) -> None:
    tool = {"gpt_oss": "harmony", "gpt-oss": "harmony", "muse": "muse_glimmer"}.get(name, name)
    own = pair(tool)
    wire = own.render([Reasoning("hm"), PARIS, Text("Done.")])
    call = wire.partition("hm")[2].removeprefix(own.family.reasoning.end)  # type: ignore[union-attr]
    call = call.partition("Done.")[0]
    turn = parse(ParseSpec(None, name), wire)
    assert turn.reasoning == "hm"
    assert turn.content is not None
    assert turn.content.endswith("Done.")
    assert "Paris" in turn.content
    assert turn == parse(ParseSpec(None, name), list(wire))
    assert not turn.calls


# --- beam ---


def test_beam_reasons_first_and_says_something() -> None:
    render = pair("beam").render
    for items in ([Text("Hello.")], [PARIS]):
        assert not accepts(tag("beam"), render(items))
        assert not accepts(tag("beam"), render([Reasoning(""), *items]))
        assert accepts(tag("beam"), render([Reasoning("h"), *items]))
    assert not accepts(tag("beam"), render([Reasoning("h"), Text("On it."), PARIS]))
    assert accepts(tag("beam", tools=()), render([Reasoning("h"), Text("Hello.")]))
    assert accepts(tag("beam", "none", tools=()), render([Reasoning("h"), Text("Hello.")]))


@pytest.mark.parametrize("name", ["beam", "muse_glimmer"])
def test_constrained_strings_that_are_spelled_out(name: str) -> None:
    """The schema as the normaliser gives it: lengths and formats are patterns by then."""
    declared = {
        "code": {"type": "string", "pattern": "^[A-Z]{2}$"},
        "day": {"type": "string", "format": "date"},
        "text": {"type": "string", "minLength": 2, "maxLength": 4},
    }
    schema = {
        "type": "object",
        "properties": declared,
        "required": [*declared],
        "additionalProperties": False,
    }
    tool = Tool("f", normalise(schema, style=pair(name).argument_style).schema)
    assert pair(name).left_free(tool, TagOptions()) == ()
    held = tag(name, "required", tools=(tool,))
    good = {"code": "AB", "day": "2024-05-06", "text": "a\né"}
    for change, expected in (
        ({}, True),
        ({"code": "ab"}, False),
        ({"day": "2024-13-06"}, False),
        ({"text": "a"}, False),
        ({"text": "abcde"}, False),
    ):
        arguments = json.dumps({**good, **change}, ensure_ascii=False)
        wire = pair(name).render([Reasoning("h"), Call("f", arguments)])
        if name == "beam":  # constrained values are framed, so that no newline of theirs is
            wire = re.sub(r"(name=\"\w+\">)(.*?)(</rfl)", r"\1\n\2\n\3", wire, flags=re.DOTALL)
        assert accepts(held, wire) == expected, wire
        spec = ParseSpec(name, pair(name).reasoning_parser, (tool,))
        assert json.loads(parse(spec, wire).calls[0].arguments) == {**good, **change}


@pytest.mark.parametrize("text", ["\nab\n", "ab", "\n\n", "", "a\n", "\n"])
def test_beam_frames_values_that_need_it(text: str) -> None:
    tool = Tool("f", {"type": "object", "properties": {"t": {"type": "string"}}})
    call = Call("f", f'{{"t": {text!r}}}'.replace("'", '"'))
    wire = pair("beam").render([call])
    assert parse(ParseSpec("beam", "beam", (tool,)), wire).items == (call,)
    assert accepts(tag("beam", tools=(tool,)), pair("beam").render([Reasoning("h"), call]))


# --- parameters that are spelled out ---

OPEN = Tool(
    "f",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["days"],
        "additionalProperties": True,
    },
)


@pytest.mark.parametrize("name", ["beam", "muse_glimmer"])
def test_an_open_object_takes_more_but_nothing_declared_twice(name: str) -> None:
    render, held = pair(name).render, tag(name, "required", tools=(OPEN,))
    for arguments, expected in (
        ('{"days": 3}', True),
        ('{"city": "Paris", "days": 3, "unit": "C", "daysy": "x"}', True),
        ('{"unit": "C", "days": 3}', False),
        ('{"city": "Paris"}', False),
        ('{"days": "many"}', False),
    ):
        wire = render([Reasoning("h"), Call("f", arguments)])
        assert accepts(held, wire) == expected, wire
    again = render([Reasoning("h"), Call("f", '{"days": 3, "unit": "C"}')])
    assert not accepts(held, again.replace("unit", "days"))
    assert not accepts(held, again.replace("unit", "city"))


@pytest.mark.parametrize("name", ["beam", "muse_glimmer"])
def test_arguments_in_any_order(name: str) -> None:
    render = pair(name).render
    wire = render([Reasoning("h"), Call("f", '{"days": 3, "city": "Paris"}')])
    assert not accepts(tag(name, "required", tools=(OPEN,)), wire)
    assert accepts(tag(name, "required", tools=(OPEN,), tool_arguments_any_order=True), wire)


# --- muse ---


@pytest.mark.parametrize(
    ("schema", "raw", "value"),
    [
        ({"type": "string"}, "123", '"123"'),
        ({"type": "string"}, '"123"', '"123"'),
        ({"type": "string"}, "null", '"null"'),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": "integer"}, "123", "123"),
        ({"type": "integer"}, '"123"', '"123"'),
        ({"type": "boolean"}, "True", "true"),
        ({"type": ["string", "boolean"]}, "True", '"True"'),
        ({}, "1e3", "1e3"),
        ({}, " [1, 2] ", "[1, 2]"),
        ({}, "[1, 2", '"[1, 2"'),
        ({}, "{a}", '"{a}"'),
        ({}, "truely", '"truely"'),
        ({}, "-", '"-"'),
        ({"type": "object"}, '{"a": "x\ny"}', '{"a": "x\\ny"}'),
        ({"enum": ["42", 7]}, "42", "42"),
        ({"enum": ["42"]}, "42", '"42"'),
    ],
)
def test_muse_values_are_json_or_text(schema: dict, raw: str, value: str) -> None:
    tool = Tool("f", {"type": "object", "properties": {"v": schema}})
    wire = pair("muse_glimmer").render([Call("f", '{"v": "@"}')]).replace("@", raw)
    for chunks in ([wire], list(wire)):
        turn = parse(ParseSpec("muse_glimmer", "muse_glimmer", (tool,)), chunks)
        assert turn.calls[0].arguments == f'{{"v": {value}}}'


def test_muse_spark_shows_commentary_and_keeps_developer_messages() -> None:
    wire = (
        " to=developer<|message|>psst<|eom|><|start|>assistant to=commentary<|message|>Look."
        "<|eom|><|start|>assistant to=user<|message|>Hi.<|eot|>"
    )
    assert shown(parse(ParseSpec("muse_spark", "muse_spark"), wire)) == (
        {"kind": "text", "text": "Look.Hi."},
    )
    # To muse_glimmer both are tools.
    assert parse(ParseSpec("muse_glimmer", "muse_glimmer"), wire).content == "Hi."


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("spaces", "shown_as_text"), [(1, False), (256, False), (257, True)])
def test_whitespace_between_messages_separates_them(
    name: str, spaces: int, shown_as_text: bool
) -> None:
    spelling = import_module(f"toolrail.families.{name}").SPELLING
    head, _, rest = pair(name).render([Reasoning("hm"), PONG]).partition(spelling.between)
    wire = head + "\n" * spaces + spelling.between + rest
    spec = ParseSpec(name, pair(name).reasoning_parser, (PING,))
    for chunks in ([wire], list(wire)):
        turn = parse(spec, chunks)
        assert (turn.reasoning, turn.calls) == ("hm", (PONG,))
        assert turn.content == ("\n" * spaces if shown_as_text else None)
