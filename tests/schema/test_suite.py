"""The official JSON Schema tests: what is called enforced holds, what is judged is judged right."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.schema.engine import Held
from tests.schema.official import DRAFTS, cases
from toolrail.schema.validation import validator

# The normaliser reads the siblings of a `$ref` as 2019-09 and later do; drafts up to 7 ignore them.
SIBLINGS = {
    "ref overrides any sibling keywords",
    "$ref prevents a sibling $id from changing the base uri",
}


@pytest.mark.parametrize("draft", DRAFTS)
def test_what_the_grammar_takes_is_valid_where_all_is_enforced(draft: str) -> None:
    states: Counter[str] = Counter()
    taken = refused = 0
    for case in cases(draft):
        held = Held(case.schema)  # the engine takes every result
        status = held.normalised.report.status
        states[status] += 1
        for name, value, valid in case.tests:
            takes = held.takes(value)
            taken += takes and valid
            refused += valid and not takes
            if status == "enforced":
                assert valid or not takes, (case.file, case.name, name, held.normalised.schema)
    # Most schemas hold as they are, and most valid values pass.
    assert states["enforced"] > sum(states.values()) * 0.5
    assert refused < taken * 0.25


@pytest.mark.parametrize("draft", DRAFTS)
def test_validation_agrees_with_the_suite(draft: str) -> None:
    unjudged = judged = 0
    for case in cases(draft):
        check = validator(case.schema)
        for name, value, valid in case.tests:
            found = check(json.dumps(value))
            if any(not violation.judged for violation in found):
                unjudged += 1
                continue
            if case.name in SIBLINGS and draft != "draft2020-12":
                continue
            judged += 1
            assert (not found) == valid, (case.file, case.name, name, found)
    assert unjudged < judged * 0.12
