"""Lists of a long body are held against their bounds before their members become records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolrail.errors import CallerError
from toolrail.openai.decode import decode

PART = {"type": "text", "text": ""}


class Unread:
    """A decoder that is not to be reached."""

    def decode(self, body: bytes) -> Any:
        raise AssertionError("the members of a list that is too long were read")


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "x"}] * 60_000},
        {"messages": [{"role": "user", "content": [PART] * 120_000}]},
        {"messages": [{"role": "user", "content": [PART] * 10_000}] * 11},
        {"tools": [{"type": "function", "function": {"name": "f"}}] * 30_000},
        {"input": [{"role": "user", "content": "x"}] * 60_000},
        {"input": [{"type": "function_call_output", "output": [PART] * 60_000}] * 2},
    ],
    ids=["messages", "parts of one", "parts of all", "tools", "input", "parts of input"],
)
def test_a_list_that_is_too_long(body: dict[str, Any]) -> None:
    with pytest.raises(CallerError) as raised:
        decode(Unread(), json.dumps(body).encode())  # type: ignore[arg-type]
    assert raised.value.param == next(iter(body))
    assert raised.value.code == "array_above_max_length"
