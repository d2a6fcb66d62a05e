"""What is kept of a request has a name that nobody can guess or choose."""

from __future__ import annotations

import re

import pytest

from services.gateway.ids import new_request_id
from tests.services.gateway_double import stack
from toolrail.openai.responses.ids import is_response_id, response_id

pytestmark = pytest.mark.anyio

NAME = re.compile(r"[0-9a-f]{32}")


def test_a_request_s_id_is_128_random_bits_and_names_its_response() -> None:
    made = {new_request_id() for _ in range(1000)}
    assert len(made) == 1000
    assert all(NAME.fullmatch(name) and is_response_id(response_id(name)) for name in made)
    varied = [len({name[at] for name in made}) for at in range(32)]
    assert min(varied) == 16, "a digit that does not take every value"


async def test_a_stored_body_is_named_by_us_whatever_the_client_calls_its_request() -> None:
    async with stack(max_payload_bytes=32_768) as s:
        answer = s.visit(body=b'"' + b"x" * 60_000 + b'"', headers={"x-request-id": "0" * 32})
        await s.peers.finish(await s.peers.request())
        await answer.end()
        (prepare,) = s.peers.prepared
    kind, _, name = (prepare.body_blob or "").partition(".")
    assert (kind, name) == ("body", prepare.request_id)
    assert NAME.fullmatch(name)
    assert name != "0" * 32
