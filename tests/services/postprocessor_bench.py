"""A postprocessor on an in-memory bus, with its neighbours played by hand."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.lowlevel

from services.postprocessor.clock import Clock
from services.postprocessor.postprocessor import Postprocessor
from tests.services.postprocessing import EOS_ID, ids, tokenizer_json
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.bus.port import Bus, WorkItem, WorkPull
from toolrail.events import assemble
from toolrail.messages import (
    Cancel,
    Done,
    EventDelta,
    EventFrame,
    Held,
    Instance,
    Job,
    ModelCard,
    Reply,
    Resend,
    Sampling,
    Stream,
    TokenDelta,
    TokenFrame,
    decode_cancel,
    decode_event_frame,
    decode_job,
    decode_reply,
    decode_worker_order,
    encode,
)
from toolrail.service import Runtime, serving
from toolrail.settings import PostprocessorSettings
from toolrail.telemetry import Telemetry

MODEL = "tiny"
GATEWAY = subjects.events("gateway-1")
CARD = ModelCard(
    name=MODEL,
    worker="worker-1",
    engine="scripted",
    context_length=4096,
    slots=4,
    vocab_size=300,
    tokenizer="tokenizer-hash",
    chat_template="template-hash",
    eos_token_ids=(EOS_ID,),
)
SETTINGS = PostprocessorSettings(instance="post-1", drain_s=5.0, idle_timeout_s=10.0)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(10):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def turns(count: int = 30) -> None:
    """Let everything that is ready happen."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


@dataclass
class HeldClock:
    """Time that passes when a test says so."""

    now_s: float = 1000.0
    now_ms: int = 1_700_000_000_000

    def clock(self) -> Clock:
        return Clock(seconds=lambda: self.now_s, unix_ms=lambda: self.now_ms)

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.now_ms += int(seconds * 1000)


@dataclass
class FakeWorker:
    """Takes jobs and publishes frames by hand."""

    bus: Bus
    name: str = "worker-1"
    items: list[WorkItem] = field(default_factory=list[WorkItem])
    cancels: list[Cancel] = field(default_factory=list[Cancel])
    orders: list[Resend | Done] = field(default_factory=list[Resend | Done])
    pull: WorkPull | None = None
    _seq: dict[tuple[str, int, int], int] = field(default_factory=dict[tuple[str, int, int], int])

    async def start(self, credit: int = 100) -> None:
        await self.bus.subscribe(
            subjects.cancel(MODEL), lambda payload: self.cancels.append(decode_cancel(payload))
        )
        self.pull = await self.bus.work.pull(MODEL, self.items.append)
        self.pull.grant(credit)

    async def hold(self) -> None:
        """Answer orders: every want is held."""

        async def answer(payload: bytes) -> bytes:
            order = decode_worker_order(payload)
            self.orders.append(order)
            wants = order.wants if isinstance(order, Resend) else ()
            return encode(Held(wants=tuple(range(len(wants)))))

        await self.bus.serve(subjects.control(self.name), "control", answer, max_in_flight=9)

    async def announce(self) -> None:
        await self.bus.blobs.put(CARD.tokenizer, tokenizer_json().encode())
        await self.bus.models.put(f"{subjects.model_token(MODEL)}.{self.name}", encode(CARD))
        await self.register()

    async def register(self) -> None:
        here = Instance(service="worker", instance=self.name, pid=1)
        await self.bus.instances.put(f"worker.{self.name}", encode(here))

    async def jobs(self, count: int = 1) -> list[Job]:
        """All jobs so far, once there are `count`, by request and choice."""
        await until(lambda: len(self.items) >= count)
        jobs = [decode_job(item.payload) for item in self.items]
        return sorted(jobs, key=lambda job: (job.request_id, job.choice))

    def delta(self, job: Job, text: str | Sequence[int] = "", **fields: Any) -> TokenDelta:
        """The next delta of a job's run."""
        run = (job.request_id, job.choice, job.attempt)
        seq = self._seq.get(run, 0)
        self._seq[run] = seq + 1
        token_ids = ids(text) if isinstance(text, str) else tuple(text)
        return TokenDelta(*run, seq, token_ids, **fields)

    async def send(self, *deltas: TokenDelta, to: str = subjects.tokens("post-1")) -> None:
        """One engine step."""
        await self.bus.publish(to, encode(TokenFrame(1, self.name, 0, deltas)))


@dataclass
class FakeGateway:
    """Hands over and hears events, in the place of a gateway and a preprocessor."""

    bus: Bus
    frames: list[EventFrame] = field(default_factory=list[EventFrame])

    async def start(self, subject: str = GATEWAY) -> None:
        await self.bus.subscribe(
            subject, lambda payload: self.frames.append(decode_event_frame(payload))
        )

    async def register(self) -> None:
        here = Instance(service="gateway", instance="gateway-1", pid=1)
        await self.bus.instances.put("gateway.gateway-1", encode(here))

    async def hand_over(self, stream: Stream) -> Reply:
        reply = await self.bus.request(subjects.STREAM, encode(stream), timeout_s=5)
        return decode_reply(reply)

    def deltas(self, request_id: str = "r") -> list[EventDelta]:
        return [d for frame in self.frames for d in frame.deltas if d.request_id == request_id]

    async def last(self, request_id: str = "r") -> EventDelta:
        """The entry that ended a request, once it is there."""

        def over() -> bool:
            found = self.deltas(request_id)
            return bool(found) and (found[-1].usage is not None or found[-1].failed is not None)

        await until(over)
        return self.deltas(request_id)[-1]

    async def cancel(self, request_id: str = "r", choice: int | None = None, term: int = 0) -> None:
        cancel = Cancel(request_id=request_id, choice=choice, reason="client left", term=term)
        await self.bus.publish(subjects.control("post-1"), encode(cancel))


def stream(request_id: str = "r", **fields: Any) -> Stream:
    usual = {
        "reply_subject": GATEWAY,
        "sampling": Sampling(max_tokens=100),
        "prompt_token_ids": ids("hi"),
    }
    return Stream(request_id=request_id, model=MODEL, card="card-hash", **(usual | fields))


@dataclass
class Bench:
    """A postprocessor that serves, and its neighbours."""

    runtime: Runtime[PostprocessorSettings]
    postprocessor: Postprocessor
    worker: FakeWorker
    gateway: FakeGateway
    time: HeldClock

    def metric(self, name: str, **labels: str) -> float:
        """Value of a series of the postprocessor's."""
        full = f"toolrail_postprocessor_{name}"
        return self.runtime.metrics.get_sample_value(full, labels) or 0.0

    async def opened(self, *streams: Stream) -> list[Job]:
        """Hand over; the jobs that it made."""
        before = len(self.worker.items)
        for one in streams:
            await self.gateway.hand_over(one)
        jobs = await self.worker.jobs(before + sum(one.num_choices for one in streams))
        return [job for job in jobs if any(job.request_id == one.request_id for one in streams)]


def content(b: Bench, choice: int) -> str | None:
    deltas = [d for d in b.gateway.deltas() if d.choice == choice]
    return assemble([event for d in deltas for event in d.events]).content


@asynccontextmanager
async def bench(
    *, broker: MemoryBroker | None = None, telemetry: Telemetry | None = None, **settings: Any
) -> AsyncGenerator[Bench]:
    """A postprocessor with one worker and one gateway, on a fresh in-memory bus or on `broker`."""
    broker = broker or MemoryBroker()
    buses: list[Bus] = []

    async def connect() -> Bus:
        buses.append(broker.connect(telemetry))
        return buses[-1]

    async with bench_on(connect, telemetry=telemetry, **settings) as made:
        yield made
    for bus in buses:
        await bus.close()


@asynccontextmanager
async def bench_on(
    connect: Callable[[], Awaitable[Bus]], *, telemetry: Telemetry | None = None, **settings: Any
) -> AsyncGenerator[Bench]:
    """The same on any bus; whoever opened the connections closes them."""
    worker, gateway = FakeWorker(await connect()), FakeGateway(await connect())
    await worker.start()
    await worker.announce()
    await gateway.start()
    own = replace(SETTINGS, **settings)
    async with serving("postprocessor", own, await connect(), telemetry=telemetry) as runtime:
        await until(lambda: runtime.directory.card(MODEL))
        held = HeldClock()
        postprocessor = Postprocessor(runtime, held.clock())
        await postprocessor.start()
        runtime.tasks.start_soon(postprocessor.queue)
        yield Bench(runtime, postprocessor, worker, gateway, held)
