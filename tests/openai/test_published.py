"""Bodies drawn from OpenAI's published document are read or refused with a 400 that says where."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, event, given, settings

from tests.published import bodies
from toolrail.errors import CallerError
from toolrail.openai.chat import check_chat
from toolrail.openai.responses import check_responses

FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def outcome(check: Callable[[bytes], object], data: bytes) -> str:
    refused = None
    try:
        check(data)
    except CallerError as error:
        refused = error
    if refused is None:
        return "read"
    assert refused.status == 400
    assert refused.message
    assert refused.code
    assert refused.param is None or place(json.loads(data), refused.param)
    return refused.code


def place(body: Any, param: str) -> bool:
    """Whether `param` begins with a field that the body has, or could have."""
    first = param.split(".", maxsplit=1)[0].split("[", maxsplit=1)[0]
    return first in body or first in ("model", "messages", "input", "tools")


def named(body: bytes) -> bytes:
    """With a model: one that is missing or empty would end every check at once."""
    return json.dumps(json.loads(body) | {"model": "m"}).encode()


@FUZZ
@given(bodies("CreateChatCompletionRequest"))
def test_chat_completions(body: bytes) -> None:
    event(outcome(check_chat, named(body)))


@FUZZ
@given(bodies("CreateResponse"))
def test_responses(body: bytes) -> None:
    event(outcome(check_responses, named(body)))
