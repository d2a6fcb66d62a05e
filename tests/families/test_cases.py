"""Every case of every family, however the stream is cut."""

from __future__ import annotations

import random

import pytest

from tests.families.kinds import KINDS
from tests.families.loading import (
    CASES,
    FAMILIES,
    CannotOccur,
    cases,
    parse,
    random_cuts,
    rows,
    shown,
)


@pytest.mark.parametrize("family", FAMILIES)
def test_events_do_not_depend_on_the_cuts(family: str) -> None:
    for case in cases(family):
        text = case.text
        streams = {
            "given": case.chunks,
            "characters": text,
            "random": list(random_cuts(text, case.id)),
        }
        whole = parse(case.spec, [text], cut=case.cut)
        assert shown(whole) == case.events, case.id
        for cut, chunks in streams.items():
            turn = parse(case.spec, chunks, cut=case.cut)
            assert shown(turn) == case.events, (case.id, cut)
            assert turn == whole, (case.id, cut)  # the arguments' own bytes too
            for wire_id, call in zip(case.wire_ids, turn.calls, strict=True):
                assert wire_id in (None, call.id), (case.id, cut)


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", FAMILIES)
def test_some_cuts_in_two(family: str) -> None:
    for case in cases(family):
        whole = parse(case.spec, [case.text], cut=case.cut)
        places = range(len(case.text) + 1)
        for at in random.Random(case.id).sample(places, min(4, len(places))):
            turn = parse(case.spec, [case.text[:at], case.text[at:]], cut=case.cut)
            assert turn == whole, (case.id, at)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_cut_in_two(family: str) -> None:
    for case in cases(family):
        for at in range(len(case.text) + 1):
            turn = parse(case.spec, [case.text[:at], case.text[at:]], cut=case.cut)
            assert shown(turn) == case.events, (case.id, at)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cases_agree_with_themselves(family: str) -> None:
    found = cases(family)
    assert len({case.id for case in found}) == len(found)
    for case in found:
        assert "".join(case.chunks) == case.text
        called = any(event["kind"] == "tool_call" for event in case.events)
        follows = "length" if case.cut else ("tool_calls" if called else "stop")
        assert case.finish in (None, follows), case.id


@pytest.mark.parametrize("family", FAMILIES)
def test_the_family_has_every_kind_of_case(family: str) -> None:
    found = rows(CASES / f"{family}.jsonl")
    owned = {kind for row in found for kind in row.kinds}
    assert owned <= KINDS.keys()
    assert not KINDS.keys() - owned
    for row in found:
        if isinstance(row, CannotOccur):
            assert len(row.reason) > 20, "a reason is a sentence"


def test_every_case_file_is_of_a_family() -> None:
    assert {path.stem for path in CASES.glob("*.jsonl")} == set(FAMILIES)
