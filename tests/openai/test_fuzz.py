"""Whatever a client sends is read or refused with a 400: nothing else is ever raised."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.openai.bodies import USER, WEATHER, call, function
from toolrail.errors import CallerError
from toolrail.openai.chat import check_chat

WHOLE: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "s"}]},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call()]},
        {"role": "tool", "tool_call_id": "call_1", "content": "x"},
    ],
    "tools": [function(strict=True), function("g")],
    "tool_choice": {"type": "function", "function": {"name": "g"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": WEATHER}},
    "stream": True,
    "stream_options": {"include_usage": True},
    "n": 2,
    "max_tokens": 5,
    "temperature": 0.5,
    "stop": ["x"],
    "logit_bias": {"5": 1},
    "logprobs": True,
    "top_logprobs": 2,
    "metadata": {"k": "v"},
    "chat_template_kwargs": {"enable_thinking": False},
    "nvext": {"top_k": 3},
}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["object", "function", "auto", "$ref", "#", "type", "properties"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["type", "$ref", "anyOf", "role", "content"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


def read(data: bytes) -> None:
    refused = None
    try:
        check_chat(data)
    except CallerError as error:
        refused = error
    if refused is not None:
        assert refused.status == 400
        assert refused.message
        assert refused.code


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key in `value`."""
    found: list[tuple[Any, Any]] = []
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            found.extend(places(value[key]))
    return found


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_one_value_replaced_anywhere(data: st.DataObject) -> None:
    body = json.loads(json.dumps(WHOLE))
    container, key = data.draw(st.sampled_from(places(body)))
    container[key] = data.draw(JSON)
    read(json.dumps(body).encode())


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_one_value_left_out_anywhere(data: st.DataObject) -> None:
    body = json.loads(json.dumps(WHOLE))
    container, key = data.draw(st.sampled_from(places(body)))
    del container[key]
    read(json.dumps(body).encode())


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_bytes_replaced_anywhere(data: st.DataObject) -> None:
    body = bytearray(json.dumps(WHOLE).encode())
    at = data.draw(st.integers(0, len(body) - 1))
    body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    read(bytes(body))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes(data: bytes) -> None:
    read(data)
