"""The gateway in memory: a preprocessor and postprocessor to play, and a client without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup
from prometheus_client import CollectorRegistry

from services.gateway.app import App
from services.gateway.exchange import Message
from services.gateway.gateway import Gateway
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.bus.port import Bus
from toolrail.events import Event, TextDelta
from toolrail.messages import (
    Accepted,
    Cancel,
    ChoiceEnd,
    EventDelta,
    EventFrame,
    Failed,
    Instance,
    ModelCard,
    Positions,
    Prepare,
    Reply,
    Usage,
    VisibleLogprob,
    decode_owner_order,
    decode_prepare,
    encode,
)
from toolrail.service import Runtime, serving
from toolrail.settings import GatewaySettings
from toolrail.telemetry import Telemetry

MODEL = "acme/demo"
POSTPROCESSOR = "post-1"
USAGE = Usage(prompt_tokens=7, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
STOP = ChoiceEnd("stop")

Respond = Callable[[Prepare], Awaitable[Reply]]


@dataclass
class Peers:
    """Plays the preprocessor and the postprocessor over a connection of its own.

    `accept` are fields of the Accepted it answers with; `respond`, if set, answers instead.
    """

    bus: Bus
    accept: dict[str, Any] = field(default_factory=dict)
    respond: Respond | None = None
    prepared: list[Prepare] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)
    asked: list[Positions] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._seqs: dict[str, int] = {}
        self._news = anyio.Event()

    async def start(self) -> None:
        await self.bus.serve(
            subjects.PREPARE, subjects.PREPROCESSORS, self._prepare, max_in_flight=100
        )
        await self.bus.subscribe(subjects.control(POSTPROCESSOR), self._hear)
        for service, name in (("preprocessor", "pre-1"), ("postprocessor", POSTPROCESSOR)):
            await self.register(service, name)
        card = ModelCard(
            name=MODEL, worker="worker-1", engine="scripted", context_length=4096, slots=4,
            vocab_size=100, tokenizer="t", chat_template="c", created_s=1700000000,
        )  # fmt: skip
        await self.bus.models.put("demo.worker-1", encode(card))

    async def register(self, service: str, name: str) -> None:
        instance = Instance(service=service, instance=name, pid=1)
        await self.bus.instances.put(f"{service}.{name}", encode(instance))

    def accepted(self, prepare: Prepare) -> Accepted:
        fields: dict[str, Any] = {
            "instance": "pre-1",
            "control_subject": subjects.control(POSTPROCESSOR),
            "model": MODEL,
            "stream": True,
        }
        return Accepted(request_id=prepare.request_id, **(fields | self.accept))

    async def _prepare(self, data: bytes) -> bytes:
        prepare = decode_prepare(data)
        self.prepared.append(prepare)
        self._tell()
        if self.respond is not None:
            return encode(await self.respond(prepare))
        return encode(self.accepted(prepare))

    def _hear(self, data: bytes) -> None:
        order = decode_owner_order(data)
        if isinstance(order, Positions):
            self.asked.append(order)
        else:
            self.cancels.append(order)
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it; looked at again whenever a peer hears something."""
        with anyio.fail_after(5):
            while not condition():
                await self._news.wait()

    async def request(self, number: int = 1) -> str:
        """The id of the number-th request, once it came."""
        await self.until(lambda: len(self.prepared) >= number)
        return self.prepared[number - 1].request_id

    async def cancelled(self, number: int = 1) -> Cancel:
        """The number-th Cancel, once it came."""
        await self.until(lambda: len(self.cancels) >= number)
        return self.cancels[number - 1]

    async def say(
        self,
        request_id: str,
        *events: Event,
        choice: int = 0,
        logprobs: tuple[VisibleLogprob, ...] | None = None,
        end: ChoiceEnd | None = None,
        usage: Usage | None = None,
        failed: Failed | None = None,
        seq: int | None = None,
        postprocessor: str = POSTPROCESSOR,
        term: int | None = None,
    ) -> None:
        """Publish one delta in a frame of its own; numbered on unless `seq` says otherwise."""
        number = self._seqs.get(request_id, 0) if seq is None else seq
        self._seqs[request_id] = number + 1
        if term is None:
            term = self.prepared[-1].term
        delta = EventDelta(request_id, number, choice, events, logprobs, end, usage, failed, term)
        frame = EventFrame(1, postprocessor, (delta,))
        subject = self.prepared[-1].reply_subject
        await self.bus.publish(subject, encode(frame))

    async def finish(self, request_id: str, *events: Event) -> None:
        """Say the rest of a request of one choice and its end."""
        await self.say(request_id, *events, end=STOP, usage=USAGE)


@dataclass
class Answer:
    """What the client of one request has got, and how it may leave."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    writes: list[bytes] = field(default_factory=list)
    complete: bool = False
    returned: bool = False

    def __post_init__(self) -> None:
        self._news = anyio.Event()
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self.reading = anyio.Event()
        self.reading.set()

    async def send(self, message: Message) -> None:
        await self.reading.wait()
        if message["type"] == "http.response.start":
            assert self.status == 0
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            assert not self.complete
            data = message.get("body", b"")
            self.body += data
            if data:
                self.writes.append(data)
            self.complete = not message.get("more_body", False)
            if self.complete:
                self.leave()
        self.tell()

    async def receive(self) -> Message:
        return await self._messages.get()

    def push(self, body: bytes, *, more: bool = False) -> None:
        self._messages.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})

    def tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(5):
            while not condition():
                await self._news.wait()

    async def end(self) -> Answer:
        """This, once the application has returned."""
        await self.until(lambda: self.returned)
        return self

    async def started(self) -> Answer:
        """This, once there is a status."""
        await self.until(lambda: self.status != 0)
        return self

    async def written(self, count: int) -> bytes:
        """The count-th body write, once it came."""
        await self.until(lambda: len(self.writes) >= count)
        return self.writes[count - 1]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        body = self.json
        assert set(body) == {"error"}
        assert set(body["error"]) == {"message", "type", "param", "code"}
        return body["error"]

    @property
    def events(self) -> list[Any]:
        return events_of(self.body)


def events_of(body: bytes) -> list[Any]:
    """The data of every event, parsed; `[DONE]` as the string. Comments are left out."""
    events: list[Any] = []
    for block in body.decode().split("\n\n")[:-1]:
        if block.startswith(":"):
            continue
        assert block.startswith("data: ")
        assert "\n" not in block
        data = block.removeprefix("data: ")
        events.append(data if data == "[DONE]" else json.loads(data))
    return events


def deltas_of(events: Sequence[Any], choice: int = 0) -> list[dict[str, Any]]:
    """The deltas of one choice, in order."""
    return [
        part["delta"]
        for event in events
        if event != "[DONE]"
        for part in event["choices"]
        if part["index"] == choice
    ]


@dataclass
class Stack:
    """A gateway, its peers and the means to be its client."""

    gateway: Gateway
    app: App
    peers: Peers
    runtime: Runtime[GatewaySettings]
    registry: CollectorRegistry
    tasks: TaskGroup
    broker: MemoryBroker

    def visit(
        self,
        method: str = "POST",
        path: str = "/v1/chat/completions",
        *,
        body: bytes | None = b"{}",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send a request; `body` None: the test pushes it."""
        answer = Answer()
        given = {"content-type": "application/json"} | (headers or {})
        path, _, query = path.partition("?")
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in given.items()],
        }
        if body is not None:
            answer.push(body)

        async def serve() -> None:
            await self.app(scope, answer.receive, answer.send)
            answer.returned = True
            answer.tell()

        self.tasks.start_soon(serve)
        return answer

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def stack(
    *,
    settings: GatewaySettings | None = None,
    telemetry: Telemetry | None = None,
    peers: bool = True,
    max_payload_bytes: int = 8 << 20,
    **accept: Any,
) -> AsyncIterator[Stack]:
    """A gateway over a bus in memory; keyword arguments are fields of Accepted."""
    broker = MemoryBroker(max_payload_bytes=max_payload_bytes)
    play = Peers(broker.connect(), accept)
    if peers:
        await play.start()
    bus = broker.connect(telemetry)
    async with serving(
        "gateway",
        settings or GatewaySettings(instance="gw"),
        bus,
        telemetry=telemetry,
    ) as runtime:
        gateway = Gateway.of(runtime)
        await gateway.streams.start()
        async with anyio.create_task_group() as tasks:
            yield Stack(gateway, App(gateway), play, runtime, runtime.metrics, tasks, broker)
            tasks.cancel_scope.cancel()
    await bus.close()
    await play.bus.close()


def text(*parts: str) -> tuple[TextDelta, ...]:
    """Text events."""
    return tuple(TextDelta(part) for part in parts)
