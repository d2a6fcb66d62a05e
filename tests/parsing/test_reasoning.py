"""The stand-alone reasoning parsers, by their published cases and by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families.loading import Case, parse, random_cuts, rows, shown
from toolrail.families import reasoning_parser_names
from toolrail.parsing import ParseSpec

CASES = rows(Path(__file__).parent / "cases/reasoning.jsonl")


@pytest.mark.parametrize("case", [pytest.param(c, id=c.id) for c in CASES if isinstance(c, Case)])
def test_events_do_not_depend_on_the_cuts(case: Case) -> None:
    streams = [case.chunks, [case.text], case.text, random_cuts(case.text, case.id)]
    streams += [[case.text[:at], case.text[at:]] for at in range(len(case.text))]
    for chunks in streams:
        assert shown(parse(case.spec, chunks, cut=case.cut)) == case.events


TABLE = {
    # what it shows: name, start, text, then the reasoning and the content that are expected
    "the separator after reasoning is framing": (
        ("qwen3", "none", "<think>a</think>\n\nb", "a", "b"),
        ("qwen3", "none", "<think>a</think>\nb", "a", "b"),
        ("qwen3", "none", "<think>a</think>\n\n\nb", "a", "\nb"),
        ("basic", "none", "<think>a</think>\n\nb", "a", "\n\nb"),
    ),
    "an echoed opener is eaten": (
        ("deepseek_r1", "reasoning", "<think>a</think>b", "a", "b"),
        ("qwen3", "none", "<think>a<think>b</think>c", "ab", "c"),
    ),
    "quoted markers are prose": (
        ("qwen3", "reasoning", "the '</think>' tag</think>x", "the '</think>' tag", "x"),
        ("qwen3", "none", "write `<think>` to think", None, "write `<think>` to think"),
        ("qwen3", "reasoning", 'is it 5"</think>6" wide', 'is it 5"', '6" wide'),
        ("qwen3", "reasoning", 'so "a</think>"b" c', 'so "a', '"b" c'),
    ),
    "markers are literal once the answer is open": (
        ("qwen3", "response", "a</think><think>b", None, "a</think><think>b"),
    ),
    "phrases": (
        (
            "granite",
            "none",
            "Here's my thought process: a Here is my response: b",
            " a ",
            " b",
        ),
        ("granite", "none", "x Here is my thought process: a", " a", "x "),
        ("granite", "none", "Here is my", None, "Here is my"),
    ),
    "a label is eaten as the exact word": (
        ("gemma4", "none", "<|channel>thought\na<channel|>b", "a", "b"),
        ("gemma4", "none", "<|channel>thoughtful<channel|>b", "thoughtful", "b"),
        ("gemma4", "none", "<|channel>a<channel|>b", "a", "b"),
    ),
    "a lone closer says that all before it was reasoning": (
        ("minimax_m3", "none", "a</mm:think>b", "a", "b"),
        ("minimax_m3", "none", "a", None, "a"),
        ("minimax_m3", "response", "a</mm:think>b", None, "a</mm:think>b"),
    ),
    "channels": (
        (
            "gpt_oss",
            "reasoning",
            "a<|end|><|start|>assistant<|channel|>final<|message|>b",
            "a",
            "b",
        ),
        ("gpt_oss", "response", "b<|return|>", None, "b"),
        ("gpt_oss", "none", "<|channel|>commentary<|message|>b<|end|>", None, "b"),
        ("muse_glimmer", "none", " to=self<|message|>a<|eom|>", "a", None),
        (
            "muse_spark",
            "none",
            "<|start|>assistant to=user<|message|>b<|eom|>"
            "<|start|>assistant to=developer<|message|>c<|eot|>",
            None,
            "b",
        ),
        (
            "kimi_k3",
            "reasoning",
            "a<|close|>think<|sep|><|open|>response<|sep|>b<|close|>response<|sep|>",
            "a",
            "b",
        ),
        (
            "inkling",
            "none",
            "<|message_model|><|content_thinking|>a<|end_message|>"
            "<|message_model|><|content_text|>b<|end_message|>",
            "a",
            "b",
        ),
        (
            "beam",
            "none",
            "<|channel|>analysis<|message|>a<|end|>"
            "<|start|>assistant<|channel|>final<|message|>b<|return|>",
            "a",
            "b",
        ),
    ),
}


@pytest.mark.parametrize(
    ("name", "start", "text", "reasoning", "content"),
    [row for rows_ in TABLE.values() for row in rows_],
)
def test_table(
    name: str, start: str, text: str, reasoning: str | None, content: str | None
) -> None:
    spec = ParseSpec(reasoning_parser=name, starts_in=start)
    for chunks in ([text], text, random_cuts(text, name)):
        turn = parse(spec, chunks)
        assert (turn.reasoning, turn.content) == (reasoning, content)


@pytest.mark.parametrize("name", reasoning_parser_names())
def test_every_name_reads_plain_text(name: str) -> None:
    turn = parse(ParseSpec(reasoning_parser=name, starts_in="response"), "Hello, world.")
    assert (turn.content or "").removeprefix("<think>") == "Hello, world."
    assert turn.reasoning is None
