"""Whole requests through the preprocessor: each is handed on, or refused as the caller's fault."""

from __future__ import annotations

import json
from typing import Any, Final

import anyio
from hypothesis import strategies as st

from tests import published
from tests.fuzz.requests import CHECKS, edited
from tests.fuzz.target import Target
from tests.services.preprocessing import MODEL, bench, card
from toolrail.messages import Accepted, Failed

PARSERS: Final = (
    "hermes",
    "qwen3_coder",
    "kimi_k2",
    "deepseek_v3_1",
    "mistral",
    "pythonic",
    "phi4",
)


def _named(body: bytes) -> bytes:
    """With the model that is served: another would end every request at once."""
    try:
        fields = json.loads(body)
    except ValueError:
        return body
    return json.dumps(fields | {"model": MODEL}).encode() if isinstance(fields, dict) else body


_PUBLISHED: Final = st.one_of(
    st.tuples(st.just("chat"), published.bodies("CreateChatCompletionRequest")),
    st.tuples(st.just("responses"), published.bodies("CreateResponse")),
)
_EDITED: Final = st.one_of(
    *(
        st.tuples(st.just(api), edited(whole))
        for api, (_, whole) in CHECKS.items()
        if api != "count"
    )
)


def _prepared(given: tuple[str, bool, tuple[str, bytes]]) -> None:
    parser, strict, (api, body) = given
    control: Any = "refuse" if strict else "allow"

    async def run() -> None:
        served = card(tool_parser=parser, reasoning_parser=None)
        async with bench(served, control_tokens_in_content=control) as b:
            reply = await b.ask(_named(body), api=api)
        if isinstance(reply, Failed):
            assert reply.status < 500, (reply.status, reply.message)
            assert len(reply.message) < 4_000
            assert reply.code != "internal"
        else:
            assert isinstance(reply, Accepted)
            assert len(b.post.streams) == 1

    anyio.run(run)


TARGETS: Final = (
    Target(
        "preparing",
        st.tuples(st.sampled_from(PARSERS), st.booleans(), _EDITED | _PUBLISHED),
        _prepared,
        bounded=40,
    ),
)
