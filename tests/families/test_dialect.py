"""What a pair of parser names means, and which pairs are refused."""

from __future__ import annotations

import json

import pytest

from tests.families.loading import FAMILIES, parse, shown
from toolrail.errors import ConfigError
from toolrail.events import Call, Reasoning
from toolrail.families import (
    dialect,
    families,
    family,
    reasoning_parser_names,
    tool_parser_names,
)
from toolrail.parsing import ParseSpec
from toolrail.reasoning import PARSERS
from toolrail.tools import Tool

CALL = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
PING = Tool("ping")


@pytest.mark.parametrize("name", tool_parser_names())
def test_every_name_means_a_family(name: str) -> None:
    found = family(name)
    own = found.reasoning_names[0] if found.needs_reasoning else None
    assert dialect(name, own).family is found


def test_aliases_of_the_records_are_in_the_table() -> None:
    for found in families():
        for name in (found.name, *found.aliases):
            assert family(name) is found


@pytest.mark.parametrize("found", families(), ids=lambda f: f.name)
def test_reasoning_names_exist(found: object) -> None:
    assert set(found.reasoning_names) <= set(reasoning_parser_names())


@pytest.mark.parametrize(
    ("tools", "reasoning", "version", "says"),
    [
        ("nothing", None, "auto", "hermes"),
        (None, "nothing", "auto", "qwen3"),
        ("beam", None, "auto", "beam"),
        ("inkling", None, "auto", "inkling"),
        ("hermes", "qwen3", "2", "qwen3_coder"),
        ("nemotron_v3", "nemotron_v3", "1", "hermes"),
        ("qwen3_coder", "granite", "2", "qwen3"),
        ("qwen3", "qwen3", "1", "qwen3_coder"),
        (None, "kimi", "2", "kimi"),
    ],
)
def test_what_cannot_work_is_refused_with_what_can(
    tools: str | None, reasoning: str | None, version: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        dialect(tools, reasoning, parser_version=version)


@pytest.mark.parametrize("version", ["auto", "1", "2"])
def test_qwen_has_both_generations(version: str) -> None:
    assert dialect("qwen3_coder", "qwen3", parser_version=version).family is not None


@pytest.mark.parametrize(
    ("prompt", "starts_in"),
    [
        ("<|im_start|>assistant\n", "none"),
        ("<|im_start|>assistant\n<think>\n", "reasoning"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "response"),
        ("<|im_start|>assistant\n<think>\nLet me", "reasoning"),
        ("<|im_start|>user\nwhat is <think>?<|im_end|>\n<|im_start|>assistant\n", "none"),
        (
            "<|im_start|>assistant\n<think>\na\n</think>\n\nb<|im_end|>\n<|im_start|>assistant\n",
            "none",
        ),
    ],
)
def test_what_the_prompt_left_open(prompt: str, starts_in: str) -> None:
    assert dialect("hermes", "qwen3").starts_in(prompt) == starts_in
    assert dialect("hermes", None).starts_in(prompt) == "none"


@pytest.mark.parametrize(
    ("prompt", "starts_in"),
    [
        ("]~b]ai\n", "none"),
        ("]~b]ai\n<mm:think>", "reasoning"),
        ("]~b]ai\n</mm:think>", "response"),
        ("]~b]user\nwhat is <mm:think>?[e~[\n]~b]ai\n", "none"),
    ],
)
def test_what_a_prompt_of_minimax_m3_left_open(prompt: str, starts_in: str) -> None:
    assert dialect("minimax_m3", "minimax_m3").starts_in(prompt) == starts_in


def test_markers_are_those_of_both_parsers() -> None:
    texts = {marker.text for marker in dialect("hermes", "mistral").markers}
    assert {"<tool_call>", "</tool_call>", "[THINK]", "[/THINK]"} <= texts


def test_without_parsers_all_is_text() -> None:
    text = f"<think>a</think>{CALL}"
    assert shown(parse(ParseSpec(), text)) == ({"kind": "text", "text": text},)


def test_without_a_reasoning_parser_reasoning_is_text() -> None:
    turn = parse(ParseSpec("hermes", tools=(PING,)), f"<think>a</think>{CALL}")
    assert [turn.content, len(turn.calls)] == ["<think>a</think>", 1]


def test_a_call_inside_foreign_reasoning_is_reasoning() -> None:
    spec = ParseSpec("hermes", "kimi", (PING,))
    turn = parse(spec, f"◁think▷a {CALL} b◁/think▷c\n{CALL}")
    assert turn.reasoning == f"a {CALL} b"
    assert [turn.content, len(turn.calls)] == ["c", 1]


# Families of which reasoning is a message or a channel, or one machine's by specification.
OWNERS = {
    "beam": "beam",
    "deepseek_v41": "deepseek_v41",
    "harmony": "gpt_oss",
    "inkling": "inkling",
    "kimi_k3": "kimi_k3",
    "muse_glimmer": "muse_glimmer",
    "muse_spark": "muse_spark",
}
REASONING = sorted({parser.name for parser in PARSERS.values()})
# What puts text before everything else cannot stand where calls are the whole output.
NEVER = {("default", "minimax_append_think")}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_pair_reads_a_turn_or_is_refused_with_what_can_stand_there(name: str) -> None:
    own = OWNERS.get(name)
    others = set(REASONING) - set(OWNERS.values()) - {r for n, r in NEVER if n == name}
    for reasoning in REASONING:
        if reasoning == own or (own is None and reasoning in others):
            reads_a_turn(name, reasoning)
            continue
        with pytest.raises(ConfigError) as refused:
            dialect(name, reasoning)
        said = str(refused.value)
        assert all(can in said for can in ([own] if own else others))
        assert own or all(o in said for o, reads in OWNERS.items() if reads == reasoning)


def reads_a_turn(name: str, reasoning: str) -> None:
    """The two parsers together find reasoning and call of a turn that a model would write."""
    markers = PARSERS[reasoning].markers
    call = Call("ping", '{"city": "Paris"}')
    if markers is None and name in OWNERS:
        text = family(name).render([Reasoning("Hm."), call])
    else:
        begin, end = (markers.begin, markers.end + markers.after) if markers else ("", "</think>")
        text = f"{begin}Hm.{end}{family(name).render([call])}"
    for chunks in ([text], text):
        turn = parse(ParseSpec(name, reasoning, (PING,)), chunks)
        seen = (turn.reasoning or "", turn.content or "")
        expected = (
            ("", "<think>Hm.</think>") if reasoning == "minimax_append_think" else ("Hm.", "")
        )
        assert tuple(text.strip() for text in seen) == expected, (name, reasoning)
        found = [(found.name, json.loads(found.arguments)) for found in turn.calls]
        assert found == [("ping", {"city": "Paris"})], (name, reasoning)


@pytest.mark.parametrize("name", ["gpt-oss", "openai_gptoss", "kimi-k3", "muse_spark_open", "muse"])
def test_an_alias_of_a_reasoning_parser_is_refused_as_well(name: str) -> None:
    with pytest.raises(ConfigError, match="beside the tool parser 'hermes' can stand basic"):
        dialect("hermes", name)
