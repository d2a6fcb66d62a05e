"""Random schemas and values: the engine takes every result, and `enforced` means what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.schema.engine import Held, HeldArguments
from tests.schema.walks import walk
from toolrail.schema.normalise import normalise_value
from toolrail.schema.validation import validator

NAMES = st.sampled_from(["a", "b", "ab", "x1", "kind"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-12, 12),
    st.sampled_from([0.5, -2.25, 3.0]),
    st.sampled_from(["", "a", "b", "ab", "x1", "1", 'q"', "a\nb", "<b>", "é😀"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
PATTERNS = st.sampled_from(
    ["^a", "b$", "^[a-z]+$", "[0-9]", "^a|b$", "^.{2,3}$", "^x(1|2)?$", "^[^a]*$", "^(?=a)", "\\bx"]
)
SMALL = st.integers(0, 3)
BOUND = st.one_of(st.integers(-6, 6), st.sampled_from([0.5, -1.5, 2.0]))


def objects(inner: Any) -> Any:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.just("object"),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
            "propertyNames": st.one_of(
                st.fixed_dictionaries({"pattern": PATTERNS}),
                st.fixed_dictionaries({"maxLength": SMALL}),
            ),
            "minProperties": SMALL,
            "maxProperties": SMALL,
            "unevaluatedProperties": st.booleans(),
            "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=1), max_size=1),
        },
    )


def arrays(inner: Any) -> Any:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.just("array"),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "minItems": SMALL,
            "maxItems": SMALL,
            "uniqueItems": st.booleans(),
            "contains": inner,
            "unevaluatedItems": st.booleans(),
        },
    )


STRINGS = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", ["string", "null"]])},
    optional={"minLength": SMALL, "maxLength": SMALL, "pattern": PATTERNS},
)
NUMBERS = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number", ["integer", "string"]])},
    optional={
        "minimum": BOUND,
        "maximum": BOUND,
        "exclusiveMinimum": BOUND,
        "exclusiveMaximum": BOUND,
        "multipleOf": st.sampled_from([1, 2, 3, 0.5, 1.5]),
    },
)
CONSTANTS = st.one_of(
    st.fixed_dictionaries({"enum": st.lists(VALUES, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"const": VALUES}),
)
REFERENCES = st.sampled_from(["#", "#/$defs/A", "#/$defs/B"]).map(lambda ref: {"$ref": ref})


def combined(inner: Any) -> Any:
    several = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        objects(inner),
        arrays(inner),
        st.fixed_dictionaries({"anyOf": several}),
        st.fixed_dictionaries({"oneOf": several}),
        st.fixed_dictionaries({"allOf": several}),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"if": inner, "then": inner}),
        st.tuples(inner, inner).map(both),
    )


def both(pair: tuple[Any, Any]) -> Any:
    """Keywords side by side."""
    left, right = pair
    return left | right if isinstance(left, dict) and isinstance(right, dict) else left


SCHEMAS = st.recursive(
    st.one_of(STRINGS, NUMBERS, CONSTANTS, REFERENCES, st.booleans(), st.just({"type": "boolean"})),
    combined,
    max_leaves=6,
)
DOCUMENTS = st.tuples(SCHEMAS, SCHEMAS, SCHEMAS).map(
    lambda three: (
        (three[0] if isinstance(three[0], dict) else {"allOf": [three[0]]})
        | {"$defs": {"A": three[1], "B": three[2]}}
    )
)


def is_valid(schema: Any, value: Any) -> bool | None:
    """What `jsonschema` says, None where a cycle of references takes its stack."""
    try:
        return bool(Draft202012Validator(schema).is_valid(value))
    except BaseException as error:
        # Its native part panics where Python's would raise.
        if not isinstance(error, RecursionError) and type(error).__name__ != "PanicException":
            raise
        return None


def hold_fast(schema: Any, values: list[Any]) -> None:
    held = Held(schema)
    check = validator(schema)
    report = held.normalised.report
    for value in values:
        valid = is_valid(schema, value)
        if valid is None:
            continue
        found = check(json.dumps(value))
        if all(violation.judged for violation in found):
            assert (not found) == valid, (value, found)
        if report.status == "enforced":
            assert valid or not held.takes(value), (value, held.normalised.schema)


def hold_fast_as_arguments(schema: Any, style: str, values: list[Any]) -> None:
    """With types on the wire, so that what is read is what was written."""
    held = HeldArguments(schema, style)
    if held.normalised.report.status == "enforced":
        for value in values:
            if isinstance(value, dict) and held.takes(value):
                assert is_valid(schema, value) is not False, (value, held.normalised.schema)


def hold_walks(schema: Any, seed: int) -> None:
    normalised = normalise_value(schema)
    for offset in range(3):
        text = walk(normalised.schema, seed + offset)
        if text is None:
            continue
        value = json.loads(text)  # whatever the grammar takes is JSON
        if normalised.report.status == "enforced":
            assert is_valid(schema, value) is not False, (text, normalised.schema)


def examples(most: int) -> settings:
    return settings(max_examples=most, deadline=None, suppress_health_check=list(HealthCheck))


QUICK, MANY, LONG = examples(25), examples(150), examples(2_000)


@given(DOCUMENTS, st.lists(VALUES, min_size=4, max_size=8))
@QUICK
def test_enforced_means_enforced(schema: Any, values: list[Any]) -> None:
    hold_fast(schema, values)


@given(DOCUMENTS, st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=3, max_size=5))
@QUICK
def test_enforced_means_enforced_where_values_are_raw(schema: Any, values: list[Any]) -> None:
    hold_fast_as_arguments(schema, "deepseek_xml", values)


@given(DOCUMENTS, st.integers(0, 2**30))
@QUICK
def test_what_is_drawn_from_a_grammar_is_json_and_valid(schema: Any, seed: int) -> None:
    hold_walks(schema, seed)


@pytest.mark.exhaustive
@given(DOCUMENTS, st.lists(VALUES, min_size=4, max_size=8))
@MANY
def test_enforced_means_enforced_in_many(schema: Any, values: list[Any]) -> None:
    hold_fast(schema, values)


@pytest.mark.exhaustive
@given(DOCUMENTS, st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=3, max_size=5))
@MANY
def test_enforced_means_enforced_where_values_are_raw_in_many(
    schema: Any, values: list[Any]
) -> None:
    hold_fast_as_arguments(schema, "deepseek_xml", values)


@pytest.mark.exhaustive
@given(DOCUMENTS, st.integers(0, 2**30))
@MANY
def test_what_is_drawn_from_a_grammar_is_json_and_valid_in_many(schema: Any, seed: int) -> None:
    hold_walks(schema, seed)


@pytest.mark.slow
@given(DOCUMENTS, st.integers(0, 2**30))
@LONG
def test_what_is_drawn_from_a_grammar_is_json_and_valid_at_length(schema: Any, seed: int) -> None:
    hold_walks(schema, seed)


@pytest.mark.slow
@given(DOCUMENTS, st.lists(VALUES, min_size=6, max_size=10))
@LONG
def test_enforced_means_enforced_at_length(schema: Any, values: list[Any]) -> None:
    hold_fast(schema, values)


@pytest.mark.slow
@given(DOCUMENTS, st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=3, max_size=6))
@LONG
def test_enforced_means_enforced_where_values_are_raw_at_length(
    schema: Any, values: list[Any]
) -> None:
    hold_fast_as_arguments(schema, "deepseek_xml", values)
