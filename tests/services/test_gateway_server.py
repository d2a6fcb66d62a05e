from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
from anyio.abc import ByteReceiveStream, SocketStream

from services.gateway import server
from services.gateway.main import main
from tests.services.gateway_double import MODEL, Peers, events_of, text
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.bus.memory_documents import MemoryDocuments
from toolrail.errors import ConfigError
from toolrail.events import ArgumentsDelta, CallEnd, CallStart, ReasoningDelta
from toolrail.messages import Failed, Prepare, Reply
from toolrail.service import Runtime, serving
from toolrail.settings import GatewaySettings

pytestmark = pytest.mark.anyio

SETTINGS = GatewaySettings(instance="gw", heartbeat_s=0.05, registration_ttl_s=0.1)
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
REQUEST = POST + b"content-length: 2\r\n\r\n{}"


@dataclass
class Running:
    """The service as its process runs it, over a bus in memory, on a free port."""

    port: int
    peers: Peers
    runtime: Runtime[GatewaySettings]
    ended: anyio.Event
    cancel: Callable[[], None]

    async def connect(self) -> SocketStream:
        return await anyio.connect_tcp("127.0.0.1", self.port)

    def client(self) -> openai.AsyncOpenAI:
        url = f"http://127.0.0.1:{self.port}/v1"
        return openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)


@asynccontextmanager
async def running(settings: GatewaySettings = SETTINGS, **accept: Any) -> AsyncIterator[Running]:
    broker = MemoryBroker(registration_ttl_s=60)
    peers = Peers(broker.connect(), accept)
    await peers.start()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    bus = broker.connect()
    with anyio.fail_after(20):
        async with serving(
            "gateway", replace(settings, listen_fd=listener.detach()), bus
        ) as runtime:
            ended = anyio.Event()
            scope = anyio.CancelScope()

            async def serve() -> None:
                with scope:
                    await main(runtime)
                ended.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve)
                yield Running(port, peers, runtime, ended, scope.cancel)
                runtime.stopping.set()
    await bus.close()
    await peers.bus.close()


async def everything(stream: ByteReceiveStream) -> bytes:
    """All there is to read."""
    data = b""
    try:
        async for piece in stream:
            data += piece
    except anyio.BrokenResourceError:
        pass
    return data


async def until(stream: ByteReceiveStream, end: bytes) -> bytes:
    data = b""
    while end not in data:
        data += await stream.receive()
    return data


def answer_of(data: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, body


def unchunked(body: bytes) -> bytes:
    data = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        data += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return data


# A real client.

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]
MESSAGES: list[Any] = [{"role": "user", "content": "Weather?"}]


async def test_the_stream_helper_of_openai_gets_its_call_piece_by_piece() -> None:
    arguments = json.dumps({"city": "Zürich " * 40})
    pieces = [arguments[at : at + 10] for at in range(0, len(arguments), 10)]
    assert len(pieces) > 20

    async with running() as r, r.client() as client:

        async def speak() -> None:
            rid = await r.peers.request()
            await r.peers.say(rid, ReasoningDelta("They want the weather."))
            await r.peers.say(rid, *text("Let me ", "see."))
            await r.peers.say(rid, CallStart(0, "get_weather"))
            for piece in pieces:
                await r.peers.say(rid, ArgumentsDelta(0, piece))
            await r.peers.finish(rid, CallEnd(0))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(speak)
            async with client.chat.completions.stream(
                model=MODEL, messages=MESSAGES, tools=TOOLS
            ) as stream:
                deltas = [
                    event.arguments_delta
                    async for event in stream
                    if event.type == "tool_calls.function.arguments.delta"
                ]
                final = await stream.get_final_completion()
        assert [delta for delta in deltas if delta] == pieces
        (choice,) = final.choices
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "Let me see."
        assert choice.message.model_extra == {"reasoning_content": "They want the weather."}
        (call,) = choice.message.tool_calls or ()
        assert call.function.name == "get_weather"
        assert call.function.parsed_arguments == json.loads(arguments)
        assert call.id.startswith("call_")


async def test_openai_reads_an_object_and_its_usage() -> None:
    async with running(stream=False) as r, r.client() as client:

        async def speak() -> None:
            await r.peers.finish(await r.peers.request(), *text("Hello"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(speak)
            completion = await client.chat.completions.create(model=MODEL, messages=MESSAGES)
        assert completion.choices[0].message.content == "Hello"
        assert completion.usage is not None
        assert completion.usage.prompt_tokens_details is not None
        assert completion.usage.prompt_tokens_details.cached_tokens == 3
        assert json.loads(r.peers.prepared[0].body)["model"] == MODEL


async def test_openai_raises_what_an_error_in_a_stream_says() -> None:
    async with running() as r, r.client() as client:

        async def read() -> None:
            async for _ in await client.chat.completions.create(
                model=MODEL, messages=MESSAGES, stream=True
            ):
                begun.set()

        async def speak() -> None:
            rid = await r.peers.request()
            await r.peers.say(rid, *text("Hel"))
            await begun.wait()
            await r.peers.say(rid, failed=Failed(request_id=rid, code="engine", message="it broke"))

        begun = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(speak)
            with pytest.raises(openai.APIError, match="it broke") as raised:
                await read()
        assert raised.value.code == "engine"


async def test_openai_raises_by_status() -> None:
    async with running() as r, r.client() as client:

        async def refuse(prepare: Prepare) -> Reply:
            return Failed(
                request_id="", code="not_found", message="no such model", status=404,
                error_type="invalid_request_error", error_code="model_not_found", param="model",
            )  # fmt: skip

        r.peers.respond = refuse
        with pytest.raises(openai.NotFoundError) as raised:
            await client.chat.completions.create(model="nope", messages=MESSAGES)
        assert raised.value.code == "model_not_found"
        assert raised.value.param == "model"
        assert raised.value.request_id is not None
        assert [model.id async for model in client.models.list()] == [MODEL]
        assert (await client.models.retrieve(MODEL)).id == MODEL


# What sockets do.


async def test_a_connection_serves_one_request_after_another() -> None:
    async with running() as r, await r.connect() as stream:
        for _ in range(2):
            await stream.send(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await until(stream, b"live")).startswith(b"HTTP/1.1 200")
        await stream.send(b"HEAD /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_client_that_closes_its_socket_cancels() -> None:
    async with running() as r:
        stream = await r.connect()
        await stream.send(REQUEST)
        rid = await r.peers.request()
        await r.peers.say(rid, *text("a"))
        await until(stream, b'"a"')
        await stream.aclose()
        assert (await r.peers.cancelled()).request_id == rid


async def test_a_client_that_does_not_read_is_cut_off_and_others_are_not() -> None:
    settings = replace(SETTINGS, stream_buffer_events=50)
    async with running(settings) as r, await r.connect() as slow, await r.connect() as other:
        await slow.send(REQUEST)
        rid = await r.peers.request()
        await other.send(REQUEST)
        rid_of_other = await r.peers.request(2)
        while not r.peers.cancels:
            await r.peers.say(rid, *text("x" * 100_000))
            await anyio.lowlevel.checkpoint()
        assert (r.peers.cancels[0].request_id, r.peers.cancels[0].reason) == (rid, "slow")
        await r.peers.finish(rid_of_other, *text("fine"))
        assert b'"fine"' in await until(other, b"[DONE]")
        cut = await everything(slow)
        assert b"[DONE]" not in cut
        assert not cut.endswith(b"0\r\n\r\n")  # it does not look like the end of a good answer


async def test_a_refused_body_is_read_on_so_that_the_refusal_arrives() -> None:
    async with running(replace(SETTINGS, max_body_bytes=1000)) as r, await r.connect() as stream:
        size = 3_000_000
        await stream.send(POST + b"content-length: %d\r\n\r\n" % size)
        await stream.send(b"x" * size)
        status, headers, body = answer_of(await everything(stream))
        assert (status, headers["connection"]) == (413, "close")
        assert json.loads(body)["error"]["code"] == "request_too_large"


@pytest.mark.parametrize(
    "head",
    [
        b"GET /live HTTP/1.1\r\nhost: x\r\n" + b"a: " + b"x" * 3000,
        b"GET /live HTTP/1.1\r\n" + b"".join(b"a%d: x\r\n" % n for n in range(500)) + b"\r\n",
        b"GET /live?" + b"x" * 3000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["a header that never ends", "too many headers", "a long query"],
)
async def test_a_head_too_large_is_431(head: bytes) -> None:
    async with running(replace(SETTINGS, max_header_bytes=2000)) as r:
        async with await r.connect() as stream:
            for at in range(0, len(head), 500):
                try:
                    await stream.send(head[at : at + 500])
                except anyio.BrokenResourceError:
                    break
                await anyio.lowlevel.checkpoint()
            status, _, body = answer_of(await everything(stream))
        assert status == 431
        assert json.loads(body)["error"]["code"] == "request_head_too_large"


async def test_a_head_that_stalls_is_408_and_silence_is_closed() -> None:
    settings = replace(SETTINGS, header_timeout_s=0.1)
    async with running(settings) as r, await r.connect() as stream, await r.connect() as silent:
        await stream.send(b"GET /live HTTP/1.1\r\nhos")
        status, _, body = answer_of(await everything(stream))
        assert status == 408
        assert json.loads(body)["error"]["code"] == "request_timeout"
        assert await everything(silent) == b""


async def test_what_is_not_http_is_400_with_an_error_object() -> None:
    async with running() as r, await r.connect() as stream:
        await stream.send(b"what?\r\n\r\n")
        status, headers, body = answer_of(await everything(stream))
        assert (status, headers["content-type"]) == (400, "application/json")
        assert json.loads(body)["error"]["code"] == "invalid_http"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /live HTTP/1.1\r\nconnection: close\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\nhost: a\r\nHost: b\r\nconnection: close\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\nHost: a\r\nconnection: close\r\n\r\n", 200),
        (b"GET /live HTTP/1.0\r\n\r\n", 200),
    ],
)
async def test_a_request_says_its_host_once(head: bytes, status: int) -> None:
    async with running() as r, await r.connect() as stream:
        await stream.send(head)
        told, _, body = answer_of(await everything(stream))
        assert told == status
        if status == 400:
            assert json.loads(body)["error"]["code"] == "invalid_http"
            assert "Host" in json.loads(body)["error"]["message"]


async def test_100_continue_is_not_said_to_a_body_too_large() -> None:
    async with running(replace(SETTINGS, max_body_bytes=1000)) as r, await r.connect() as stream:
        await stream.send(POST + b"expect: 100-continue\r\ncontent-length: 2000\r\n\r\n")
        assert answer_of(await until(stream, b"}}"))[0] == 413


# The end.


async def test_stopping_finishes_what_runs_and_takes_nothing_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "LAST_REQUEST_S", 0.0)
    async with running() as r, await r.connect() as stream, await r.connect() as idle:
        await stream.send(REQUEST)
        rid = await r.peers.request()
        await r.peers.say(rid, *text("a"))
        await until(stream, b'"a"')
        r.runtime.stopping.set()
        assert await everything(idle) == b""
        with pytest.raises(OSError, match="connect"):
            await r.connect()
        assert not r.ended.is_set()
        await r.peers.finish(rid, *text("b"))
        assert b"[DONE]" in await everything(stream)
        await r.ended.wait()


async def test_a_request_on_its_way_to_a_server_that_stops_is_the_last_of_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "LAST_REQUEST_S", 3600.0)
    settings = replace(SETTINGS, drain_s=36000.0)
    async with running(settings) as r, await r.connect() as stream, await r.connect() as kept:
        await stream.send(REQUEST)
        rid = await r.peers.request()
        await r.peers.say(rid, *text("a"))
        await until(stream, b'"a"')
        r.runtime.stopping.set()
        with anyio.fail_after(10):
            while True:  # until nobody new is taken
                try:
                    await (await r.connect()).aclose()
                except OSError:
                    break
                await anyio.lowlevel.checkpoint()
        await kept.send(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n")
        status, headers, _ = answer_of(await everything(kept))
        assert (status, headers["connection"]) == (200, "close")
        await r.peers.finish(rid, *text("b"))
        await until(stream, b"0\r\n\r\n")  # whose head said before that it could be kept
        await stream.send(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n")
        status, headers, _ = answer_of(await everything(stream))
        assert (status, headers["connection"]) == (200, "close")
        await r.ended.wait()


async def test_what_does_not_finish_in_the_drain_time_is_told_so() -> None:
    async with running(replace(SETTINGS, drain_s=0.2)) as r, await r.connect() as stream:
        await stream.send(REQUEST)
        rid = await r.peers.request()
        await r.peers.say(rid, *text("a"))
        head = await until(stream, b'"a"')
        r.runtime.stopping.set()
        events = events_of(unchunked(answer_of(head + await everything(stream))[2]))
        assert events[-1]["error"]["code"] == "unavailable"
        assert (await r.peers.cancelled()).request_id == rid
        await r.ended.wait()


async def test_a_response_without_a_client_that_does_not_finish_leaves_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LAST_REQUEST_S", 0.0)  # the server has ended long before it
    at_once = MemoryDocuments.put

    async def put(*arguments: Any, **more: Any) -> Any:
        for _ in range(20):  # as a bus that takes a moment
            await anyio.lowlevel.checkpoint()
        return await at_once(*arguments, **more)

    monkeypatch.setattr(MemoryDocuments, "put", put)
    file = tmp_path / "audit.jsonl"
    settings = replace(SETTINGS, drain_s=1.0, audit=f"file:{file}", audit_flush_s=10.0)
    echo = b'{"store":true,"background":true}'
    async with running(settings, echo=echo, stream=False) as r, await r.connect() as client:
        body = b'{"background": true, "input": "a"}'
        await client.send(
            b"POST /v1/responses HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        assert answer_of(await everything(client))[0] == 200
        await r.peers.request()
        r.runtime.stopping.set()
        await r.ended.wait()
    records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert {record["kind"]: (record["error"] or {}).get("code") for record in records} == {
        "request": None,
        "background": "unavailable",
    }


async def test_a_postprocessor_that_dies_fails_its_streams() -> None:
    async with running() as r, await r.connect() as stream:
        await stream.send(REQUEST)
        rid = await r.peers.request()
        await r.peers.say(rid, *text("a"))
        head = await until(stream, b'"a"')
        await r.peers.bus.instances.delete("postprocessor.post-1")
        body = unchunked(answer_of(head + await until(stream, b"0\r\n\r\n"))[2])
        assert events_of(body)[-1]["error"]["code"] == "lost"


async def test_it_announces_itself() -> None:
    async with running() as r:
        with anyio.fail_after(5):
            while not r.runtime.directory.instances("gateway"):
                await anyio.lowlevel.checkpoint()
        assert r.runtime.directory.instances("gateway")[0].instance == "gw"
        assert subjects.events("gw") == "toolrail.v1.out.gw"


async def test_a_port_that_is_taken_is_a_setting_that_cannot_work() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = replace(SETTINGS, port=taken.getsockname()[1])
        bus = MemoryBroker().connect()
        async with serving("gateway", settings, bus) as runtime:
            with pytest.raises(ConfigError, match="port"):
                await main(runtime)
        await bus.close()


async def test_when_it_is_cancelled_nothing_stays_open() -> None:
    async with running() as r, await r.connect() as stream:
        await stream.send(REQUEST)
        rid = await r.peers.request()
        await r.peers.say(rid, *text("a"))
        await until(stream, b'"a"')
        r.cancel()
        assert b"[DONE]" not in await everything(stream)
        with pytest.raises(OSError, match="connect"):
            await r.connect()
        assert (await r.peers.cancelled()).request_id == rid
