"""The streaming JSON reader agrees with `json` on what is JSON, and keeps its bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrail.arguments.json_value import JsonValue, Read
from toolrail.scan import Buffer

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


def read(chunks: list[str]) -> tuple[Read, str, str]:
    """Status, what was read, and what was left."""
    buffer, value, out = Buffer(), JsonValue(), []
    for chunk in chunks:
        buffer.push(chunk)
        if value.status is Read.MORE:
            out.append(value.read(buffer))
    if value.status is Read.MORE:
        out.append(value.read(buffer, final=True))
    return value.status, "".join(out), buffer.peek(10_000)


@given(JSON, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_values_pass_verbatim(value: object, ascii_only: bool, indent: object) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert read([text]) == read(list(text)) == (Read.DONE, text, "")


@given(JSON, st.data())
def test_what_json_refuses_is_refused(value: object, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=False)
    at = data.draw(st.integers(0, len(text) - 1))
    broken = (
        text[:at] + data.draw(st.sampled_from(list('"{}[]:,x01-.eE\\ \n\x01'))) + text[at + 1 :]
    )
    status, out, rest = read([broken])
    assert (status, out, rest) == read(list(broken))
    whole = status is Read.DONE and not rest.strip(" \t\n\r")
    assert whole == _is_json(broken)


def _is_json(text: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text, strict=False, parse_constant=refuse)
    except ValueError:
        return False
    return True


def test_raw_controls_in_strings_become_escapes() -> None:
    assert read(['{"a": "x\n\t\x00"}'])[1] == '{"a": "x\\n\\t\\u0000"}'


@pytest.mark.parametrize(
    "text", ['{"a": 1</call>', '{"a": 01}', "[1 2]", '{"a" 1}', "nul", "{1:2}"]
)
def test_it_stops_before_the_first_wrong_character(text: str) -> None:
    status, out, rest = read([text])
    assert status is Read.BAD
    assert out + rest == text


def test_depth_has_no_limit() -> None:
    text = "[" * 50_000 + "]" * 50_000
    assert read([text])[0] is Read.DONE
