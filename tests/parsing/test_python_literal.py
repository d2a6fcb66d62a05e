"""Python literals as JSON text: what Python itself reads, and nothing that would be evaluated."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolrail.arguments.json_value import Read
from toolrail.arguments.output import Output
from toolrail.arguments.python_literal import MAX_DEPTH, KeywordArguments
from toolrail.events import assemble
from toolrail.scan import Buffer


def read(*chunks: str) -> tuple[Read, str | None, str]:
    """Status, the arguments' JSON text (None: no complete call) and what is left unread."""
    output, buffer = Output(), Buffer()
    output.start("f")
    reader = KeywordArguments(output)
    status = Read.MORE
    for chunk in chunks:
        buffer.push(chunk)
        if status is Read.MORE:
            status = reader.read(buffer)
    output.end(complete=status is Read.DONE)
    calls = assemble(output.drain()).calls
    return status, calls[0].arguments if calls else None, buffer.text


def value(literal: str) -> object:
    """What `literal` is as an argument, however it is cut."""
    text = f"a={literal})rest"
    whole = read(text)
    assert whole[0] is Read.DONE, literal
    assert whole[2] == "rest"
    assert read(*text) == whole
    for at in range(len(text)):
        assert read(text[:at], text[at:]) == whole
    assert whole[1] is not None
    return json.loads(whole[1])["a"]


LITERALS = [
    *("1", "-1", "+5", "- 5", "1_000", "0x1F", "0o17", "0b101", "00", "12345678901234567890"),
    *("1.", ".5", "1e5", "1E+5", "-.5e-3", "007.50", "1_0.0_1"),
    *("True", "False", "None", "[]", "[1,]", "[ [ [1] ], 'a' ]", "{}", "{'a': [None, {'b': 1}],}"),
    *("'a'", '"it\'s"', r"'it\'s'", "''", '""', "''''''", "'''tri'ple''x'''", '"""a "b" c"""'),
    *(r"r'\d+\''", r"R'\n'", r"u'\u00e9'", r"b'abc'", r"rb'a\n'", "f'plain'", "'a' 'b'\n\"c\""),
    *(r"'\N{SNOWMAN}\x41\101\0\7z'", r"'\a\b\f\n\r\t\v\\'", r"'\U0001F600'", "'\\\nx'"),
    *("('x')", "(('x'))", "('a'\n 'b')", "([1])", "(5)"),
]


@pytest.mark.parametrize("literal", LITERALS)
def test_a_literal_is_what_python_reads(literal: str) -> None:
    expected = ast.literal_eval(f"({literal.removeprefix('f')})")
    assert value(literal) == (expected.decode() if isinstance(expected, bytes) else expected)


@pytest.mark.parametrize(
    ("literal", "expected"),
    [
        ("true", True),
        ("null", None),
        ("()", []),
        ("(1,)", [1]),
        ("(1, (2,), [(3, 4)])", [1, [2], [[3, 4]]]),
        ("{1: 2, None: 3, True: 4, 1.5: 5}", {"1": 2, "null": 3, "true": 4, "1.5": 5}),
        ("{'a' 'b': 1}", {"ab": 1}),
        (r"'\q\/\d'", "\\q\\/\\d"),
        ("'a\nb'", "a\nb"),
        (r"'\ud83d\ude00'", "😀"),
    ],
)
def test_what_json_has_no_word_for(literal: str, expected: object) -> None:
    assert value(literal) == expected


@pytest.mark.parametrize(
    "literal",
    [
        *(
            "x",
            "f(1)",
            "1+2",
            "not True",
            "-True",
            "inf",
            "1j",
            "lambda",
            "...",
            "*a",
            "{1}",
            "{'a'}",
        ),
        *("[1)", "[,]", "[1,,2]", "{'a':}", "{'a' 1}", "{[1]: 2}", "True False", "'a' b", "f'{x}'"),
        *(
            r"'\x4'",
            r"'\N{NO SUCH}'",
            r"'\U00110000'",
            "1__0",
            "1_",
            "_1",
            "007",
            "0x",
            "0b2",
            "1.2.3",
        ),
        *("1e", "1e+", "e5", "--5", "- -5", "+", "0x" + "f" * 300),
    ],
)
def test_what_is_no_literal_is_refused(literal: str) -> None:
    text = f"a={literal})"
    assert read(text)[0] is Read.BAD
    assert read(*text)[0] is Read.BAD


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (")", {}),
        (" a = 1 , b = 'x' )", {"a": 1, "b": "x"}),
        ("a=1,)", {"a": 1}),
        ("a-b=1)", {"a-b": 1}),
        ("é=1)", {"é": 1}),
        (",)", None),
        ("a=1,,)", None),
        ("1)", None),
        ("a=1 b=2)", None),
        ("a==1)", None),
        ("**{})", None),
        ("=1)", None),
    ],
)
def test_arguments_are_named(text: str, arguments: object) -> None:
    found = read(text)[1]
    assert (None if found is None else json.loads(found)) == arguments
    assert read(*text)[1] == found


def test_nesting_is_bounded() -> None:
    deep = MAX_DEPTH
    assert read(f"a={'[' * deep}{']' * deep})")[0] is Read.DONE
    assert read(f"a={'[' * (deep + 1)}")[0] is Read.BAD


def test_whole_numbers_keep_their_digits() -> None:
    digits = "9" * 5_000
    assert read(f"a={digits})")[1] == f'{{"a": {digits}}}'


SCALARS = [
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
]
VALUES = st.recursive(
    st.one_of(SCALARS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(given_value=VALUES)
def test_what_python_writes_is_read_back(given_value: object) -> None:
    assert json.loads(str(read(f"a={given_value!r})")[1]))["a"] == given_value


@settings(max_examples=300, deadline=None, derandomize=True)
@given(text=st.text(st.sampled_from("a1='\"()[]{},: \\x\nN+-.eE_rf"), max_size=30))
def test_any_text_is_refused_or_read_whatever_the_cuts(text: str) -> None:
    status, arguments, _ = read(text)
    assert read(*text)[:2] == (status, arguments)
    if arguments is not None:
        assert isinstance(json.loads(arguments), dict)
