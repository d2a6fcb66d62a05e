"""What clients send: bodies of the three APIs, and whole requests with any head."""

from __future__ import annotations

import copy
import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio
from hypothesis import strategies as st

from tests import published
from tests.anthropic import test_fuzz as anthropic
from tests.fuzz.target import Target, mutated, raised
from tests.openai import test_fuzz as openai
from tests.services.gateway_double import Stack, stack
from toolrail.anthropic.request import check_count, check_messages
from toolrail.api_keys import hash_of
from toolrail.errors import CallerError
from toolrail.messages import Failed, Prepare
from toolrail.openai.chat import check_chat
from toolrail.openai.responses import check_responses
from toolrail.settings import GatewaySettings

_RESPONSES: Final[dict[str, Any]] = {
    "model": "m",
    "instructions": "i",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "t"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
    ],
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}],
    "tool_choice": {"type": "function", "name": "f"},
    "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
    "stream": True,
    "store": False,
    "metadata": {"k": "v"},
    "reasoning": {"effort": "low"},
}

CHECKS: Final[dict[str, tuple[Callable[[bytes], object], dict[str, Any]]]] = {
    "chat": (check_chat, openai.WHOLE),
    "responses": (check_responses, _RESPONSES),
    "messages": (check_messages, anthropic.WHOLE),
    "count": (check_count, anthropic.WHOLE),
}


@st.composite
def edited(draw: st.DrawFn, whole: dict[str, Any]) -> bytes:
    """The whole body with some values replaced or left out."""
    body = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        places = openai.places(body)
        if not places:
            break
        container, key = draw(st.sampled_from(places))
        if draw(st.booleans()):
            container[key] = draw(openai.JSON)
        else:
            del container[key]
    return json.dumps(body).encode()


def _bodies(whole: dict[str, Any]) -> st.SearchStrategy[bytes]:
    return edited(whole) | mutated(st.just(json.dumps(whole).encode())) | st.binary(max_size=30)


_PUBLISHED: Final = st.one_of(
    st.tuples(st.just("chat"), published.bodies("CreateChatCompletionRequest")),
    st.tuples(st.just("responses"), published.bodies("CreateResponse")),
)


def _read(given: tuple[str, bytes]) -> None:
    api, data = given
    error = raised(CallerError, lambda: CHECKS[api][0](data))
    if error is not None:
        assert error.status == 400, error
        assert error.code
        assert 0 < len(error.message) < 2_000, error.message


# Whole requests.

_READ: Final = (
    *("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"),
)
_OTHERS: Final = (
    *("/v1/models", "/v1/models/acme/demo", "/v1/responses/resp_" + "0" * 32, "/metrics"),
    *("/v1/responses/resp_1/input_items", "/v1/responses/%00/cancel", "/health", "/live"),
    *("/", "//", "/v1", "/v1/\x00", "/v1/chat/completions/", "/é"),
)
_METHODS: Final = ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "BREW")
# Most go where a body is read.
_TARGETS: Final = st.sampled_from(
    [
        *itertools.product(["POST"] * 50, _READ),
        *itertools.product(_METHODS, (*_READ, *_OTHERS)),
    ]
)
_QUERIES: Final = st.binary(max_size=12) | st.sampled_from(
    [b"stream=true&starting_after=1", b"limit=0", b"limit=9e9&after=x", b"include[]=a", b"%ff=%"]
)
_KEY: Final = "tr_" + "0" * 12 + "_" + "A" * 43
_VALUES: Final = st.binary(max_size=30) | st.sampled_from(
    [
        *(b"Bearer " + _KEY.encode(), _KEY.encode(), b"Basic Og==", b"Bearer ", b"bearer \xe9"),
        *(b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", b"00-" + b"0" * 32, b"0" * 5000),
        *(b"application/json", b"text/plain", b"identity", b"gzip", b"9" * 30, b"-1", b"*"),
        *(b"https://a.invalid", b"POST", b"2023-06-01", b"tool_call", "١٢".encode()),
    ]
)
_NAMES: Final = st.sampled_from(
    [
        *(b"authorization", b"x-api-key", b"x-request-id", b"traceparent", b"tracestate"),
        *(b"content-length", b"content-type", b"content-encoding", b"origin", b"accept"),
        *(b"access-control-request-method", b"anthropic-version", b"anthropic-beta"),
        *(b"x-toolrail-dispatch", b"idempotency-key", b"expect"),
    ]
)


_KEYS: Final = st.sampled_from(
    [[(b"x-api-key", _KEY.encode())], [(b"authorization", b"Bearer " + _KEY.encode())], []]
)


@st.composite
def _requests(draw: st.DrawFn) -> tuple[bool, dict[str, Any], list[bytes]]:
    """Whether keys are in use, an ASGI scope, and the pieces of a body."""
    method, path = draw(_TARGETS)
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": draw(_QUERIES),
        "headers": [*draw(_KEYS), *draw(st.lists(st.tuples(_NAMES, _VALUES), max_size=5))],
    }
    whole = draw(st.sampled_from([whole for _, whole in CHECKS.values()]))
    body = draw(_bodies(whole) | st.just(json.dumps(whole).encode()))
    at = draw(st.integers(0, len(body)))
    return draw(st.booleans()), scope, [body[:at], body[at:]]


def _keys_file() -> str:
    folder = Path(tempfile.mkdtemp(prefix="toolrail-fuzz-"))
    record = {"id": "0" * 12, "name": "n", "hash": hash_of(_KEY), "metrics": True}
    (folder / "keys.json").write_text(json.dumps({"keys": [record]}), encoding="utf-8")
    return str(folder / "keys.json")


def _answered(given: tuple[bool, dict[str, Any], list[bytes]]) -> None:
    keys, scope, pieces = given

    async def run() -> None:
        settings = GatewaySettings(
            instance="gw", cors_origins="*", api_keys_file=_KEYS_FILE if keys else ""
        )
        async with stack(settings=settings) as made:
            made.peers.respond = _refuse
            await _visited(made, scope, pieces)

    anyio.run(run)


async def _refuse(prepare: Prepare) -> Failed:
    return Failed(
        request_id=prepare.request_id,
        code="invalid_request",
        message="no",
        status=400,
        error_type="invalid_request_error",
    )


async def _visited(made: Stack, scope: dict[str, Any], pieces: list[bytes]) -> None:
    sent: list[dict[str, Any]] = []
    coming = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    coming += [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not coming:
            await anyio.sleep_forever()  # the client waits for its answer
        return coming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    with anyio.fail_after(30):
        await made.app(scope, receive, send)
    status = sent[0]["status"]
    assert status < 500, (status, sent)
    for name, value in sent[0]["headers"]:
        assert b"\n" not in name + value
        assert b"\r" not in name + value
    body = b"".join(message.get("body", b"") for message in sent[1:])
    if status >= 400:
        assert json.loads(body)["error"]["message"]


_KEYS_FILE: Final = _keys_file()

TARGETS: Final = (
    Target(
        "bodies",
        st.one_of(
            *(st.tuples(st.just(api), _bodies(whole)) for api, (_, whole) in CHECKS.items()),
            _PUBLISHED,
        ),
        _read,
        bounded=150,
    ),
    Target("http", _requests(), _answered, bounded=40),
)
