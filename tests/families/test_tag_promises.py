"""What every tag keeps to under every option: no dead end, no call too many, none that is missing.

Strings are drawn from the tags as in the walk; here the options of the deployment vary, and with
them what text may contain (`exclude_special_tokens: false` lets it contain markers).
"""

from __future__ import annotations

import json
import random

import pytest

from tests.families.loading import FAMILIES, events
from tests.families.walking import CHOICES, Setting, Walker, tag_json
from toolrail.events import Call, Reasoning, Turn, assemble
from toolrail.families import Dialect, dialect, family
from toolrail.grammar import accepts
from toolrail.parsing import ParseSpec
from toolrail.structural_tag import TagOptions
from toolrail.tools import Tool, ToolPolicy

NAMES = [name for name in FAMILIES if name != "default"]
OPTIONS = {
    "default": TagOptions(),
    "markers in text": TagOptions(exclude_special_tokens=False),
    "any order": TagOptions(tool_arguments_any_order=True),
    "all strict": TagOptions(schema="strict"),
}
TEXT = Tool(
    "say",
    {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)
PING = Tool("ping", {"type": "object", "properties": {}, "additionalProperties": False})
SAY = Call("say", '{"text": "x"}')


def pair(name: str) -> Dialect:
    own = family(name)
    return dialect(name, own.reasoning_names[0] if own.reasoning_names else None)


def breaks(setting: Setting, turn: Turn) -> str | None:
    """Which promise a turn breaks."""
    count = len(turn.calls)
    offered = {tool.name for tool in setting.tools}
    if setting.choice == "none" and count:
        return "a call under none"
    if setting.policy.single and count > 1:
        return "a second call"
    if setting.choice in ("required", "named") and not count:
        return "no call"
    if setting.policy.single and not {call.name for call in turn.calls} <= offered:
        return "a call of a tool that is not offered"
    return None


@pytest.mark.walk
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_no_dead_end_and_no_call_too_many(name: str, options: str) -> None:
    own = pair(name)
    draws = Walker(own)
    settings = [
        Setting(choice, start, strict, parallel)
        for choice in CHOICES
        for start in ("none", "reasoning", "response")
        for strict in ((True, False) if options == "default" else (True,))
        for parallel in (True, False)
    ]
    for setting in settings:
        tag = own.tag(setting.policy, setting.starts_in, OPTIONS[options])
        if tag is None:  # an answer has begun, and a call is asked for
            assert setting.starts_in == "response"
            continue
        compiled = draws.compile(tag)
        chance = random.Random(f"{name} {options} {setting}")
        for _ in range(4):
            text = draws.walk(compiled, chance)
            if text is None:
                continue
            spec = ParseSpec(
                own.tool_parser, own.reasoning_parser, setting.tools, setting.choice,
                setting.starts_in, held=True,
            )  # fmt: skip
            turn = assemble(events(spec, [text]))
            assert breaks(setting, turn) is None, (str(setting), text, turn)


@pytest.mark.parametrize("choice", ["auto", "required", "named"])
@pytest.mark.parametrize("name", NAMES)
def test_one_call_is_one_call_even_where_text_may_contain_markers(name: str, choice: str) -> None:
    own = pair(name)
    policy = ToolPolicy(choice, (TEXT,) if choice == "named" else (TEXT, PING), parallel=False)
    tag = own.tag(policy, "reasoning", OPTIONS["markers in text"])
    assert tag is not None
    if own.family is None or own.family.reasoning is None:
        return
    first = [Reasoning("hm")]
    call = own.render([*first, SAY])
    begin = own.family.reasoning.begin
    assert accepts(tag_json(tag), call.removeprefix(begin))
    inside = own.render([Reasoning(f"hm {own.render([SAY])} so"), SAY]).removeprefix(begin)
    spec = ParseSpec(name, own.reasoning_parser, policy.tools, choice, "reasoning", held=True)
    if len(assemble(events(spec, [inside])).calls) > 1:
        assert not accepts(tag_json(tag), inside), inside


def test_calls_of_tools_that_may_not_be_called_are_kept_out_of_text() -> None:
    policy = ToolPolicy("auto", (TEXT,), others=("ping",))
    tag = pair("llama3_json").tag(policy, "none", TagOptions())
    assert tag is not None
    held = tag_json(tag)
    for text in ('I could "ping" it.', 'So: {"name": "pong"}', "Hm {}", own_call("say")):
        assert accepts(held, text), text
    for text in ('So: {"name": "ping", "parameters": {}}', 'So: {"name":"ping"}', own_call("ping")):
        assert not accepts(held, text), text


def own_call(name: str) -> str:
    arguments = {"text": "x"} if name == "say" else {}
    return pair("llama3_json").render([Call(name, json.dumps(arguments))])
