"""Whatever a client sends is read or refused with a 400: nothing else is ever raised."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.anthropic.bodies import SCHEMA, USER, assistant, result, text, tool, use, user
from tests.openai.test_fuzz import JSON, places
from toolrail.anthropic.request import check_count, check_messages
from toolrail.errors import CallerError

WHOLE: dict[str, Any] = {
    "model": "m",
    "max_tokens": 5,
    "system": [text("s", cache_control={"type": "ephemeral"})],
    "messages": [
        USER,
        assistant({"type": "thinking", "thinking": "t", "signature": "s"}, use(city="Paris")),
        user(result(content=[text("17")]), text("Thanks.")),
        {"role": "system", "content": "Be brief."},
        user({"type": "document", "source": {"type": "text", "data": "d"}}),
    ],
    "tools": [tool(strict=True), tool("g", type="custom")],
    "tool_choice": {"type": "tool", "name": "g", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 2048},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    "stop_sequences": ["x"],
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 3,
    "stream": True,
    "metadata": {"user_id": "u"},
    "chat_template_kwargs": {"enable_thinking": False},
}
PLACES = len(places(WHOLE))


def read(data: bytes) -> None:
    for check in (check_messages, check_count):
        refused = None
        try:
            check(data)
        except CallerError as error:
            refused = error
        if refused is not None:
            assert refused.status == 400
            assert refused.message
            assert refused.code


def test_the_whole_body_is_read() -> None:
    assert check_messages(json.dumps(WHOLE).encode()).model == "m"


@settings(max_examples=100, deadline=None)
@given(place=st.integers(0, PLACES - 1), value=JSON, gone=st.booleans())
def test_one_thing_replaced_or_left_out(place: int, value: Any, gone: bool) -> None:
    body = copy.deepcopy(WHOLE)
    container, key = places(body)[place]
    if gone:
        del container[key]
    else:
        container[key] = value
    read(json.dumps(body).encode())


@settings(max_examples=50, deadline=None)
@given(cut=st.integers(0, 1500), byte=st.binary(max_size=2))
def test_broken_bytes(cut: int, byte: bytes) -> None:
    data = json.dumps(WHOLE).encode()
    read(data[:cut] + byte + data[cut + 1 :])
    read(data[:cut])
