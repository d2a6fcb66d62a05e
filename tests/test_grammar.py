"""The light door to the grammar engine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from toolrail.grammar import (
    CompiledGrammar,
    GrammarError,
    Matcher,
    Vocabulary,
    accepts,
    check_tag,
    compile_tag,
)

OBJECT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}


def tag(content: object) -> str:
    return json.dumps({"type": "structural_tag", "format": content})


def held(schema: object) -> str:
    return tag({"type": "json_schema", "json_schema": schema})


CALL = tag(
    {
        "type": "tag",
        "begin": "<call>",
        "content": {"type": "json_schema", "json_schema": OBJECT},
        "end": "</call>",
    }
)
TOKENS = [
    b"<call>",
    b"</call>",
    b"{",
    b"}",
    b'"x"',
    b":",
    b"1",
    b"<",
    b"call>",
    b"",
    b"<eos>",
    b"\xff",
]
EOS = 10


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ('<call>{"x": 3}</call>', True),
        ('<call>{"x": "3"}</call>', False),
        ("<call>{}</call>", False),
        ('<call>{"x": 3}</call', False),
        ('<call>{"x": 3}</call>.', False),
        ("", False),
    ],
)
def test_a_text_is_accepted_only_whole_and_complete(text: str, accepted: bool) -> None:
    assert accepts(CALL, text) is accepted
    assert accepts(json.loads(CALL), text.encode()) is accepted


def test_tokens_are_walked_as_their_bytes() -> None:
    matcher = Matcher(compile_tag(CALL, TOKENS, (EOS,)))
    assert matcher.allowed_ids() == [0, 7]
    for token in (7, 8, 2, 4, 5, 6):
        assert matcher.accept_token(token)
    assert not matcher.can_end
    assert matcher.accept_token(3)
    assert matcher.accept_token(1)
    assert matcher.can_end
    assert matcher.allowed_ids() == [EOS]
    assert not matcher.is_terminated
    assert matcher.accept_token(EOS)
    assert matcher.is_terminated


def test_a_refused_token_changes_nothing() -> None:
    matcher = Matcher(compile_tag(CALL, TOKENS, (EOS,)))
    before = matcher.allowed()
    assert not matcher.accept_token(3)
    assert not matcher.accept_token(EOS)
    assert not matcher.accept_token(len(TOKENS))
    assert not matcher.accept_string("call")
    assert matcher.allowed() == before


def test_rollback_undoes_steps_and_strings_are_one_step() -> None:
    matcher = Matcher(compile_tag(CALL, TOKENS, (EOS,)))
    start = matcher.allowed()
    assert matcher.accept_string('<call>{"x"')
    assert matcher.accept_token(5)
    matcher.rollback(2)
    assert matcher.allowed() == start


@pytest.mark.parametrize("size", [1, 7, 8, 9, 31, 32, 33, 64, 65])
def test_the_bitset_holds_no_ids_beyond_the_vocabulary(size: int) -> None:
    vocabulary = [b"a"] * size
    for content in ({"type": "any_text"}, {"type": "const_string", "value": "aa"}):
        matcher = Matcher(compile_tag(tag(content), vocabulary))
        assert matcher.allowed_ids() == list(range(size))
        assert len(matcher.allowed()) == (size + 7) // 8


def test_tokens_without_text_or_with_broken_utf8_are_never_allowed_in_text() -> None:
    matcher = Matcher(compile_tag(tag({"type": "any_text"}), TOKENS, (EOS,)))
    assert set(matcher.allowed_ids()) == set(range(len(TOKENS))) - {9, 11}


def test_a_vocabulary_serves_many_tags() -> None:
    vocabulary = Vocabulary(TOKENS, (EOS,))
    first = compile_tag(CALL, vocabulary)
    second = vocabulary.compile(tag({"type": "const_string", "value": "{}"}))
    assert Matcher(first).allowed_ids() == [0, 7]
    assert Matcher(second).allowed_ids() == [2]
    assert isinstance(first, CompiledGrammar)
    assert first.memory_bytes > 0
    assert "root ::=" in str(first)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", "Invalid JSON error"),
        ("{}", "format field"),
        ("[]", "structural tag"),
        (tag({"type": "nonsense"}), "nonsense"),
        (held({"type": "any"}), 'Unsupported type "any"'),
        (held({"type": "string", "pattern": "\\bx"}), "word boundary"),
        (held({"type": "string", "pattern": "("}), "regex"),
        (held({"type": "object", "properties": {"a": False}, "required": ["a"]}), "false"),
        (tag({"type": "triggered_tags", "triggers": [], "tags": []}), "triggers"),
    ],
)
def test_what_the_engine_refuses_is_one_error_with_its_reason(bad: str, reason: str) -> None:
    for door in (compile_tag, check_tag):
        with pytest.raises(GrammarError) as caught:
            door(bad)
        assert reason.lower() in str(caught.value).lower()
        assert ".cc:" not in str(caught.value)


PROBE = """
import sys, time
import toolrail.grammar as grammar
assert "xgrammar" not in sys.modules and "tvm_ffi" not in sys.modules, "loaded at import"
assert grammar.accepts(
    '{"type":"structural_tag","format":{"type":"const_string","value":"a"}}', "a")
heavy = {"torch", "transformers", "triton", "pydantic"} & set(sys.modules)
assert not heavy, heavy
assert "xgrammar" not in sys.modules, "the stub must not stay"
"""


def test_the_engine_loads_without_its_heavy_packages() -> None:
    subprocess.run([sys.executable, "-c", PROBE], check=True, timeout=60)


LIGHT = """
import toolrail.grammar as grammar
assert grammar.accepts(
    '{"type":"structural_tag","format":{"type":"const_string","value":"a"}}', "a")
"""
FULL = """
import xgrammar
compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo([b"a", b"b"]))
compiled = compiler.compile_structural_tag(
    '{"type":"structural_tag","format":{"type":"const_string","value":"b"}}')
matcher = xgrammar.GrammarMatcher(compiled)
mask = xgrammar.allocate_token_bitmask(1, 2)
matcher.fill_next_token_bitmask(mask)
assert int(mask[0, 0]) & 3 == 2
try:
    xgrammar.Grammar.from_structural_tag("{")
except xgrammar.InvalidJSONError:
    pass
"""


@pytest.mark.engine
@pytest.mark.parametrize("order", [(LIGHT, FULL), (FULL, LIGHT)], ids=["light first", "full first"])
def test_the_whole_engine_lives_in_the_same_process(order: tuple[str, str]) -> None:
    subprocess.run([sys.executable, "-c", "\n".join(order)], check=True, timeout=300)
